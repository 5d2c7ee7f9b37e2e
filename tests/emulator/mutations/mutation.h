// SPDX-License-Identifier: Apache-2.0
// A mutation: one small damage to a kernel's PTX or to its launch, as a person could make it.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnjit/emulator.h"

namespace attnjit::emulator {

/// One kind of damage. Every line of the kernel that holds `find` and matches `pattern` is a place
/// for it; at most `at_most` places are taken, evenly spread over them.
struct Rule {
  std::string_view subjects;     ///< a subject's name, or its beginning
  std::string_view kind;         ///< what is done, in words
  std::string_view find;         ///< literal part of the line: the pattern is tried on these only
  std::string_view pattern;      ///< ECMAScript
  std::string_view replacement;  ///< as std::regex_replace takes it
  int at_most = 1;
};

/// A damage that moves a line across another one: below the first, or above the last, of the lines
/// near it that match `across`. A place is a line that matches `pattern` and has such a neighbour.
struct MoveRule {
  std::string_view subjects;
  std::string_view kind;
  std::string_view pattern;  ///< ECMAScript, of the line that is moved
  bool down;
  std::string_view across;  ///< ECMAScript
  int at_most = 1;
};

/// A damage to the launch: another swizzle in a tensor map.
struct LaunchRule {
  std::string_view subjects;
  std::string_view kind;
  std::string_view map;
  int swizzle;
};

/// Of the hand-written kernels and of the generated sm_90a ones (rules.cpp).
const std::vector<Rule>& rules();
const std::vector<LaunchRule>& launch_rules();
/// Of the generated sm_100a kernels (template_rules.cpp).
const std::vector<Rule>& template_rules();
const std::vector<LaunchRule>& template_launch_rules();
/// Of how threads wait for one another, in every kernel (order_rules.cpp).
const std::vector<Rule>& order_rules();
/// Of runs over sequences.
const std::vector<Rule>& run_rules();
const std::vector<MoveRule>& move_rules();

/// A damaged kernel.
struct Mutant {
  std::string subject, kind;
  int occurrence = 0;  ///< among the rule's places
  int line = 0;        ///< of the PTX, 1-based; 0: the launch is damaged
  std::string ptx;     ///< empty: the launch is damaged
  std::string map;     ///< of the launch
  int swizzle = 0;
  std::string name() const { return subject + ": " + kind + " #" + std::to_string(occurrence); }
};

/// A place where a rule's change is no damage.
struct Spared {
  Mutant mutant;
  std::string_view reason;
};

struct Mutants {
  std::vector<Mutant> mutants;
  std::vector<Spared> spared;
};

/// The mutants of a subject, in the order of the rules: damages to the text of `entries`, and to
/// the tensor maps of the first launch.
Mutants mutants_of(const std::string& subject, const std::string& ptx, const LaunchRecipe& launch,
                   const std::vector<std::string>& entries);

/// A line of a text, and the instructions and directives around it.
struct Context {
  std::string before, line, after;
};
Context context_of(const std::string& ptx, int line);

/// Why a change at this place is no damage, so that no mutant is made of it; empty: it is one. By
/// what stands around it where that tells, since the kernels change.
std::string_view no_damage(std::string_view subject, std::string_view kind, int occurrence,
                           const Context& context);

/// The numbers that are known of places that are no damage, and are of none of `spared`, which are
/// those of all subjects.
std::vector<std::string> stale_numbers(const std::vector<Spared>& spared);

/// Why a survivor survives; empty: not known.
std::string_view reason_of(const Mutant& mutant);

}  // namespace attnjit::emulator

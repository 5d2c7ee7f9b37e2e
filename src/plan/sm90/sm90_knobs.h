// SPDX-License-Identifier: Apache-2.0
// The choices of an sm_90a plan that a tuning row may make, each with the member that it sets.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/tuning.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

/// Stages of K, and of tiles that are rewritten, that the knobs allow.
inline constexpr int kSm90MaxStages = 6, kSm90MaxRowStages = 4;

/// NOTE: `attnjit tune` tries the values that stand here and no others.
struct Sm90Knob {
  std::string_view name;
  std::variant<int Sm90Plan::*, bool Sm90Plan::*> member;
  std::vector<std::int64_t> values;
};

/// The knobs of the forward kernel.
std::vector<Sm90Knob> sm90_forward_knobs(const Sm90Plan& plan);

/// Applies a tuned choice. Errors: kInvalid, at the choice's name, for a name or value that `knobs`
/// does not hold; `kernel` says in the message whose knobs they are.
Status sm90_apply(const std::vector<Sm90Knob>& knobs, std::string_view kernel,
                  const TuningValues& tuned, Sm90Plan& plan);

/// Whether a tuning row chooses what a knob sets.
bool sm90_chooses(const std::vector<Sm90Knob>& knobs, const TuningValues& tuned,
                  int Sm90Plan::*member);

/// The knobs with what `plan` has chosen.
std::vector<TuningKnob> sm90_chosen(const std::vector<Sm90Knob>& knobs, const Sm90Plan& plan);

}  // namespace attnjit

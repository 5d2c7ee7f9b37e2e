// SPDX-License-Identifier: Apache-2.0
// Subject: a kernel that is damaged, with its launch, its inputs and the answer that it must give.
//
// Thread rules: immutable once made; run() may be called concurrently.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/emulator.h"

namespace attnjit::emulator {

/// What was seen of one run.
struct Outcome {
  bool caught = false;
  std::string by;        ///< a finding's kind, "numbers", "refused"
  std::string evidence;  ///< the finding's text, or what is wrong with the numbers
  std::uint64_t steps = 0;
};

class Subject {
 public:
  virtual ~Subject() = default;
  const std::string& name() const { return name_; }
  const std::string& ptx() const { return ptx_; }
  /// The first launch.
  const LaunchRecipe& recipe() const { return recipe_; }
  /// The kernels that are launched, of those in the text.
  virtual std::vector<std::string> entries() const { return {recipe_.entry}; }

  /// Runs under the isa model and compares with the reference. A warning is no finding.
  virtual Outcome run(const PtxModule& module, const LaunchRecipe& recipe, std::uint64_t seed,
                      std::uint64_t max_steps) const = 0;

 protected:
  std::string name_, ptx_;
  LaunchRecipe recipe_;
};

/// Whether the subject of this name is to be made.
using Wanted = std::function<bool(std::string_view name)>;

/// How every subject is run: the isa model with every check, one thread.
EmulatorOptions isa_options(std::uint64_t seed, std::uint64_t max_steps);

/// The first finding, if there is one that is no warning, and the steps.
Outcome outcome_of(const EmulatorReport& report);

/// The hand-written kernels: "sm100 gemm", "sm100 pair" (of two CTAs), "sm100 attention", and "sm90
/// exchange" (between two CTAs).
Result<std::vector<std::unique_ptr<Subject>>> make_written_subjects(const Wanted& wanted);

}  // namespace attnjit::emulator

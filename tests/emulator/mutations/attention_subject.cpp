// SPDX-License-Identifier: Apache-2.0
// Runs every call of an attention kernel until one gives a damage away.
#include "attention_subject.h"

#include <algorithm>

#include "../attention/generated_kernel.h"
#include "verify/compare.h"

namespace attnjit::emulator {

AttentionSubject::AttentionSubject(std::string name, std::string ptx, std::vector<Call> calls,
                                   bool in_order_issue, double tolerance)
    : calls_(std::move(calls)), in_order_issue_(in_order_issue), tolerance_(tolerance) {
  name_ = std::move(name);
  ptx_ = std::move(ptx);
  const std::vector<LaunchRecipe>& launches = calls_.front().sequence.launches;
  recipe_ = launches[launches.front().entry == kWriterEntry ? 1 : 0];
}

std::vector<std::string> AttentionSubject::entries() const {
  std::vector<std::string> names;
  for (const Call& call : calls_) {
    for (const LaunchRecipe& launch : call.sequence.launches) {
      if (launch.entry == kWriterEntry) continue;
      if (std::find(names.begin(), names.end(), launch.entry) == names.end()) {
        names.push_back(launch.entry);
      }
    }
  }
  return names;
}

Outcome AttentionSubject::run(const PtxModule& module, const LaunchRecipe& recipe,
                              std::uint64_t seed, std::uint64_t max_steps) const {
  Outcome outcome;
  for (const Call& call : calls_) {
    LaunchSequence sequence = call.sequence;
    for (LaunchRecipe& launch : sequence.launches) {
      if (launch.entry != recipe.entry) continue;
      for (std::size_t i = 0; i < launch.tensor_maps.size(); ++i) {
        launch.tensor_maps[i].swizzle = recipe.tensor_maps[i].swizzle;
      }
    }
    EmulatorOptions options = isa_options(seed, max_steps);
    options.in_order_issue = in_order_issue_;
    const Result<KernelRun> run = run_kernel(module, sequence, call.problem, options);
    if (!run) return {true, "refused", run.error().to_string(), outcome.steps};
    const std::uint64_t steps = outcome.steps;
    outcome = outcome_of(run->report);
    outcome.steps += steps;
    if (outcome.caught) return outcome;
    const verify::Comparison comparison = verify::compare(
        call.problem, call.reference, run->o, run->lse ? &*run->lse : nullptr, tolerance_);
    if (comparison.passed) continue;
    outcome.caught = true;
    outcome.by = "numbers";
    outcome.evidence = comparison.reason;
    return outcome;
  }
  return outcome;
}

}  // namespace attnjit::emulator

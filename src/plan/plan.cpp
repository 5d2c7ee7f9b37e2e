// SPDX-License-Identifier: Apache-2.0
// Implements plan(): it resolves the spec and asks the planner of its architecture.
#include "attnjit/plan.h"

#include <utility>

#include "attnjit/tuning.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

Result<KernelPlan> plan(const AttentionSpec& spec, const PlanOptions& options,
                        const Tuning* tuning) {
  const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec, options);
  if (!resolved) return resolved.error();
  return plan(*resolved, tuning);
}

Result<KernelPlan> plan(const ResolvedSpec& spec, const Tuning* tuning) {
  KernelPlan plan;
  plan.spec = spec;
  const TuningRow* row = tuning == nullptr ? nullptr : find_tuning(*tuning, plan.spec);
  const TuningValues* tuned = row == nullptr ? nullptr : &row->choose;
  if (plan.spec->arch == Arch::kSm90a) {
    Status status = make_sm90_plan(spec, plan, tuned);
    if (!status) return status.error();
    return plan;
  }
  plan.supported = false;
  Result<Sm100Plan> sm100 = make_sm100_plan(spec, tuned);
  if (!sm100) {
    if (sm100.error().code != ErrorCode::kUnsupported) return sm100.error();
    plan.reason = sm100.error().message;
    return plan;
  }
  fill_from_sm100(std::make_shared<const Sm100Plan>(*std::move(sm100)), plan);
  return plan;
}

}  // namespace attnjit

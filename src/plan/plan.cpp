// SPDX-License-Identifier: Apache-2.0
// plan: validates a spec, asks the architecture's family for the kernel, adds what follows it.
#include "attnjit/plan.h"

#include "attnjit/tuning.h"
#include "base/architectures.h"
#include "plan/family.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/sequence.h"
#include "plan/map/map_plan.h"
#include "plan/merge/merge_plan.h"
#include "spec/resolved_spec.h"

namespace attnjit {

namespace {

using Step = Status (*)(const TuningValues* tuned, KernelPlan& plan);

/// What plan() does, in its order.
constexpr Step kSteps[] = {
    // NOTE: tile counters are first, and in every plan that has a workspace: so kernels of several
    // plans may share one buffer, in which the same bytes are zero before and after each of their
    // launches. What also must be zero is second, so that it is the begin of the buffer.
    [](const TuningValues*, KernelPlan& plan) {
      plan.workspaces = {WorkspaceId::kTileCounters};
      if (has_wait_records(plan)) plan.workspaces.push_back(WorkspaceId::kWaitRecords);
      add_merge_workspaces(plan);
      add_map_workspaces(plan);
      return Status();
    },
    [](const TuningValues* tuned, KernelPlan& plan) {
      return family_of(plan.spec).plan(tuned, plan);
    },
    [](const TuningValues*, KernelPlan& plan) {
      if (plan.supported) plan.reason = why_no_map(plan.spec);
      plan.supported = plan.supported && plan.reason.empty();
      return Status();
    },
    [](const TuningValues*, KernelPlan& plan) {
      if (plan.supported && merges(plan.spec)) plan.kernels.push_back(merge_kernel(plan));
      if (plan.supported) add_map_kernels(plan);
      return Status();
    },
    [](const TuningValues*, KernelPlan& plan) {
      const bool only_counters = plan.workspaces.size() == 1;
      if (only_counters && !uses(plan, WorkspaceId::kTileCounters)) plan.workspaces.clear();
      return Status();
    },
};

}  // namespace

Result<KernelPlan> plan(const AttentionSpec& spec, const PlanOptions& options,
                        const Tuning* tuning) {
  const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec, options);
  if (!resolved) return resolved.error();
  return plan(*resolved, tuning);
}

Result<KernelPlan> plan(const ResolvedSpec& spec, const Tuning* tuning) {
  if (spec.state().arch_from != spec::ArchFrom::kSpec) {
    return make_error(ErrorCode::kInvalid,
                      "is missing, and planning looks at no GPU; allowed: " + architecture_names(),
                      "arch");
  }
  KernelPlan plan;
  plan.spec = spec;
  const TuningRow* row = tuning == nullptr ? nullptr : find_tuning(*tuning, plan.spec);
  const TuningValues* tuned = row == nullptr ? nullptr : &row->choose;
  if (row != nullptr) plan.tuned_by = std::make_shared<const TuningRow>(*row);
  for (const Step step : kSteps) {
    if (Status taken = step(tuned, plan); !taken) return taken.error();
  }
  return plan;
}

}  // namespace attnjit

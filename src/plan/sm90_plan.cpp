#include "plan/sm90_plan.h"

namespace attnjit {

Status make_sm90_plan(const AttentionSpec& /*resolved*/, const PlanOptions& /*options*/,
                      KernelPlan& plan, const TuningValues* /*tuned*/) {
  plan.supported = false;
  plan.reason = "no sm_90a template yet";
  return {};
}

}  // namespace attnjit

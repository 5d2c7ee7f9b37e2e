// The kernel plan of sm_90a.
//
// Thread rules: pure functions.
#pragma once

#include <vector>

#include "attnjit/plan.h"
#include "attnjit/sm90_plan.h"
#include "attnjit/spec.h"
#include "attnjit/tuning.h"

namespace attnjit {

/// Fills the sm_90a side of a plan: constants, parameters, barriers, maps, supported and reason.
/// `resolved` has every default filled in. `tuned` holds what a tuning row overrides, or is null.
/// Errors: kInvalid for a tuned name or value that this plan cannot take.
Status make_sm90_plan(const AttentionSpec& resolved, const PlanOptions& options, KernelPlan& plan,
                      const TuningValues* tuned = nullptr);

/// What a tuning row may choose, with what this plan has.
std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan);

}  // namespace attnjit

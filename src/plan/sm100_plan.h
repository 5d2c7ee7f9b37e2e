// SPDX-License-Identifier: Apache-2.0
// The kernel plan of sm_100a and sm_103a.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/sm100_plan.h"
#include "attnjit/tuning.h"

namespace attnjit {

/// Plans the kernel. `given` is the spec as the caller wrote it, `resolved` with its defaults.
/// Errors: kUnsupported with the reason where no configuration serves the spec; kInvalid for a
/// tuned name or value that cannot be.
Result<Sm100Plan> make_sm100_plan(const AttentionSpec& given, const AttentionSpec& resolved,
                                  const PlanOptions& options, const TuningValues* tuned);

/// Fills the generic side of a plan from its Sm100Plan: constants, maps, barriers, deviations.
void fill_from_sm100(std::shared_ptr<const Sm100Plan> sm100, KernelPlan& plan);

/// Fills plan.constants and plan.parameters, supported and reason: what the template takes.
void fill_sm100_kernel(const Sm100Plan& sm100, KernelPlan& plan);

/// Plans a launch of a supported sm_100 plan; plan_launch has checked the lengths.
Result<LaunchRecipe> plan_sm100_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                       const LaunchScalars& scalars,
                                       const std::vector<ParamValue>& params,
                                       const DeviceShape& device);

}  // namespace attnjit

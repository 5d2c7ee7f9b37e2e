// SPDX-License-Identifier: Apache-2.0
// one_launch: plan_launch of a plan that has one kernel, for tests that look at its launch.
#pragma once

#include <vector>

#include "attnjit/launch.h"

namespace attnjit {

/// The launch; an empty grid where there is nothing to launch.
inline Result<LaunchRecipe> one_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                       const LaunchScalars& scalars,
                                       const std::vector<UserParamShape>& params,
                                       const DeviceShape& device = {}) {
  Result<LaunchSequence> sequence = plan_launch(plan, shapes, scalars, params, device);
  if (!sequence) return sequence.error();
  if (!sequence->launches.empty()) return sequence->launches.at(0);
  LaunchRecipe nothing;
  nothing.grid = {0, 0, 0};
  return nothing;
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// one_launch: plan_launch, for tests that look at the launch of a plan's main kernel.
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
  for (const LaunchRecipe& launch : sequence->launches) {
    if (launch.kernel == 0) return launch;
  }
  LaunchRecipe nothing;
  nothing.grid = {0, 0, 0};
  return nothing;
}

}  // namespace attnjit

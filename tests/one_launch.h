// SPDX-License-Identifier: Apache-2.0
// one_launch: plan_launch, for tests that look at the launch of a plan's main kernel; number_of:
// what it is given.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "attnjit/launch.h"
#include "plan/kernel/signature.h"

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

/// A number of the main kernel's launch, of 32 bits.
inline std::int32_t number_of(const KernelPlan& plan, const LaunchRecipe& recipe,
                              LaunchNumber number) {
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* source = std::get_if<LaunchNumber>(&parameters[i].source);
    if (source != nullptr && *source == number) {
      return std::get<std::int32_t>(recipe.args.at(i).value);
    }
  }
  ADD_FAILURE() << "the kernel has no such number";
  return 0;
}

}  // namespace attnjit

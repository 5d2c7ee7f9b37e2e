// SPDX-License-Identifier: Apache-2.0
// plan_launch() again and again into the same memory, and with the partitions that a test wants.
#pragma once

#include <optional>
#include <vector>

#include "attnjit/launch.h"
#include "plan/launch/family_launch.h"

namespace attnjit {

/// plan_launch() into `sequence`: an empty one, or what a call for the same plan left there, whose
/// memory is used again. What it holds after an error may be used so, too.
Status plan_launch_into(const KernelPlan& plan, const LaunchShapes& shapes,
                        const LaunchScalars& scalars, const std::vector<UserParamShape>& params,
                        const DeviceShape& device, LaunchSequence& sequence);

/// The same with the keys in the partitions that are chosen, where there is a choice: of few keys,
/// too, for which a launch would take one.
Status plan_launch_in_parts(const KernelPlan& plan, const LaunchShapes& shapes,
                            const LaunchScalars& scalars, const std::vector<UserParamShape>& params,
                            const DeviceShape& device, const std::optional<PartitionChoice>& chosen,
                            LaunchSequence& sequence);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_100a kernel of absorbed MLA.
#include "plan/mla/mla_launch.h"
#include "plan/sm100_mla/sm100_mla_plan.h"

namespace attnjit {
namespace {

// Estimates for a B200 (148 SMs at 1.85 GHz, 7.7 TB/s), where nobody has measured: docs/mla.md. The
// rate of products is 0.8 of what those of 64 rows can have, the half of 15.2e6.
constexpr MlaRates kRates{.alone_bytes = 100e3,
                          .shared_bytes = 52e3,
                          .flop = 6e6,
                          .work_tile = 2.5,
                          .merge = 2.5,
                          .merge_part = 0.05};

}  // namespace

PartitionChoice sm100_mla_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                     const DeviceShape& device) {
  return mla_partitions(plan.spec, plan.sm100_mla->tiles, kRates, shapes, device);
}

Status plan_sm100_mla_launch(const KernelPlan& plan, const LaunchRequest& request,
                             LaunchRecipe& recipe) {
  return plan_mla_launch(plan, plan.sm100_mla->tiles, request, recipe);
}

}  // namespace attnjit

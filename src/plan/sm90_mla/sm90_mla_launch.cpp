// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a kernel of absorbed MLA and deep heads.
#include "plan/mla/mla_launch.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit {
namespace {

// Estimates for an H200: docs/mla.md.
constexpr MlaRates kRates{.alone_bytes = 57e3,
                          .shared_bytes = 34e3,
                          .flop = 5e6,
                          .work_tile = 2.5,
                          .merge = 2.5,
                          .merge_part = 0.05,
                          .empty_merge = 1.2,
                          .join_whole = 3.0,
                          .join_part = 4.2,
                          .apart = 1.05};

}  // namespace

PartitionChoice sm90_mla_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                    const DeviceShape& device) {
  return mla_partitions(plan.spec, plan.sm90_mla->tiles, kRates, shapes, device);
}

Status plan_sm90_mla_launch(const KernelPlan& plan, const LaunchRequest& request,
                            LaunchRecipe& recipe) {
  return plan_mla_launch(plan, plan.sm90_mla->tiles, request, recipe);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels of absorbed MLA and head_dim above 256, and into how many parts they
// split the keys.
#pragma once

#include "attnjit/launch.h"
#include "plan/launch/family_launch.h"
#include "plan/mla/mla_tiles.h"

namespace attnjit {

/// What a launch's time is estimated by: an SM's rates per microsecond, and microseconds.
struct MlaRates {
  double alone_bytes = 0;    ///< of K that it loads while the others idle
  double shared_bytes = 0;   ///< and while all load
  double flop = 0;           ///< of the products
  double work_tile = 2.5;    ///< the first loads of a work tile, and its end
  double merge = 2.5;        ///< of a merge,
  double merge_part = 0.05;  ///< and of each part of it
  double empty_merge = 0;    ///< one that has nothing to do
  double reduce_whole = 0;   ///< of two halves of a sequence by their CTAs, where they do that,
  double reduce_part = 0;    ///< and of a part
  double apart = 1;          ///< of a tile's time, where neighbours could share keys and do not
};

/// The parts that a launch splits the keys into: those that take the least time, where the spec
/// leaves it to the launch.
PartitionChoice mla_partitions(const MlaTiles& tiles, const MlaRates& rates,
                               const LaunchShapes& shapes, const DeviceShape& device);

/// Plans a launch of the main kernel.
Status plan_mla_launch(const KernelPlan& plan, const MlaTiles& tiles, const LaunchRequest& request,
                       LaunchRecipe& recipe);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What plan_launch hands to an architecture's family.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attnjit/launch.h"
#include "plan/launch/query_tiling.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// The parts that a launch splits the keys into.
struct PartitionChoice {
  std::int32_t partitions = 1;
  /// As many; or 1 where the launch has the device find how long sequences are, and may deal out
  /// stream-K ranges over them. Partitions are then those that have ranges.
  std::int32_t even_parts = 1;
  /// Two CTAs have half of each even part, and join these.
  bool joined = false;
  /// CTAs from one that has a part of a tile to that of the next: where ranges may be dealt out
  /// over sequences, those that share each; else 0.
  std::int32_t team = 0;
  /// Of sm_90a, where the choice compared them: the tiles of a launch that does not split.
  std::optional<LaunchTiles> whole = {};
};

/// A call, with its tensors derived and checked. O is what the attention kernel writes: the
/// caller's, or a workspace.
struct LaunchRequest {
  const LaunchShapes& shapes;
  const LaunchScalars& scalars;
  const std::vector<UserParamShape>& params;
  const DeviceShape& device;
  const LaunchTensors& tensors;
  float scale;
  const PartitionChoice& parts;
  MaskMapShape map;                ///< with all its extents, where the plan walks one
  std::int32_t rows_per_list = 0;  ///< of its blocks, where work tiles have lists of their own
};

inline constexpr std::int64_t kMaxTiles = 1 << 30;

}  // namespace attnjit

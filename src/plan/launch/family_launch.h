// SPDX-License-Identifier: Apache-2.0
// What plan_launch hands to an architecture's family.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attnjit/launch.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// The tiles of a head, counted from its last rows. There are up to three kinds, which follow one
/// another. Each has a group more than the kind before (growth 1), or less (-1).
struct QueryTiling {
  std::int32_t m_tiles = 0;
  std::int32_t tile_groups = 0;   ///< of a tile of the first kind; other consumers have no rows
  std::int32_t first_tiles = 0;   ///< of the first kind
  std::int32_t second_tiles = 0;  ///< of the first and second kind
  std::int32_t growth = 1;
  /// That the busiest CTA takes, in units of what a full tile of three groups takes per key. 0: not
  /// known, for tiles of the first body that are full because a head has many.
  double time = 0;
  /// How CTAs take them: head by head; in pairs of a long and a short tile; or the longest first.
  enum class Order : std::uint8_t { kHeads, kPairs, kLongest } order = Order::kHeads;
  bool operator==(const QueryTiling&) const = default;
};

/// The tiles of a launch, and whether the kernel's small-tile variant computes them.
struct LaunchTiles {
  bool small_tiles = false;
  QueryTiling tiling;
};

/// The parts that a launch splits the keys into.
struct PartitionChoice {
  std::int32_t partitions = 1;
  /// As many; or 1 where the launch has the device find how long sequences are, and may deal out
  /// stream-K ranges over them. Partitions are then those that have ranges. Kernels that cut tiles
  /// do not ask for it: their partitions are the CTAs.
  std::int32_t uniform_splits = 1;
  /// Two CTAs have half of each uniform split, and reduce these.
  bool cluster_reduced = false;
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

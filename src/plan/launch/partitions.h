// SPDX-License-Identifier: Apache-2.0
// How many partitions a launch splits the keys into.
#pragma once

#include <cstdint>
#include <optional>

#include "attnjit/launch.h"
#include "spec/spec_facts.h"

namespace attnjit {

struct PartitionChoice;  // launch/family_launch.h

/// What a GPU's SM does per microsecond.
struct SmRates {
  double alone_bytes = 0;   ///< of K and V that it loads for one CTA while the others idle
  double shared_bytes = 0;  ///< and while all load
  double two_ctas = 1;      ///< how much more it loads for two CTAs than for one
  double flop = 0;          ///< of the products
};

/// The work of a launch.
struct SplitWork {
  std::int64_t tiles = 0;     ///< query tiles, all heads and sequences together
  std::int64_t kv_tiles = 0;  ///< of the longest sequence
  double rows = 0;            ///< of O
  double row_bytes = 0;       ///< of a row of a partition's O
  double kv_tile_bytes = 0;   ///< of K and V
  double tile_flop = 0;       ///< of a query tile's products with a KV tile
  int ctas_per_sm = 1;
};

/// What spec and shapes say of it: `tiles_of_head` query tiles of each of `heads` heads, or groups
/// of heads that share tiles, and KV tiles of `tile_keys`.
SplitWork split_work(const SpecFacts& spec, const LaunchShapes& shapes, std::int64_t tiles_of_head,
                     std::int64_t heads, std::int64_t tile_keys);

/// Microseconds of a merge of up to `parts` parts of a row, of which `bytes` are written and read.
double merge_time(double bytes, std::int64_t parts, const SmRates& rates,
                  const DeviceShape& device);

/// The shapes of a launch as who chooses its partitions is to see them: with the keys that windows
/// and chunks of the mask let a work tile reach, where these are fewer than the longest sequence's.
/// A sequence may be a thousand times as long as what a window shows of it.
LaunchShapes reached_shapes(const KernelPlan& plan, const LaunchShapes& shapes,
                            const LaunchScalars& scalars);

/// The partitions of a launch where the spec says how many; nullopt: the launch chooses.
std::optional<std::int32_t> fixed_partitions(const SpecFacts& spec, const LaunchShapes& shapes);

/// What a launch splits that may deal out stream-K ranges (templates/common/sequence_ranges.cuh) to
/// `workers`, of which `team` share each sequence: ranges, if the device shall find how long each
/// of `batch` sequences is, or `uniform` splits.
PartitionChoice sequence_ranges(const SplitWork& work, const PartitionChoice& uniform,
                                std::int32_t batch, std::int32_t team, std::int32_t workers);

/// The CTAs that may cut tiles, whose parts the workspace has room for (templates/common/cuts.cuh);
/// 1: none is long enough, or there are so many tiles that none is long beside them.
PartitionChoice cut_partitions(const SplitWork& work, const LaunchShapes& shapes, int ctas);

/// The most uniform splits that a launch may choose: their partial O has 256 MiB at most.
std::int64_t most_partitions(const SplitWork& work);

/// The partitions that a launch chooses: those that take the least time.
std::int32_t best_partitions(const SplitWork& work, const SmRates& rates,
                             const DeviceShape& device);

}  // namespace attnjit

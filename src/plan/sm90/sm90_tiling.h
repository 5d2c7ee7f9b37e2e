// SPDX-License-Identifier: Apache-2.0
// How a launch of the sm_90a kernel cuts the query rows of sequences of one length into tiles.
#pragma once

#include <cstdint>

#include "plan/launch/family_launch.h"

namespace attnjit {

/// The rows of a consumer, and of a wgmma.
inline constexpr int kSm90ConsumerRows = 64;

/// The work of a launch, as far as it decides the tiles.
struct Sm90Rows {
  std::int64_t groups = 0;  ///< of a head (or of packed heads): the rows of a consumer each
  std::int64_t heads = 0;   ///< of all sequences
  double keys = 0;          ///< that the last rows see
  double fewer_keys = 0;    ///< that the first rows see less
  bool pair_tiles = false;  ///< later rows see more keys
  int consumers = 0;
  bool small_tiles = false;  ///< the kernel's small-tile variant
  int tile_keys = 1;         ///< of a KV tile
  int ctas = 1;              ///< that run at once; 0: full tiles are wanted
};

/// What other tiles than full ones, or those of the small-tile variant, take at most of the time:
/// the model is no nearer.
inline constexpr double kSm90Worthwhile = 0.98;

/// The tiles that take the least time.
QueryTiling sm90_tiling(const Sm90Rows& rows);

/// QueryTiling::time, without the merge, of full tiles that are dealt out in stream-K ranges,
/// wherever these cut one (templates/common/work_ranges.cuh).
double sm90_stream_k_time(const Sm90Rows& rows);

}  // namespace attnjit

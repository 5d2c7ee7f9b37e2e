// SPDX-License-Identifier: Apache-2.0
// The KV tiles that some rows see, where an expression says of each tile what it shows: those at
// both ends of a walk that it hides are not walked.
#pragma once

#include "common/partitions.cuh"

namespace attnjit {

/// Whether a kernel whose walks are runs of KV tiles asks an expression where these begin and end.
/// The plan says so.
template <class Config>
constexpr bool skips_hidden_tiles() {
  return Config::kSkipsHiddenTiles;
}

/// `at` with the keys of `tiles`, of which there are some. True: none is past the sequence's end.
template <int kTileN>
ATTNJIT_DEVICE bool set_keys(TileCoord& at, KvTiles tiles) {
  const int last_tile = (tiles.end - 1) * kTileN;  // NOTE: end * kTileN may overflow
  const bool whole = at.kv_len - last_tile >= kTileN;
  at.kv_idx = {tiles.begin * kTileN, whole ? last_tile + kTileN - 1 : at.kv_len - 1};
  return whole;
}

/// `tiles` without those at both ends that the mask hides from the rows of `at`, as far as it says
/// so. A thread by itself: threads that ask the same hear the same.
///
/// The tile at an end is asked about, then runs behind it that are twice as long each time, and
/// when one is seen its halves: a mask that hides n tiles is asked 2 log2(n) times, and one that
/// hides none once at each end. NOTE: in one loop for both ends, since what it asks is as long as
/// the mask's expression.
template <int kTileN, class Mask, class Params>
ATTNJIT_DEVICE KvTiles seen_tiles(TileCoord at, KvTiles tiles, const Params& params) {
  bool from_end = true, grows = true;
  int run = 1;
#pragma unroll 1
  while (tiles.begin < tiles.end) {
    const int count = min(run, tiles.end - tiles.begin);
    KvTiles asked{tiles.begin, tiles.begin + count};
    if (from_end) asked = {tiles.end - count, tiles.end};
    set_keys<kTileN>(at, asked);
    if (Mask::tiles(at, params).hi != 0) {
      grows = false;
    } else if (from_end) {
      tiles.end -= count;
    } else {
      tiles.begin += count;
    }
    run = grows ? 2 * run : run / 2;
    if (run > 0) continue;
    if (!from_end) break;
    from_end = false;
    grows = true;
    run = 1;
  }
  return tiles;
}

}  // namespace attnjit

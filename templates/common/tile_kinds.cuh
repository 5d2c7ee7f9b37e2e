// SPDX-License-Identifier: Apache-2.0
// What the work tiles of a batch take whose rows are few, which wait for their keys, and those of
// many rows, which compute.
#pragma once

#include "common/partitions.cuh"

namespace attnjit {

/// Ticks of a KV tile's products with rows that are few, which wait for their keys, and with those
/// of a full tile: measured of both in one launch, on an H200 at depth 128.
constexpr int kFewTicks = 2, kFullTicks = 3;
constexpr float kFullTime = static_cast<float>(kFullTicks) / kFewTicks;

/// Tiles of a head (or of packed heads) of each kind, and the time that they take: in keys of a
/// tile whose rows are few.
template <class Tiling>
struct TileKinds {
  float few_tiles = 0, few_time = 0, full_tiles = 0, full_time = 0;

  /// Adds the tiles of a sequence that has rows.
  template <class Mask, class Arguments, class Params>
  ATTNJIT_DEVICE void add(Lengths lengths, const Arguments& arguments, const Params& params) {
    // Those that the row in the middle sees.
    const int q_idx = lengths.first_q_idx() + lengths.q / 2;
    const KvRange reach = Mask::reach(q_idx, q_idx, lengths.kv, params);
    const float tiles = Tiling::tiles(lengths.q, arguments);
    const float time = tiles * max(reach.end - reach.begin, 0);
    if (Tiling::few_rows(lengths.q)) {
      few_tiles += tiles;
      few_time += time;
    } else {
      full_tiles += tiles;
      full_time += kFullTime * time;
    }
  }
  /// Adds up those of a warp's lanes.
  ATTNJIT_DEVICE void add_lanes() {
    few_tiles = warp_sum(few_tiles);
    few_time = warp_sum(few_time);
    full_tiles = warp_sum(full_tiles);
    full_time = warp_sum(full_time);
  }

  /// Of so many CTAs, those that the longer tiles, of few rows or of many, take: their share of the
  /// time, but as many as end together. A few of a round of their own would be what the other CTAs
  /// wait for. Negative where the tiles of few rows are the longer ones.
  ATTNJIT_DEVICE int ctas_of_longer(int heads, int all) const {
    const bool few_longer = few_time * full_tiles > full_time * few_tiles;
    const float tiles = heads * (few_longer ? few_tiles : full_tiles);
    // NOTE: not `/`, whose exact division is a function that would have registers of its own.
    const float share =
        __fdividef(all * (few_longer ? few_time : full_time), few_time + full_time + 1);
    const float rounds = fmaxf(rintf(__fdividef(tiles, fmaxf(share, 1))), 1);
    const int ctas = min(max(static_cast<int>(ceilf(__fdividef(tiles, rounds))), 1), all - 1);
    return few_longer ? -ctas : ctas;
  }
};

}  // namespace attnjit

// The work of a CTA: which tiles of queries it computes, in which order, over which keys.
#pragma once

#include "common/mask.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// kTileM query rows of one head, and the KV tiles [tile_begin, tile_end) that its mask reaches.
struct WorkTile {
  int batch, head, kv_head;
  int first_row;
  int tile_begin, tile_end;
};

/// Walks a CTA's share of the grid.
///
/// Config::kPairTiles is set where later rows see more keys. A unit of work is then two tiles of
/// one head, the r-th longest and the r-th shortest, so that all units are as long; otherwise it is
/// one tile. A CTA takes every gridDim.x-th unit. A head's units are neighbours, so that CTAs that
/// run together share K and V in L2. Where there are as many CTAs as tiles, each has one, the
/// longest of all heads first.
template <class Config, class Mask, class Arguments, class P>
struct WorkList {
  const Arguments& arguments;
  const P& params;
  int unit;  ///< of `units`
  int units;
  int of_head;  ///< units a head
  bool paired;
  bool second = false;  ///< at the shorter tile of a pair

  ATTNJIT_DEVICE WorkList(const Arguments& launch, const P& user)
      : arguments(launch), params(user), unit(static_cast<int>(blockIdx.x)) {
    paired = Config::kPairTiles && static_cast<int>(gridDim.x) < launch.total_tiles;
    of_head = paired ? launch.m_tiles - launch.m_tiles / 2 : launch.m_tiles;
    units = launch.total_tiles / launch.m_tiles * of_head;
  }

  ATTNJIT_DEVICE bool done() const { return unit >= units; }
  ATTNJIT_DEVICE void advance() {
    if (paired && !second && 2 * (unit % of_head) + 1 < arguments.m_tiles) {
      second = true;
      return;
    }
    second = false;
    unit += static_cast<int>(gridDim.x);
  }

  ATTNJIT_DEVICE WorkTile tile() const {
    WorkTile work;
    int of_heads, rank;  // the rank among a head's tiles, the last rows first
    if (Config::kPairTiles && !paired) {
      const int heads = arguments.total_tiles / arguments.m_tiles;
      rank = unit / heads;
      of_heads = unit - rank * heads;
    } else {
      of_heads = unit / of_head;
      rank = unit - of_heads * of_head;
      if (second) rank = arguments.m_tiles - 1 - rank;
    }
    const int m_tile = arguments.m_tiles - 1 - rank;
    work.batch = of_heads / arguments.num_q_heads;
    work.head = of_heads - work.batch * arguments.num_q_heads;
    work.kv_head = work.head / Config::kGroup;
    work.first_row = m_tile * Config::kTileM;
    const int last_row = min(work.first_row + Config::kTileM, arguments.q_len) - 1;
    const int shift = arguments.kv_len - arguments.q_len;
    const KvRange reach =
        Mask::reach(work.first_row + shift, last_row + shift, arguments.kv_len, params);
    work.tile_begin = reach.empty() ? 0 : reach.begin / Config::kTileN;
    // NOTE: rounds up without forming end + kTileN, which may overflow.
    work.tile_end = reach.empty() ? 0 : (reach.end - 1) / Config::kTileN + 1;
    return work;
  }
};

}  // namespace attnjit::sm90

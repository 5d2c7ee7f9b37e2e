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

/// Walks a CTA's share of the grid: every gridDim.x-th tile. A head's tiles are neighbours, so that
/// CTAs that run together share K and V in L2; the last rows, the longest under a causal mask, come
/// first.
template <class Config, class Mask, class Arguments, class P>
struct WorkList {
  const Arguments& arguments;
  const P& params;
  int index;

  ATTNJIT_DEVICE WorkList(const Arguments& launch, const P& user)
      : arguments(launch), params(user), index(static_cast<int>(blockIdx.x)) {}

  ATTNJIT_DEVICE bool done() const { return index >= arguments.total_tiles; }
  ATTNJIT_DEVICE void advance() { index += static_cast<int>(gridDim.x); }

  ATTNJIT_DEVICE WorkTile tile() const {
    WorkTile work;
    const int of_heads = index / arguments.m_tiles;
    const int m_tile = arguments.m_tiles - 1 - (index - of_heads * arguments.m_tiles);
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

// The work of a CTA: which tiles of queries it computes, in which order, over which keys.
#pragma once

#include "common/mask.cuh"
#include "sm100/layout.cuh"

namespace attnjit::sm100 {

/// The query tiles of a CTA: num_qo times 128 rows of one head, or of one group of heads, and the
/// KV tiles [tile_begin, tile_end) that their mask reaches, which are walked from the last to the
/// first: those that a causal mask cuts come first.
struct WorkTile {
  int batch, head, kv_head;  ///< head: the group's first where heads are fused
  int first_position;
  int tile_begin, tile_end;

  ATTNJIT_DEVICE int tiles() const { return max(tile_end - tile_begin, 0); }
};

/// KV tiles of a warpgroup: all of them, or with one query tile every other one.
ATTNJIT_DEVICE int steps_of(int tiles, int warpgroup, int num_qo) {
  return num_qo == 2 ? tiles : (tiles + 1 - warpgroup) >> 1;
}

/// Walks a CTA's share of the grid: every gridDim.x-th tile. Heads come in sections whose keys and
/// values fit L2 together; within a section the last queries, the longest under a causal mask, come
/// first, and its heads follow one another.
template <class Config, class Mask, class Arguments, class P>
struct WorkList {
  const Arguments& arguments;
  const P& params;
  int num_qo;
  int index;

  ATTNJIT_DEVICE WorkList(const Arguments& launch, const P& user, int query_tiles = Config::kNumQo)
      : arguments(launch), params(user), num_qo(query_tiles), index(static_cast<int>(blockIdx.x)) {}

  ATTNJIT_DEVICE bool done() const { return index >= arguments.total_tiles; }
  ATTNJIT_DEVICE void advance() { index += static_cast<int>(gridDim.x); }

  ATTNJIT_DEVICE WorkTile tile() const {
    using L = Layout<Config>;
    WorkTile work;
    const int section_tiles = arguments.section_heads * arguments.m_tiles;
    const int section = index / section_tiles;
    const int in_section = index - section * section_tiles;
    const int first = section * arguments.section_heads;
    const int heads_here = min(arguments.section_heads, arguments.total_heads - first);
    const int rank = in_section / heads_here;
    const int item = first + in_section - rank * heads_here;
    const int heads = arguments.num_q_heads / L::kFused;
    work.batch = item / heads;
    work.head = (item - work.batch * heads) * L::kFused;
    work.kv_head = work.head / Config::kGroup;
    const int positions = num_qo * L::kPositions;
    work.first_position = (arguments.m_tiles - 1 - rank) * positions;
    const int last = min(work.first_position + positions, arguments.q_len) - 1;
    const int shift = arguments.kv_len - arguments.q_len;
    const KvRange reach =
        Mask::reach(work.first_position + shift, last + shift, arguments.kv_len, params);
    work.tile_begin = reach.empty() ? 0 : reach.begin / Config::kTileN;
    // NOTE: rounds up without forming end + kTileN, which may overflow.
    work.tile_end = reach.empty() ? 0 : (reach.end - 1) / Config::kTileN + 1;
    return work;
  }
};

}  // namespace attnjit::sm100

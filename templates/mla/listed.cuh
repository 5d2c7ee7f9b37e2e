// SPDX-License-Identifier: Apache-2.0
// Lists of keys (topk): the rows of the pool that a position's list names, and what is said in
// shared memory of those that it hides.
#pragma once

#include "common/sequence_tiles.cuh"
#include "mla/layout.cuh"

namespace attnjit::mla {

/// With lists every position has as many keys as a list has places, however long its sequence is.
/// The tiles of a part of absorbed MLA read the same keys; with lists those of a position do.
template <class Config>
struct ListTiling : SequenceTiling<Config> {
  static constexpr bool kKvLens = Config::kTopk == 0;
  static constexpr bool kPartsOutside = !Config::kSeparateV;
};

/// Finds the rows that a list names. A place of the list is a key.
template <class Config, class Mask, class Arguments>
struct ListedRows {
  /// What a list names.
  ATTNJIT_DEVICE static int word_of(int key, const WorkTile& work, const Arguments& arguments) {
    return arguments.topk_indices[first_of(work, arguments) + key];
  }
  /// Fetches what a work tile's list names to L2. One of four warps.
  ATTNJIT_DEVICE static void fetch_words(const WorkTile& work, const Arguments& arguments, int warp,
                                         int lane) {
    constexpr int kWords = 8;  // of 32 bytes
    const i64 first = first_of(work, arguments);
#pragma unroll 1
    for (int key = work.tile_begin * Config::kTileN + kWords * (32 * warp + lane);
         key < work.tile_end * Config::kTileN; key += kWords * 32 * kRowCopyWarps) {
      prefetch_l2(arguments.topk_indices + first + key);
    }
  }
  /// The row of the pool; -1 where the list hides the key. NOTE: so it does with rows that the pool
  /// has not: what lists hold is not known on the host.
  ATTNJIT_DEVICE static int place_of_word(int row, const Arguments& arguments) {
    const bool in_pool = page_of(row) < static_cast<u32>(arguments.num_pages);
    return row >= 0 && in_pool ? row : -1;
  }
  ATTNJIT_DEVICE static i64 offset_of(int, int place, const Arguments& arguments) {
    return page_of(place) * arguments.k_page_bytes +
           static_cast<u32>(place) % Config::kPoolPageSize * arguments.k_row_bytes;
  }

 private:
  ATTNJIT_DEVICE static i64 first_of(const WorkTile& work, const Arguments& arguments) {
    const int position = work.first_row >> Config::kGqaShift;
    i64 list = work.q_begin + position;
    if constexpr (!Config::kRagged) list += static_cast<i64>(work.batch) * arguments.q_len;
    return list * Config::kTopk;
  }
  /// NOTE: unsigned: a product with the sign takes two registers that upcasting has not.
  ATTNJIT_DEVICE static u32 page_of(int row) {
    return static_cast<u32>(row) / Config::kPoolPageSize;
  }
};

/// Which of a tile's keys a list shows: a bit each.
struct ListedKeys {
  u32 low = ~0u;   ///< of keys 0 to 31
  u32 high = ~0u;  ///< of the others
  ATTNJIT_DEVICE bool all() const { return (low & high) == ~0u; }
};

/// What a warp that copies says of its rows of a tile, before the tile's first block is full.
/// `place`: of the lane's row.
template <class Config>
ATTNJIT_DEVICE void store_listed(const TileMemory<Config>& smem, int stage, int warp, int lane,
                                 int place) {
  constexpr int kRows = Config::kTileN / kRowCopyWarps;
  const u32 shown = __ballot_sync(0xffffffffu, place >= 0) & low_bits(kRows);
  if (lane == 0) {
    store_shared_word(smem.listed(stage) + 4 * warp, shown);
    mbarrier_arrive(smem.kv_full(stage, TileMemory<Config>::Tiles::block_at(0)));
  }
  __syncwarp();
}

/// What was said of a tile, for a converged warp that has waited for its first block. NOTE: lane 0
/// alone reads, because it is lane 0 that releases the memory.
template <class Config>
ATTNJIT_DEVICE ListedKeys load_listed(const TileMemory<Config>& smem, int stage, int lane) {
  static_assert(kRowCopyWarps == 4 && Config::kTileN == 64, "four words of 16 rows");
  u32 words[4] = {};
  if (lane == 0) load_shared_v4(smem.listed(stage), words);
  return {__shfl_sync(0xffffffffu, words[0] | words[1] << 16, 0),
          __shfl_sync(0xffffffffu, words[2] | words[3] << 16, 0)};
}

}  // namespace attnjit::mla

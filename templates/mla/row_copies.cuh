// SPDX-License-Identifier: Apache-2.0
// Copies of K, and of V of its own, row by row: where rows lie, in pages or by lists, and how they
// are copied.
#pragma once

#include "mla/listed.cuh"

namespace attnjit::mla {

/// Finds the rows of a sequence in its pages.
template <class Config, class Mask, class Arguments>
struct PagedRows {
  /// What the page table has of a key; -1 past the sequence's end, and before all that is seen.
  ATTNJIT_DEVICE static int word_of(int key, const WorkTile& work, const Arguments& arguments) {
    return page_of<Config>(
        key, 1, [&](int first, int count) { return may_see<Mask>(work, first, count); }, work,
        arguments);
  }
  ATTNJIT_DEVICE static void fetch_words(const WorkTile&, const Arguments&, int, int) {}
  /// The page; -1 where there is none.
  ATTNJIT_DEVICE static int place_of_word(int page, const Arguments& arguments) {
    return page < arguments.num_pages ? page : -1;
  }
  ATTNJIT_DEVICE static i64 offset_of(int key, int place, const Arguments& arguments) {
    return place * arguments.k_page_bytes + key % Config::kPageSize * arguments.k_row_bytes;
  }
  ATTNJIT_DEVICE static i64 offset_in_v(int key, int place, const Arguments& arguments) {
    return place * arguments.v_page_bytes + key % Config::kPageSize * arguments.v_row_bytes;
  }
};

/// Copies of KV tiles row by row, where a page does not hold whole boxes of TMA, or lists name the
/// rows. One of the producer's four warps, or of the two that have K or V: a lane finds where a row
/// of a tile lies, and eight lanes copy a row of a block of columns, 16 bytes each, by cp.async
/// into the place where TMA would have put them. Rows past the sequence's end become zeros.
///
/// NOTE: cp.async writes through the generic proxy. A consumer that has waited for a block fences
/// before it multiplies.
template <class Config, class Mask, class Arguments>
struct RowCopies {
  using Tiles = TilesOf<Config>;
  using Rows = Either<(Config::kTopk > 0), ListedRows<Config, Mask, Arguments>,
                      PagedRows<Config, Mask, Arguments>>;
  static constexpr int kRows = Config::kTileN / kTileCopyWarps<Config>;  // of a tile, a warp's

  const TileMemory<Config>& smem;
  const Arguments& arguments;
  int warp;  ///< of those that share a tile
  int lane;
  Ring ring = {};
  WorkTile work = {};

  ATTNJIT_DEVICE void begin(const WorkTile& tile) { work = tile; }

  /// Key of the lane's row.
  ATTNJIT_DEVICE int key_of(int tile) const {
    return tile * Config::kTileN + warp * kRows + min(lane, kRows - 1);
  }
  /// What is read to find the lane's row, and where that is; -1 where there is none.
  ATTNJIT_DEVICE int word_of(int tile) const {
    return Rows::word_of(key_of(tile), work, arguments);
  }
  ATTNJIT_DEVICE void fetch_words() const { Rows::fetch_words(work, arguments, warp, lane); }
  ATTNJIT_DEVICE int place_of_word(int word) const { return Rows::place_of_word(word, arguments); }
  ATTNJIT_DEVICE int place_of(int tile) const { return place_of_word(word_of(tile)); }

  /// Where the lane's row begins in K; -1 where there is none.
  ATTNJIT_DEVICE i64 offset_of(int tile, int place) const {
    return place < 0 ? -1 : Rows::offset_of(key_of(tile), place, arguments);
  }

  /// Where a lane's parts of the rows begin that it copies; null: zeros.
  using Sources = const unsigned char * [kRows / 4];

  /// Eight lanes have a row, 16 bytes of a block of columns each. `offset`: of the row in `tensor`
  /// that the lane has found.
  ATTNJIT_DEVICE void aim(Sources& sources, const unsigned char* tensor, i64 offset) const {
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const i64 own = __shfl_sync(0xffffffffu, offset, 4 * i + lane / 8);
      sources[i] = own < 0 ? nullptr : tensor + own + lane % 8 * 16;
    }
  }

  /// Copies a block of columns, of each row those of 16 bits from `column` on, when its place is
  /// free. `first`: of the tile.
  ATTNJIT_DEVICE void copy_block(const Sources& sources, int block, int column, bool first,
                                 int place) const {
    smem.wait(smem.kv_empty(Tiles::stage_before(ring.stage), block),
              Tiles::parity_before(ring.stage, ring.parity));
    if constexpr (Config::kTopk > 0) {
      if (first) store_listed<Config>(smem, ring.stage, warp, lane, place);
    }
    const u32 data = smem.kv(ring.stage, block) + warp * kRows * kBlockRowBytes;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int row = 4 * i + lane / 8;
      copy_16_or_zeros(data + row * kBlockRowBytes + ((lane % 8 ^ row % 8) << 4),
                       sources[i] + 2 * column, sources[i] != nullptr);
    }
    arrive_after_copies(smem.kv_full(ring.stage, block));
  }

  /// Copies a tile: of V of its own, or of K.
  template <bool kIsV = false>
  ATTNJIT_DEVICE void load(int tile, int place) {
    if constexpr (kIsV) return load_v(tile, place);
    const unsigned char* tensor = arguments.k;
    if constexpr (Config::kSeparateV)
      tensor += kv_head_of<Config>(work.head) * arguments.k_head_bytes;
    Sources sources;
    aim(sources, tensor, offset_of(tile, place));
    // NOTE: unrolled, ptxas spilled 8 bytes at each block in pages of one row and of two. Lists
    // took 4 % more time as a loop.
#pragma unroll(Config::kTopk > 0 ? Tiles::kQkBlocks : 1)
    for (int i = 0; i < Tiles::kQkBlocks; ++i) {
      const int block = Tiles::block_at(i);
      copy_block(sources, block, block * kBlockColumns, i == 0, place);
    }
    if constexpr (!Config::kSeparateV || Config::kLoadsApart) ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_v(int tile, int place) {
    const i64 offset = place < 0 ? -1 : Rows::offset_in_v(key_of(tile), place, arguments);
    Sources sources;
    aim(sources, arguments.v + kv_head_of<Config>(work.head) * arguments.v_head_bytes, offset);
#pragma unroll
    for (int block = 0; block < Tiles::kOvBlocks; ++block) {
      copy_block(sources, Tiles::kFirstOfV + block, block * kBlockColumns, false, place);
    }
    ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void finish_tail() const {}
};

}  // namespace attnjit::mla

// SPDX-License-Identifier: Apache-2.0
// Copies of K and V row by row, where a page does not hold whole boxes of TMA.
#pragma once

#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// One of the producer's four warps. A lane finds where one row of a tile lies; eight lanes copy a
/// row of a block of columns, 16 bytes each, by cp.async into the place where TMA would have put
/// them. Rows past the sequence's end become zeros, so that V needs no other care there.
///
/// NOTE: cp.async writes through the generic proxy. A consumer that has waited for a tile fences
/// before it multiplies (Consumer::await_k).
template <class Config, class Arguments>
struct RowCopies {
  using Layout = LayoutOf<Config>;
  static constexpr int kRows = Config::kTileN / kRowCopyWarps;  // of a tile, a warp's
  static_assert(Config::kTileN % (4 * kRowCopyWarps) == 0 && kRows <= 32,
                "a lane finds a row, and four rows are copied at a time");

  const Smem<Config>& smem;
  const Arguments& arguments;
  int warp;
  int lane;
  Ring k_ring = {};
  Ring v_ring = {};
  WorkTile work = {};
  int kv_head = 0;

  /// Goes on to the next work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    work = tile;
    kv_head = work.head / Config::kGroup;
  }

  /// Key of the lane's row.
  ATTNJIT_DEVICE int key_of(int tile) const {
    return tile * Config::kTileN + warp * kRows + min(lane, kRows - 1);
  }

  /// The page of the lane's row; -1 where there is none.
  ATTNJIT_DEVICE int place_of(int tile) const {
    const int page = page_of<Config>(key_of(tile), work, arguments);
    return page < arguments.num_pages ? page : -1;
  }

  /// Copies the warp's rows of a tile of kDepth columns to `data`, when the stage is free; `full`
  /// hears of it.
  template <int kDepth>
  ATTNJIT_DEVICE void load_kv(Ring& ring, u32 data, const unsigned char* tensor, i64 page_bytes,
                              i64 row_bytes, u32 full, u32 empty, int tile, int place) {
    smem.wait(empty, ring.parity ^ 1);
    const i64 offset =
        place < 0 ? -1 : place * page_bytes + key_of(tile) % Config::kPageSize * row_bytes;
#pragma unroll 1
    for (int first = 0; first < kRows; first += 4) {
      const i64 row_offset = __shfl_sync(0xffffffffu, offset, first + lane / 8);
      const int row = warp * kRows + first + lane / 8;
      const u32 to = data + row * kBlockRowBytes + ((lane % 8 ^ row % 8) << 4);
#pragma unroll
      for (int block = 0; block < ceil_div(kDepth, kBlockColumns); ++block) {
        const int column = block * kBlockColumns + lane % 8 * 8;
        const bool there = row_offset >= 0 && column < kDepth;
        copy_16_or_zeros(to + block * Layout::kKvBlockBytes,
                         there ? tensor + row_offset + 2 * column : tensor, there);
      }
    }
    arrive_after_copies(full);
    ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_k(int tile, int place) {
    const int stage = k_ring.stage;
    load_kv<Config::kQkDepth>(k_ring, smem.k(stage), arguments.k + kv_head * arguments.k_head_bytes,
                              arguments.k_page_bytes, arguments.k_row_bytes, smem.k_full(stage),
                              smem.k_empty(stage), tile, place);
  }
  ATTNJIT_DEVICE void load_v(int tile, int place) {
    const int stage = v_ring.stage;
    load_kv<Config::kOvDepth>(v_ring, smem.v(stage), arguments.v + kv_head * arguments.v_head_bytes,
                              arguments.v_page_bytes, arguments.v_row_bytes, smem.v_full(stage),
                              smem.v_empty(stage), tile, place);
  }
  /// Ends a work tile; ends all.
  ATTNJIT_DEVICE void finish() const {}
  ATTNJIT_DEVICE void end() const {}
};

}  // namespace attnjit::sm90

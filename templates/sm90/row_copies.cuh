// SPDX-License-Identifier: Apache-2.0
// Copies of K and V row by row, where a page does not hold whole boxes of TMA.
#pragma once

#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// One of the producer's four warps, or its only one where the others rewrite what comes. A lane
/// finds where rows of a tile lie, one of each 32; eight lanes, or four, copy a row of a block of
/// columns, 16 bytes each, by cp.async into the place where TMA would have put them. Rows past the
/// sequence's end, and those that no row sees, become zeros, so that V needs no other care there.
///
/// NOTE: cp.async writes through the generic proxy. A consumer that has waited for a tile fences
/// before it multiplies (Consumer::await_k); who rewrites rows reads them through that proxy.
template <class Config, class Arguments>
struct RowCopies {
  using Layout = LayoutOf<Config>;
  static constexpr int kWarps = Layout::kHasRawTiles ? 1 : kRowCopyWarps;
  static constexpr int kRows = Config::kTileN / kWarps;           // of a tile, a warp's
  static constexpr int kPlaces = ceil_div(kRows, 32);             // of them a lane's
  static constexpr int kRowLanes = Layout::kCopiedRowBytes / 16;  // that copy a row of a block
  static constexpr int kTogether = 32 / kRowLanes;
  static_assert(Config::kTileN % (kTogether * kWarps) == 0 && (kRows <= 32 || kRows % 32 == 0),
                "lanes find rows, and some rows are copied at a time");
  static constexpr int kElements = 16 / Layout::kCopiedElementBytes;  // that a lane copies

  /// The pages of a lane's rows of a tile, as the table has them; -1 where there is none. NOTE:
  /// nothing looks at them before the rows are copied: a warp would wait for the table.
  struct Place {
    int pages[kPlaces];
  };

  const Smem<Config>& smem;
  const Arguments& arguments;
  int warp;
  int lane;
  Ring k_ring = {};      ///< of the tiles that are multiplied
  Ring raw_k_ring = {};  ///< where K is upcast, of its raw tiles
  Ring v_ring = {};
  WorkTile work = {};
  int kv_head = 0;

  /// Goes on to the next work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    work = tile;
    kv_head = work.head / Config::kGroup;
  }

  /// Key of the lane's row of the i-th 32.
  ATTNJIT_DEVICE int key_of(int tile, int i) const {
    return tile * Config::kTileN + warp * kRows + 32 * i + min(lane, kRows - 1);
  }

  /// `sees(key, count)`: whether a row may see one of these keys.
  template <class Sees>
  ATTNJIT_DEVICE Place place_of(int tile, const Sees& sees) const {
    Place place;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      place.pages[i] = page_of<Config>(key_of(tile, i), 1, sees, work, arguments);
    }
    return place;
  }

  /// Copies the warp's rows of a tile of kDepth columns to `data`, when the stage is free; `full`
  /// hears of it.
  template <class Copies, int kDepth>
  ATTNJIT_DEVICE void load_kv(Ring& ring, const unsigned char* tensor, i64 page_bytes,
                              i64 row_bytes, int tile, Place place) {
    const u32 data = Copies::data(smem, ring.stage), full = Copies::full(smem, ring.stage);
    smem.wait(Copies::empty(smem, ring.stage), ring.parity ^ 1);
    if (Copies::kRaw && lane == 0) {
      Copies::publish(smem, ring.stage,
                      max(1, min(work.kv_len - tile * Config::kTileN, Config::kTileN)), work,
                      kv_head, tile, arguments);
      // NOTE: copies arrive when they are there, which says nothing of this store.
      mbarrier_arrive(full);
    }
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int page = place.pages[i];
      const bool is_page = static_cast<u32>(page) < static_cast<u32>(arguments.num_pages);
      const i64 offset =
          is_page ? page * page_bytes + key_of(tile, i) % Config::kPageSize * row_bytes : -1;
// NOTE: two at a time, for the time of a shuffle; with four the producer would spill.
#pragma unroll 2
      for (int first = 0; first < min(kRows, 32); first += kTogether) {
        const i64 row_offset = __shfl_sync(0xffffffffu, offset, first + lane / kRowLanes);
        const int row = warp * kRows + 32 * i + first + lane / kRowLanes;
        const u32 to = data + row * Layout::kCopiedRowBytes +
                       ((lane % kRowLanes ^ (kRowLanes == 8 ? row : row / 2) % kRowLanes) << 4);
#pragma unroll
        for (int block = 0; block < ceil_div(kDepth, Layout::kCopiedColumns); ++block) {
          const int column = block * Layout::kCopiedColumns + lane % kRowLanes * kElements;
          const bool there = row_offset >= 0 && column < kDepth;
          copy_16_or_zeros(
              to + block * Layout::kCopiedBlockBytes,
              there ? tensor + row_offset + Layout::kCopiedElementBytes * column : tensor, there);
        }
      }
    }
    arrive_after_copies(full);
    ring.advance(Copies::kStages);
  }
  ATTNJIT_DEVICE void load_k(int tile, Place place) {
    Ring& ring = Config::kUpcastsKv ? raw_k_ring : k_ring;
    load_kv<CopiesOf<Config, true>, Config::kQkDepth>(
        ring, arguments.k + kv_head * arguments.k_head_bytes, arguments.k_page_bytes,
        arguments.k_row_bytes, tile, place);
    // A list's descriptors lie with the stages of K (sm90/tile_descriptors.cuh).
    if constexpr (Config::kUpcastsKv) k_ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_v(int tile, Place place) {
    load_kv<CopiesOf<Config, false>, Config::kOvDepth>(
        v_ring, arguments.v + kv_head * arguments.v_head_bytes, arguments.v_page_bytes,
        arguments.v_row_bytes, tile, place);
  }
  /// Ends a work tile.
  ATTNJIT_DEVICE void finish() const {}
  /// After the last tile: publishes the end to who rewrites rows.
  ATTNJIT_DEVICE void end() const {
    if constexpr (Config::kUpcastsKv) end_raw_tiles<RawTilesOf<Config, true>>(raw_k_ring);
    if constexpr (Layout::kHasRawTiles) end_raw_tiles<RawTilesOf<Config, false>>(v_ring);
  }

 private:
  template <class Rows>
  ATTNJIT_DEVICE void end_raw_tiles(const Ring& ring) const {
    if (lane == 0) Rows::end(smem, ring);
    // Each lane arrives for a tile, and the first once more. NOTE: none before there is room: until
    // then it might be the tile's before.
    __syncwarp();
    mbarrier_arrive(Rows::full(smem, ring.stage));
  }
};

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// The upcasting warps: K and V of e4m3, from global memory by way of registers to the 16-bit tiles
// that the products read.
#pragma once

#include "common/eight_bits.cuh"
#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// A tile of K (kIsK) or V on its way through the registers of the upcasting warps, which have its
/// rows in equal parts. Four lanes have a row's part of a block of columns, 16 e4m3 each,
/// and store it as TMA would have put its 16 bits.
///
/// NOTE: eight lanes that store together have two neighbouring rows, whose 16 bytes the swizzle
/// puts into different banks.
template <class Config, bool kIsK>
struct NarrowTile {
  using Layout = LayoutOf<Config>;
  static constexpr int kRows = Config::kTileN / Config::kUpcastWarps;  // of a warp
  static constexpr int kSteps = kRows / 8;
  static_assert(kSteps * 8 == kRows, "a warp has whole periods of the swizzle");
  static constexpr int kDepth = kIsK ? Config::kQkDepth : Config::kOvDepth;
  static constexpr int kBlocks = kIsK ? Layout::kQkBlocks : Layout::kOvBlocks;
  static constexpr bool kBf16 = (kIsK ? Layout::kOperand : Layout::kPvOperand) == MmaOperand::kBf16;

  u32 words[kSteps][kBlocks][4];

  /// Begins to load a tile, of whose rows the lane knows where one is. Columns past the depth
  /// become zeros.
  ATTNJIT_DEVICE void fetch(const unsigned char* lane_row, int lane) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const unsigned char* const from =
          reinterpret_cast<const unsigned char*>(
              __shfl_sync(0xffffffffu, reinterpret_cast<u64>(lane_row), 8 * step + lane / 4)) +
          lane % 4 * 16;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int column = block * Layout::kColumns;
        if (column + Layout::kColumns <= kDepth) {
          load_global_v4(from + column, words[step][block]);
        } else {
          load_global_v4_or_zeros(from + column, column + lane % 4 * 16 < kDepth,
                                  words[step][block]);
        }
      }
    }
  }

  /// Upcasts what was loaded, when its stage is free.
  ATTNJIT_DEVICE void store(const Smem<Config>& smem, const KvTile<Config, kIsK>& tile,
                            int warp) const {
    // NOTE: read again, so that what follows from it is not kept in registers over all tiles: of
    // some kernels it would be spilled.
    const int lane = lane_id();
    const u32 place = Layout::swizzled(warp * kRows + lane / 4, 2 * (lane % 4));
    tile.acquire(smem, 0);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const u32 to = tile.block(block) + place;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        store_upcast<kBf16>(to, static_cast<u32>(8 * step * Layout::kRowBytes), words[step][block]);
      }
    }
    // NOTE: the tensor cores read through the async proxy what threads wrote through the generic
    // one.
    fence_proxy_async_shared();
    arrive_warp(tile.full(0));
  }
};

/// Where a lane's row of a KV tile is in K and V.
struct NarrowRow {
  const unsigned char *k, *v;
};

/// Finds where the rows of a work tile's keys are, one of each KV tile for a lane.
template <class Config, class Mask, class Arguments>
struct NarrowRows {
  using Layout = LayoutOf<Config>;
  const Arguments& arguments;
  const WorkTile& work;
  const int* pages;  ///< the sequence's
  NarrowRow first;   ///< of the sequence, or of the first page
  KvTiles all;
  int own;        ///< which row of a tile
  int first_key;  ///< no row of the work tile sees one before it

  ATTNJIT_DEVICE NarrowRows(const Arguments& launch, const WorkTile& tile, int lane_row,
                            int first_seen)
      : arguments(launch), work(tile), all(tile.all()), own(lane_row), first_key(first_seen) {
    first.k = arguments.k + work.kv_head * arguments.k_head_bytes;
    first.v = arguments.v + work.kv_head * arguments.v_head_bytes;
    if constexpr (Layout::kPaged) {
      pages = arguments.page_table + static_cast<i64>(work.batch) * arguments.max_pages;
    } else {
      const int sequence = Config::kRaggedKv ? 0 : work.batch;
      first.k += sequence * arguments.k_page_bytes + work.kv_begin * arguments.k_row_bytes;
      first.v += sequence * arguments.v_page_bytes + work.kv_begin * arguments.v_row_bytes;
    }
  }

  /// A key, and where there are pages its page.
  struct Place {
    int key, page;
  };

  /// The lane's of the tile that is walked as the `rank`-th. NOTE: behind the sequence's end it is
  /// the last key's, and before all that rows see the first one's that they see: P is 0 for what is
  /// upcast of it, which must not be NaN, as what lies there may be.
  ATTNJIT_DEVICE Place place(int rank) const {
    const int place = all.end - 1 - rank;
    int key = min(tile_at<Config>(work, place, arguments) * Config::kTileN + own, work.kv_len - 1);
    if constexpr (!Mask::kFromZero) {
      key = max(key, seen_from_key<Config, Mask>(first_key, work, place, arguments));
    }
    return {key, Layout::kPaged ? pages[key / Config::kPageSize] : 0};
  }

  ATTNJIT_DEVICE NarrowRow row(Place place) const {
    if constexpr (Layout::kPaged) {
      // Others have no memory.
      const int page = min(max(place.page, 0), arguments.num_pages - 1);
      const int in_page = place.key % Config::kPageSize;
      return {first.k + page * arguments.k_page_bytes + in_page * arguments.k_row_bytes,
              first.v + page * arguments.v_page_bytes + in_page * arguments.v_row_bytes};
    } else {
      return {first.k + place.key * arguments.k_row_bytes,
              first.v + place.key * arguments.v_row_bytes};
    }
  }
};

/// One of the upcasting warps: K and V of every work tile, in the order of the products
/// (sm100/mma.cuh). While a tile is upcast, the next ones of its kind and of the other are on
/// their way, and the rows of the tile after those are brought to L2.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void upcast(const Smem<Config>& smem, const Arguments& arguments,
                           const Params& params, int warp) {
  using Layout = LayoutOf<Config>;
  using Keys = NarrowTile<Config, true>;
  using Values = NarrowTile<Config, false>;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  Keys keys;
  Values values;

  for (SchedulerOf<true, Config, Mask, Arguments, Params> list(smem, arguments, params);
       !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    const NarrowRows<Config, Mask, Arguments> rows(arguments, work,
                                                   warp * Keys::kRows + min(lane, Keys::kRows - 1),
                                                   first_key_of<Config, Mask>(work, params));
    const int tiles = rows.all.count();
    if (tiles == 0) continue;
    const int ahead = work.num_qo == 1 ? 1 : 0;  // K tiles, of V
    // Of the rank-th tile, the next one, and where the one after that is: a page is known before
    // its row is asked for.
    NarrowRow row = rows.row(rows.place(0));
    NarrowRow next = rows.row(rows.place(min(1, tiles - 1)));
    auto place = rows.place(min(2, tiles - 1));
    keys.fetch(row.k, lane);
    values.fetch(row.v, lane);
#pragma unroll 1
    for (int rank = 0; rank < tiles + ahead; ++rank) {
      const NarrowRow after = rows.row(place);
      place = rows.place(min(rank + 3, tiles - 1));
      if (rank + 2 < tiles && lane < Keys::kRows) {
        prefetch_l2(after.k, Config::kQkDepth);
        prefetch_l2(after.v, Config::kOvDepth);
      }
      if (rank < tiles) {
        keys.store(smem, kv.template next<true>(), warp);
        if (rank + 1 < tiles) keys.fetch(next.k, lane);
      }
      if (rank >= ahead) {
        values.store(smem, kv.template next<false>(), warp);
        if (rank + 1 < tiles + ahead) values.fetch(ahead == 1 ? row.v : next.v, lane);
      }
      row = next;
      next = after;
    }
  }

  // The CTA's memory stays until the products have read, and their barriers have heard of, all.
#pragma unroll 1
  for (int i = 0; i < kv.stages; ++i) {
    kv.template next<true>().acquire(smem, 0);
    if constexpr (!Config::kFusedKv) kv.template next<false>().acquire(smem, 0);
  }
}

}  // namespace attnjit::sm100

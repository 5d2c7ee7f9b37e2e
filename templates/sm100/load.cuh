// SPDX-License-Identifier: Apache-2.0
// The load warp's thread: Q, K and V of every work tile by TMA, as far ahead as the stages allow.
// Where K and V are copied row by row it is the whole warp.
#pragma once

#include "common/launch_control.cuh"
#include "sm100/row_copies.cuh"

namespace attnjit::sm100 {

/// Loads a block of columns of 128 rows of Q, from `column` on.
template <class Config, class Arguments>
ATTNJIT_DEVICE void load_q_block(const Arguments& arguments, const TensorMap* map,
                                 const WorkTile& work, int tile, int column, u32 destination,
                                 u32 barrier) {
  using Layout = LayoutOf<Config>;
  const int position = work.first_position + tile * Layout::kTileStep;
  const int row = work.q_begin + position;
  // NOTE: ragged: rows past the sequence's end are the next one's. Nothing is made of them.
  if constexpr (Config::kRagged && Config::kFuseGqa) {
    tma_load_4d<Layout::kPair>(destination, map, barrier, column, 0, work.kv_head, row,
                               kEvictFirst);
  } else if constexpr (Config::kRagged) {
    tma_load_3d<Layout::kPair>(destination, map, barrier, column, work.head, row, kEvictFirst);
  } else if constexpr (Config::kFuseGqa) {
    tma_load_5d<Layout::kPair>(destination, map, barrier, column, 0, work.kv_head, position,
                               work.batch, kEvictFirst);
  } else {
    tma_load_4d<Layout::kPair>(destination, map, barrier, column, work.head, position, work.batch,
                               kEvictFirst);
  }
}

/// Loads a chunk of a query tile, and lets its barrier know.
template <class Config, class Arguments>
ATTNJIT_DEVICE void load_q_chunk(const Smem<Config>& smem, const Arguments& arguments,
                                 const WorkTile& work, int tile, int chunk) {
  using Layout = LayoutOf<Config>;
  const u32 full = smem.q_full(tile, chunk);
  constexpr int kRopeBytes = Layout::kSeparateRope ? Layout::kBoxQRows * kBlockRowBytes : 0;
  smem.template expect_bytes<false>(
      full, Layout::kChunkBlocks * Layout::kBoxQRows * Layout::kRowBytes + kRopeBytes);
#pragma unroll
  for (int i = 0; i < Layout::kChunkBlocks; ++i) {
    const int block = chunk * Layout::kChunkBlocks + i;
    load_q_block<Config>(arguments, arguments.q_map, work, tile, block * Layout::kColumns,
                         smem.q(tile) + static_cast<u32>(block * Layout::kQBlockBytes),
                         smem.template hearing<false>(full));
  }
  if constexpr (Layout::kSeparateRope) {
    load_q_block<Config>(arguments, arguments.q_rope_map, work, tile, 0, smem.q_rope(tile), full);
  }
}

/// Zeroes the rows of the query tiles that no box brings: a product reads them. One warp.
template <class Config>
ATTNJIT_DEVICE void clear_spare_rows(const Smem<Config>& smem) {
  using Layout = LayoutOf<Config>;
  const int lane = static_cast<int>(threadIdx.x & 31u);
#pragma unroll 1
  for (int block = 0; block < Config::kNumQo * Layout::kQTileBytes / Layout::kQBlockBytes;
       ++block) {
#pragma unroll 1
    for (int row = Layout::kBoxQRows + lane / Layout::kRowUnits; row < kRows;
         row += 32 / Layout::kRowUnits) {
      store_shared_v4(
          smem.q(0) + static_cast<u32>(block * Layout::kQBlockBytes + row * Layout::kRowBytes +
                                       lane % Layout::kRowUnits * 16),
          0, 0, 0, 0);
    }
  }
  fence_proxy_async_shared();
}

/// Loads a chunk of a tile of K or V. `seen_from`: no row sees a key before it. `landed`: the
/// barrier that hears of it.
template <class Config, class Mask, bool kIsK, class Arguments>
ATTNJIT_DEVICE void load_kv_chunk(const Smem<Config>& smem, const KvTile<Config, kIsK>& kv,
                                  const Arguments& arguments, const WorkTile& work, int tile,
                                  int seen_from, int chunk, u32 landed, u64 policy) {
  using Layout = LayoutOf<Config>;
  constexpr int kBlocks = KvTile<Config, kIsK>::kBlocks / KvTile<Config, kIsK>::kChunks;
  // NOTE: where work is published, which takes registers, the first row is computed for each chunk,
  // and not kept from one to the next: the warp has 48 registers.
  u32 begin_of_tile = static_cast<u32>(tile * Config::kTileN);
  // Of a pair's tile each CTA has half of K's rows, and half of V's columns.
  constexpr int kTileRows = kIsK ? Layout::kKRows : Config::kTileN;
  int first_column = 0;
  if constexpr (Layout::kPair) {
    const int rank = cluster_rank();
    if constexpr (kIsK) begin_of_tile += static_cast<u32>(rank * Layout::kKRows);
    if constexpr (!kIsK) first_column = rank * Layout::kVBlocks * Layout::kColumns;
  }
  const int first = static_cast<int>(Config::kPublished ? opaque(begin_of_tile) : begin_of_tile);
  const TensorMap* const map = kIsK ? arguments.k_map : arguments.v_map;
  if constexpr (Layout::kPaged) {
    constexpr int kBoxes = kTileRows / Layout::kBoxRows;
    // NOTE: four boxes at a time, and one copy of their code for all blocks: each page and each
    // address would be a register. Fewer where publishing takes those registers: one with a rope
    // part, two where each box has its place in a page of other than 2^n rows.
    constexpr bool kPlaces =
        Layout::kBoxRows != Config::kPageSize && (Config::kPageSize & (Config::kPageSize - 1)) != 0;
    constexpr bool kRope = Layout::kQkBlocks > Layout::kOvBlocks || Layout::kSeparateRope;
    constexpr int kMost = !Config::kPublished ? 4 : kRope ? 1 : kPlaces ? 2 : 4;
    constexpr int kAtOnce = kBoxes < kMost ? kBoxes : kMost;
    const int* const table =
        arguments.page_table + static_cast<i64>(work.batch) * arguments.max_pages;
#pragma unroll 1
    for (int begin = 0; begin < kBoxes; begin += kAtOnce) {
      int pages[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        // NOTE: a page past the end has no entry in the table, and one that no row sees may be
        // another's by then, and hold NaN. Number -1 is out of bounds and gives zeros, which the
        // barrier counts like any other bytes.
        const int row = first + (begin + i) * Layout::kBoxRows;
        const bool seen = Mask::kFromZero || seen_from - row < Layout::kBoxRows;
        pages[i] = row < work.kv_len && seen ? table[row / Config::kPageSize] : -1;
      }
      if (begin == 0) {
        kv.acquire(smem, chunk);
        smem.template expect_bytes<!kIsK>(landed, KvTile<Config, kIsK>::kChunkBytes);
      }
#pragma unroll 1
      for (int block = chunk * kBlocks; block < (chunk + 1) * kBlocks; ++block) {
        const u32 data = opaque(kv.block(block) +
                                static_cast<u32>(begin * Layout::kBoxRows * Layout::kRowBytes));
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (kBoxes % kAtOnce != 0 && begin + i >= kBoxes) break;
          tma_load_4d<Layout::kPair>(
              data + static_cast<u32>(i * Layout::kBoxRows * Layout::kRowBytes), map,
              smem.template hearing<!kIsK>(landed), first_column + block * Layout::kColumns,
              work.kv_head,
              kBoxes == 1 || Layout::kBoxRows != Config::kPageSize
                  ? (first + (begin + i) * Layout::kBoxRows) % Config::kPageSize
                  : 0,
              pages[i], policy);
        }
      }
      if constexpr (kIsK && Layout::kSeparateRope) {
        const u32 data = opaque(kv.separate_rope() +
                                static_cast<u32>(begin * Layout::kBoxRows * kBlockRowBytes));
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (kBoxes % kAtOnce != 0 && begin + i >= kBoxes) break;
          tma_load_4d(data + static_cast<u32>(i * Layout::kBoxRows * kBlockRowBytes),
                      arguments.k_rope_map, landed, 0, 0,
                      kBoxes == 1 || Layout::kBoxRows != Config::kPageSize
                          ? (first + (begin + i) * Layout::kBoxRows) % Config::kPageSize
                          : 0,
                      pages[i], policy);
        }
      }
    }
  } else {
    kv.acquire(smem, chunk);
    smem.template expect_bytes<!kIsK>(landed, KvTile<Config, kIsK>::kChunkBytes);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const int block = chunk * kBlocks + i;
      tma_load_4d<Layout::kPair>(kv.block(block), map, smem.template hearing<!kIsK>(landed),
                                 first_column + block * Layout::kColumns, work.kv_head,
                                 work.kv_begin + first, Config::kRaggedKv ? 0 : work.batch, policy);
    }
    // NOTE: K has one rope part for all heads.
    if constexpr (kIsK && Layout::kSeparateRope) {
      tma_load_4d(kv.separate_rope(), arguments.k_rope_map, landed, 0, 0, work.kv_begin + first,
                  Config::kRaggedKv ? 0 : work.batch, policy);
    }
  }
}

/// Waits until the products have read the last query tiles that were loaded. `parity`: of their
/// empty barriers, a bit each.
template <class Config>
ATTNJIT_DEVICE void await_queries(const Smem<Config>& smem, u32 parity) {
#pragma unroll 1
  for (int tile = 0; tile < Config::kNumQo; ++tile) {
    smem.wait(smem.q_empty(tile), static_cast<int>(parity >> tile & 1u));
  }
}

/// How many of a work tile's KV tiles are loaded when the next work tile is asked for: as late as
/// can be, so that it goes to who is free first, and so early that nobody waits for it.
ATTNJIT_DEVICE int loaded_before_asking(int tiles) {
  constexpr int kLeft = 2;
  return max(tiles - kLeft, 0);
}

/// Asks for the next work tile: where a CTA steals others', whose answer before has been read,
/// and where it takes tiles from counters.
template <class Config>
ATTNJIT_DEVICE void ask_for_work(const Smem<Config>& smem) {
  if constexpr (steals_tiles<Config>()) {
    ask_for_cta(smem.answer(), smem.answer_full());
  } else if constexpr (takes_whole<Config>()) {
    if constexpr (Config::kRowCopies) {
      arrive_warp(smem.answer_full());
    } else {
      mbarrier_arrive(smem.answer_full());
    }
  }
}

/// Takes K and V in the order of the products (sm100/mma.cuh): with two query tiles K and V by
/// turns, with one a K tile ahead.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void load(const Smem<Config>& smem, const Arguments& arguments,
                         const Params& params) {
  using Layout = LayoutOf<Config>;
  using List = SchedulerOf<Config::kRowCopies, Config, Mask, Arguments, Params>;
  // Who loads Q, of a warp.
  const bool first_lane = !Config::kRowCopies || (threadIdx.x & 31u) == 0;
  KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  u32 q_parity = 3;  // a bit a query tile

  for (List list(smem, arguments, params); !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    const KvTiles all = work.all();
    const int tiles = all.count();
    const u64 policy = kv_policy(Layout::kFused == Config::kGroup &&
                                 work.q_len <= work_positions<Config>(arguments));
    const int first_key = first_key_of<Config, Mask>(work, params);

    // NOTE: where O lies over Q it arrives where it has waited. Of tiles without keys nothing else
    // is waited for: the other roles could go on by two, and this wait would then be for the wrong
    // parity. Elsewhere there is a phase for each Q that is loaded.
    const auto await_q = [&](int tile) {
      if constexpr (Config::kOneWorkTile) return;
      smem.wait(smem.q_empty(tile), static_cast<int>(q_parity >> tile & 1u));
      q_parity ^= 1u << tile;
      if constexpr (!Layout::kOOverQ) return;
      if constexpr (Config::kRowCopies) {
        arrive_warp(smem.q_empty(tile));
      } else {
        mbarrier_arrive(smem.q_empty(tile));
      }
    };
    const auto load_k = [&](int rank) {
      const int tile_of_k = tile_at<Config>(work, all.end - 1 - rank, arguments);
      const int seen_from =
          seen_from_key<Config, Mask>(first_key, work, all.end - 1 - rank, arguments);
      const KvTile<Config, true> k = kv.template next<true>();
#pragma unroll
      for (int chunk = 0; chunk < Config::kQkStages; ++chunk) {
        if constexpr (Config::kRowCopies) {
          copy_kv_chunk<Config, Mask>(smem, k, arguments, list.keys(work), tile_of_k, seen_from,
                                      chunk);
        } else {
          load_kv_chunk<Config, Mask>(smem, k, arguments, list.keys(work), tile_of_k, seen_from,
                                      chunk, k.full(chunk), policy);
        }
        if (rank > 0) continue;
          // NOTE: what is begun is asked for again each time: the warp has 48 registers.
#pragma unroll 1
        for (int i = 0; i < list.again(work).num_qo; ++i) {
          const WorkTile& begun = list.again(work);
          // The query tile comes first that the first K is multiplied with.
          const int tile = begun.num_qo == 2 && begun.share(0).lead > 0 ? i ^ 1 : i;
          // A query tile that sees nothing is not read: its memory is at most O's.
          const bool seen = begun.share(tile).steps > 0;
          if (chunk == 0 && (Layout::kOOverQ || seen)) await_q(tile);
          if (seen && first_lane) load_q_chunk(smem, arguments, begun, tile, chunk);
        }
      }
    };

    if (!Config::kOneWorkTile && Layout::kOOverQ && tiles == 0) {
      // NOTE: waits all the same, though it loads nothing: a phase that nobody waited for would
      // make the next wait return a tile too early.
#pragma unroll 1
      for (int tile = 0; tile < work.num_qo; ++tile) await_q(tile);
    }
    const int ahead = work.num_qo == 1 ? 1 : 0;
    if (tiles == 0) ask_for_work(smem);
    KvTile<Config, false> first_v = {};
#pragma unroll 1
    for (int rank = 0; tiles > 0 && rank < tiles + ahead; ++rank) {
      if (rank == loaded_before_asking(tiles)) ask_for_work(smem);
      if (rank < tiles) load_k(rank);
      if (rank >= ahead) {
        const KvTile<Config, false> v = kv.template next<false>();
        u32 landed = v.full(0);
        if constexpr (Layout::kTails) {
          if (work.template ends_past<Config>()) {
            if (rank == ahead) {
              landed = smem.tail_full();
              first_v = v;
            }
            // NOTE: the zeroes behind the sequence's end are there before anything is loaded over
            // them. The commit that frees the stage hands on the products' reads, not those stores.
            // (The next work tile, if any, was published behind them.)
            if (rank == ahead + 1) first_v.wait(smem, 0);
          }
        }
        const int tile = tile_at<Config>(work, all.end - 1 - (rank - ahead), arguments);
        const int seen_from =
            seen_from_key<Config, Mask>(first_key, work, all.end - 1 - (rank - ahead), arguments);
        if constexpr (Config::kRowCopies) {
          copy_kv_chunk<Config, Mask>(smem, v, arguments, list.keys(work), tile, seen_from, 0);
        } else {
          load_kv_chunk<Config, Mask>(smem, v, arguments, list.keys(work), tile, seen_from, 0,
                                      landed, policy);
        }
      }
    }
  }

  // The CTA's memory stays until the products have read, and their barriers have heard of, all.
  if constexpr (!Config::kOneWorkTile && !Layout::kOOverQ) await_queries(smem, q_parity);
#pragma unroll 1
  for (int i = 0; i < kv.stages; ++i) {
    const KvTile<Config, true> k = kv.template next<true>();
#pragma unroll
    for (int chunk = 0; chunk < Config::kQkStages; ++chunk) k.acquire(smem, chunk);
    if constexpr (!Config::kFusedKv) kv.template next<false>().acquire(smem, 0);
  }
}

/// Loads Q alone, where other warps load K and V. NOTE: where O lies over Q it waits and arrives
/// for tiles without keys, too, as load() does.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void load_queries(const Smem<Config>& smem, const Arguments& arguments,
                                 const Params& params) {
  u32 parity = 3;  // a bit a query tile
  for (SchedulerOf<false, Config, Mask, Arguments, Params> list(smem, arguments, params);
       !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    if constexpr (takes_whole<Config>()) ask_for_work(smem);
#pragma unroll 1
    for (int tile = 0; tile < work.num_qo; ++tile) {
      const bool seen = work.share(tile).steps > 0;
      if constexpr (!Config::kOneWorkTile) {
        if (!LayoutOf<Config>::kOOverQ && !seen) continue;
        smem.wait(smem.q_empty(tile), static_cast<int>(parity >> tile & 1u));
        parity ^= 1u << tile;
        if constexpr (LayoutOf<Config>::kOOverQ) mbarrier_arrive(smem.q_empty(tile));
      }
      if (seen) load_q_chunk(smem, arguments, work, tile, 0);
    }
  }
  if constexpr (!Config::kOneWorkTile && !LayoutOf<Config>::kOOverQ) await_queries(smem, parity);
}

}  // namespace attnjit::sm100

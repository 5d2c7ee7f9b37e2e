// SPDX-License-Identifier: Apache-2.0
// The producer: it finds the CTA's work, publishes it, and loads Q and the KV tiles.
#pragma once

#include "common/sequence_ranges.cuh"
#include "mla/upcasting.cuh"

namespace attnjit::mla {

/// Copies of KV tiles by TMA, in boxes of kBoxKeys keys, a lane each. A warp, or two that load the
/// tiles of every second stage each: neither waits for what frees the other's memory.
template <class Config, class Mask, class Arguments>
struct BoxCopies {
  using Tiles = TilesOf<Config>;
  static constexpr int kBoxes = Config::kTileN / Config::kBoxKeys;  // of a block of columns
  static_assert(kBoxes <= 32, "a lane loads a box");

  const TileMemory<Config>& smem;
  const Arguments& arguments;
  int rank;    ///< of the CTA in its cluster
  int loader;  ///< the warp's number among those that load every second stage
  int lane;
  Ring ring = {};
  WorkTile work = {};
  u64 policy = 0;
  /// From bit 1 on the stage, plus one, whose rows past the end are to be zeroed; bit 0 is the
  /// parity of tail_full(). NOTE: one word: the warp has no registers for two.
  int tail = 0;

  /// Goes on to the next work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    work = tile;
    const int q_len = lengths_of<Config>(work, arguments).q;
    constexpr bool kWholeGroups = Config::kGqaShift > 0 || Config::kGroup == 1;
    // NOTE: K of absorbed MLA is evicted first although other tiles of the sequence read it, too:
    // they do so at the same time, if a round has room for them. Kept longer, launches took up to
    // 5 % more time (docs/performance-mla.md).
    const int at_once = Config::kSeparateV ? 1 : workers<Config>();
    policy = kv_policy(kWholeGroups && q_len << Config::kGqaShift <= Config::kTileM * at_once);
  }

  /// Where the lane's box of a tile lies: a page, or the sequence. NOTE: a page past the end has no
  /// entry in the table, and one that no row sees may be another's. Number -1 is out of bounds and
  /// gives zeros, which the barrier counts like any other bytes.
  ATTNJIT_DEVICE int place_of(int tile) const {
    if constexpr (Config::kPageSize > 0) {
      return page_of<Config>(
          tile * Config::kTileN + lane % kBoxes * Config::kBoxKeys, Config::kBoxKeys,
          [&](int key, int count) { return may_see<Mask>(work, key, count); }, work, arguments);
    } else {
      return Config::kRaggedKv ? 0 : work.batch;
    }
  }

  /// Whether rows of a tile lie past the sequence's end, and not past the tensor's.
  ATTNJIT_DEVICE bool is_tail(int tile) const {
    return kLengthsDiffer<Config> && work.kv_len - tile * Config::kTileN < Config::kTileN;
  }

  template <bool kIsV>
  ATTNJIT_DEVICE const TensorMap* map() const {
    if constexpr (kIsV) {
      return arguments.v_map;
    } else {
      return arguments.k_map;
    }
  }

  /// Loads a tile, each block of columns when its place is free: of V of its own, or of K, which is
  /// V where that has no tensor of its own.
  template <bool kIsV = false>
  ATTNJIT_DEVICE void load(int tile, int place) {
    constexpr bool kHasV = kIsV || !Config::kSeparateV;
    constexpr int kFirst = kIsV ? Tiles::kFirstOfV : 0;
    const int stage = ring.stage;
    if (Config::kStageLoaders > 1 && stage % Config::kStageLoaders != loader) {
      ring.advance(Config::kStages);
      return;
    }
    const bool ends = kHasV && is_tail(tile);
    const int key = tile * Config::kTileN + lane % kBoxes * Config::kBoxKeys;
    const int row = Config::kPageSize > 0 ? key % max(Config::kPageSize, 1) : work.kv_begin + key;
    if constexpr (kLengthsDiffer<Config>) {
      if (ends && lane == 0) {
        mbarrier_arrive_expect_tx(smem.tail_full(loader), Tiles::kTileBytes);
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < Tiles::kQkBlocks; ++i) {
      const int block = kFirst + Tiles::block_at(i, stage & 1);
      u32 full = smem.kv_full(stage, block);
      if constexpr (Config::kCluster > 1) {
        mbarrier_wait_cluster(smem.kv_empty(Tiles::stage_before(stage), block),
                              Tiles::parity_before(stage, ring.parity));
      } else {
        smem.wait(smem.kv_empty(Tiles::stage_before(stage), block),
                  Tiles::parity_before(stage, ring.parity));
      }
      if constexpr (kLengthsDiffer<Config>) {
        if (ends) full = smem.tail_full(loader);
      }
      if (lane == 0 && !ends) mbarrier_arrive_expect_tx(full, Tiles::kBlockBytes);
      __syncwarp();
      const u32 data = smem.kv(stage, block) + lane * (Config::kBoxKeys * kBlockRowBytes);
      const int column = (block - kFirst) * kBlockColumns;
      if constexpr (Config::kCluster > 1) {
        // The CTAs load the blocks for each other, by turns.
        if (lane < kBoxes && i % Config::kCluster == rank) {
          tma_multicast_4d(data, map<kIsV>(), full, column, row, kv_head_of<Config>(work.head),
                           place, (1u << Config::kCluster) - 1, policy);
        }
      } else if (lane < kBoxes) {
        tma_load_4d(data, map<kIsV>(), full, column, row, kv_head_of<Config>(work.head), place,
                    policy);
      }
    }
    __syncwarp();
    if (ends) tail = (tail & 1) | 2 * (stage + 1);
    if constexpr (kHasV || Config::kLoadsApart) ring.advance(Config::kStages);
  }

  /// Zeroes the rows of V that are past the sequence's end, where the last KV tile has some, and
  /// says that the tile is there. They are multiplied with P = 0, and what lies there may be NaN.
  /// Their scores are hidden, so that the rope's part may stay. Called a load later, so that the
  /// copy is not waited for.
  ATTNJIT_DEVICE void finish_tail() {
    if constexpr (kLengthsDiffer<Config>) {
      const int stage = (tail >> 1) - 1;
      if (stage < 0) return;
      smem.wait(smem.tail_full(loader), tail & 1);
      tail = (tail & 1) ^ 1;
      const int first = work.kv_len - (work.tile_end - 1) * Config::kTileN;
#pragma unroll 1
      for (int row = first + lane / 8; row < Config::kTileN; row += 4) {
        // Whole rows of 128 bytes: the swizzle stays within them.
#pragma unroll
        for (int block = 0; block < Tiles::kOvBlocks; ++block) {
          store_shared_v4(
              smem.kv(stage, Tiles::kFirstOfV + block) + row * kBlockRowBytes + lane % 8 * 16, 0, 0,
              0, 0);
        }
      }
      fence_proxy_async_shared();
      __syncwarp();
      if (lane < Tiles::kQkBlocks) {
        mbarrier_arrive(smem.kv_full(stage, Tiles::kFirstOfV + lane));
      }
    }
  }
};

/// Those of a kernel whose threads copy K.
template <class Config, class... Types>
using ThreadCopies =
    Either<TilesOf<Config>::kUpcast, UpcastCopies<Config, Types...>, RowCopies<Config, Types...>>;

/// The producer's warp that loads Q in launches where no CTA has a second query tile
/// (Producer::load_q_at_once()). Two others load boxes of K.
constexpr int kQLoadWarp = 2;
template <class Config>
constexpr bool kMayLoadQAtOnce = deals_ranges<Config>() && Config::kStageLoaders == 2;

/// A warp, or several that all find the same work and copy their parts of the KV tiles; the first
/// does the rest. Where loads are apart (kLoadsApart), each part is of K or of V: neither waits for
/// what frees the other's memory.
template <class Config, class Mask, class Copies, class Arguments, class Params>
struct Producer {
  using Tiles = TilesOf<Config>;

  const TileMemory<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  Copies copies;
  int rank;  ///< of the CTA in its cluster, which has the rows of its own
  int warp;
  int lane;
  /// Bit 0 is the parity of work_empty(), bit 1 that of q_empty(), and bit 2 says that some work
  /// tile's keys were loaded. NOTE: one word: a producer's warp has no registers for three.
  int state = 0;

  ATTNJIT_DEVICE bool loads_v() const { return Config::kLoadsApart && warp >= kVLoadWarp; }

  /// Publishes a work tile to the consumers when they have read the one before.
  ATTNJIT_DEVICE void publish_work(const WorkTile& work) {
    if (warp != 0) return;
    state ^= 1;
    smem.wait(smem.work_empty(), state & 1);
    if (lane == 0) {
      store_work<Config>(smem.work(), work);
      mbarrier_arrive(smem.work_full());
    }
    __syncwarp();
  }

  /// Loads the rows of Q when the last product that reads those before is made. `kFirst`: there are
  /// none before.
  template <bool kFirst = false>
  ATTNJIT_DEVICE void load_q(const WorkTile& work) {
    if (warp != 0 || loads_q_at_once()) return;
    state ^= 2;
    if constexpr (!kFirst) smem.wait(smem.q_empty(), state >> 1 & 1);
    issue_q(work);
  }

  /// Whether a warp of its own loads Q, of which a CTA has no second tile: before it is known how
  /// many keys there are, and where these lie.
  ATTNJIT_DEVICE bool loads_q_at_once() const {
    if constexpr (kMayLoadQAtOnce<Config>) {
      if (asks_lengths(arguments)) return false;
      return SequenceRanges<Config, Mask, Arguments, Params>{{arguments}, params}.uniform_tiles(
                 arguments.uniform_splits) <= workers<Config>();
    }
    return false;
  }
  /// That warp.
  ATTNJIT_DEVICE void load_q_at_once() const {
    if (!loads_q_at_once()) return;
    const SequenceRanges<Config, Mask, Arguments, Params> ranges{{arguments}, params};
    const int place = worker<Config>() >> (reduces_cluster<Config>(arguments) ? 1 : 0);
    const auto [sequence, part, tile] = ranges.uniform_tile(place, arguments.uniform_splits);
    if (sequence >= arguments.batch) return;
    WorkTile work{};
    work.batch = sequence;
    work.first_row = first_row_of_rank<Config>(arguments.q_len << Config::kGqaShift, tile);
    await_prerequisites();
    issue_q(work);
    // Consumers of a part without keys wait for no Q. The CTA may not end before its Q has landed.
#pragma unroll 1
    for (int block = 0; block < Tiles::kQkBlocks; ++block) smem.wait(smem.q_full(block), 0);
  }

  ATTNJIT_DEVICE void issue_q(const WorkTile& work) const {
    // NOTE: rows past the sequence's end, or behind a position's heads, are zeros or other rows.
    // Nothing is made of them.
    if (lane == 0) {
      const int head = work.head + (work.first_row & ((1 << Config::kGqaShift) - 1));
      const int position = work.q_begin + (work.first_row >> Config::kGqaShift);
#pragma unroll 1
      for (int i = 0; i < Tiles::kQkBlocks; ++i) {
        const int block = Tiles::block_at(i);
        mbarrier_arrive_expect_tx(smem.q_full(block), Tiles::kBlockBytes);
        tma_load_4d(smem.q(block), arguments.q_map, smem.q_full(block), block * kBlockColumns, head,
                    position, q_batch<Config>(work), kEvictFirst);
      }
    }
    __syncwarp();
  }

  /// Keeps a list in shared memory while K is copied, and takes it from there. NOTE: what the
  /// compiler would keep in registers that the warp has not, it would spill.
  template <class List>
  ATTNJIT_DEVICE void stash(const List& list) const {
    if (lane == 0) stash_cursor(smem.cursor(warp), list.cursor());
    __syncwarp();
  }
  ATTNJIT_DEVICE SchedulerCursor stashed() const {
    const SchedulerCursor cursor = stashed_cursor(smem.cursor(warp));
    __syncwarp();
    return cursor;
  }

  /// The KV tiles of a work tile, which threads upcast.
  ATTNJIT_DEVICE void upcast_tiles(const WorkTile& work) {
    // NOTE: not behind the first tile as elsewhere: what is upcast takes its time.
    load_q(work);
#pragma unroll 1
    for (int tile = work.tile_end - 1; tile >= work.tile_begin; --tile) copies.load(tile);
  }

  /// Others.
  ATTNJIT_DEVICE void load_tiles(const WorkTile& work) {
    // The first Q is asked for before it is known where keys lie. A later one waits for products,
    // and K goes ahead.
    const bool q_first = (state & 4) == 0;
    state |= 4;
    if (q_first) load_q<true>(work);
    int place = copies.place_of(work.tile_end - 1);
#pragma unroll 1
    for (int tile = work.tile_end - 1; tile >= work.tile_begin; --tile) {
      const int next = tile > work.tile_begin ? copies.place_of(tile - 1) : 0;
      if constexpr (Config::kLoadsApart) {
        if (loads_v()) {
          copies.template load<true>(tile, place);
          // NOTE: at once: the next tile's memory may be that which this one is multiplied in.
          copies.finish_tail();
        } else {
          copies.load(tile, place);
          if (tile == work.tile_end - 1 && !q_first) load_q(work);
        }
        place = next;
      } else {
        copies.load(tile, place);
        const int place_of_v = place;
        place = next;
        if (tile == work.tile_end - 1) {
          if (!q_first) load_q(work);
        } else {
          copies.finish_tail();
        }
        // NOTE: behind Q and the tail, which what is waited for here waits for.
        if constexpr (Config::kSeparateV) copies.template load<true>(tile, place_of_v);
      }
    }
    if constexpr (!Config::kLoadsApart) copies.finish_tail();
  }

  template <class List>
  ATTNJIT_DEVICE void walk(List list) {
    for (; !list.done(); list.advance()) {
      WorkTile work = list.tile();
      work.first_row += rank * kConsumerRows;
      smem.next_work_tile();
      publish_work(work);
      if (work.tile_begin >= work.tile_end) continue;
      if constexpr (Config::kStashesCursors) stash(list);
      copies.begin(work);
      if constexpr (Tiles::kUpcast) {
        upcast_tiles(work);
      } else {
        load_tiles(work);
      }
      if constexpr (Config::kStashesCursors) list.resume(stashed());
    }
    publish_work({-1, 0, 0, 0, 0});
  }

  ATTNJIT_DEVICE void run() {
    if constexpr (deals_ranges<Config>()) {
      walk(SequenceRangeList<Config, Mask, Arguments, Params>(arguments, params, stashed()));
    } else if constexpr (kLengthsDiffer<Config>) {
      walk(SequenceTileList<Config, Mask, Arguments, Params, ListTiling<Config>>(arguments, params,
                                                                                 lane));
    } else {
      walk(StaticScheduler<Config, Mask, Arguments, Params>(arguments, params));
    }
  }
};

/// What one thread of a CTA does before its barriers are made.
template <class Config, class Memory, class Arguments>
ATTNJIT_DEVICE void begin_cta(const Memory& smem, const Arguments& arguments) {
  // What comes next finds room as CTAs of this grid end: the merge, or another launch.
  launch_dependents();
  check_alignment(smem.base);
  prefetch_tensor_map(arguments.q_map);
  if constexpr (!Config::kRowCopies) prefetch_tensor_map(arguments.k_map);
  if constexpr (!Config::kRowCopies && Config::kSeparateV) prefetch_tensor_map(arguments.v_map);
}

/// Waits for the threads of the CTA, and of a cluster for those of both CTAs, whose barriers hear
/// of each other. Returns the CTA's rank in its cluster.
template <class Config>
ATTNJIT_DEVICE int begin_together() {
  if constexpr (Config::kCluster > 1) {
    const int cta = cluster_rank();
    cluster_barrier();
    return cta;
  } else {
    __syncthreads();
    return 0;
  }
}

}  // namespace attnjit::mla

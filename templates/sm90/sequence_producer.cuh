// SPDX-License-Identifier: Apache-2.0
// The producer where sequences differ in length: a warp that finds its work, reads page tables and
// zeroes what lies past a sequence's end.
#pragma once

#include "sm90/sequences.cuh"

namespace attnjit::sm90 {

/// As Producer (sm90/producer.cuh), which is one thread. K and V come in boxes of kBoxKeys keys, a
/// lane each, so that the table is read once for a tile's K and V.
template <class Config, class Mask, class Arguments, class Params>
struct SequenceProducer {
  using Layout = LayoutOf<Config>;
  static constexpr int kBoxes = Config::kTileN / Config::kBoxKeys;  // of a block of columns
  static_assert(kBoxes <= 32, "a lane loads a box");
  static constexpr int kLaneGroups = 32 / kBoxes;  // lanes that load a block of columns each

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  int lane;
  Ring k_ring = {};
  Ring v_ring = {};
  Ring q_ring = {};
  WorkTile work = {};
  int kv_head = 0;
  u64 policy = 0;
  int tail_stage = -1;  ///< of V: its rows past the end are to be zeroed
  int tail_parity = 0;

  /// Where the lane's box of a tile lies: a page, or the sequence. NOTE: a page past the end has no
  /// entry in the table. Number -1 is out of bounds and gives zeros, which the barrier counts like
  /// any other bytes.
  ATTNJIT_DEVICE int place_of(int tile) const {
    if constexpr (Layout::kPaged) {
      const int key = tile * Config::kTileN + lane % kBoxes * Config::kBoxKeys;
      if (key >= work.kv_len) return -1;
      return arguments
          .page_table[static_cast<i64>(work.batch) * arguments.max_pages + key / Config::kPageSize];
    } else {
      return work.batch;
    }
  }

  /// Loads a KV tile of kBlocks blocks to `data`, when the stage is free; `full` hears of it.
  template <int kBlocks>
  ATTNJIT_DEVICE void load_kv(Ring& ring, u32 data, const TensorMap* map, u32 full, u32 empty,
                              int tile, int place) {
    smem.wait(empty, ring.parity ^ 1);
    if (lane == 0) mbarrier_arrive_expect_tx(full, kBlocks * Layout::kKvBlockBytes);
    __syncwarp();
    const int box = lane % kBoxes;
    const int key = tile * Config::kTileN + box * Config::kBoxKeys;
    const int row = Layout::kPaged ? key % Config::kPageSize : key;
    if (lane < kBoxes * kLaneGroups) {
#pragma unroll
      for (int first = 0; first < kBlocks; first += kLaneGroups) {
        const int block = first + lane / kBoxes;
        if (block >= kBlocks) break;
        tma_load_4d(
            data + block * Layout::kKvBlockBytes + box * (Config::kBoxKeys * kBlockRowBytes), map,
            full, block * kBlockColumns, row, kv_head, place, policy);
      }
    }
    __syncwarp();
    ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_k(int tile, int place) {
    const int stage = k_ring.stage;
    load_kv<Layout::kQkBlocks>(k_ring, smem.k(stage), arguments.k_map, smem.k_full(stage),
                               smem.k_empty(stage), tile, place);
  }
  ATTNJIT_DEVICE void load_v(int tile, int place) {
    const int stage = v_ring.stage;
    const bool tail =
        tile == work.tile_end - 1 && work.kv_len - tile * Config::kTileN < Config::kTileN;
    if (tail) tail_stage = stage;
    load_kv<Layout::kOvBlocks>(v_ring, smem.v(stage), arguments.v_map,
                               tail ? smem.tail_full() : smem.v_full(stage), smem.v_empty(stage),
                               tile, place);
  }

  /// Zeroes the rows of V that are past the sequence's end, where the last V tile has some, and
  /// says that it is there. They are multiplied with P = 0, and what lies there may be NaN. Called
  /// a load later, so that the copy is not waited for.
  ATTNJIT_DEVICE void finish_tail() {
    if (tail_stage < 0) return;
    smem.wait(smem.tail_full(), tail_parity);
    tail_parity ^= 1;
    const int first = work.kv_len - (work.tile_end - 1) * Config::kTileN;
#pragma unroll 1
    for (int row = first + lane / 8; row < Config::kTileN; row += 4) {
      // Whole rows of 128 bytes: the swizzle stays within them.
#pragma unroll
      for (int block = 0; block < Layout::kOvBlocks; ++block) {
        store_shared_v4(smem.v(tail_stage) + block * Layout::kKvBlockBytes + row * kBlockRowBytes +
                            lane % 8 * 16,
                        0, 0, 0, 0);
      }
    }
    fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(smem.v_full(tail_stage));
    tail_stage = -1;
  }

  /// Hands Q's memory over to each consumer, with the work tile. NOTE: also where there are no keys
  /// and Q is not loaded: O is staged in it.
  ATTNJIT_DEVICE void load_q(bool no_keys) {
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      announce(work, consumer);
      const u32 full = smem.q_full(q_ring.stage, consumer);
      const int first_row = work.first_row + consumer * kConsumerRows;
      if (lane != 0) continue;
      if (no_keys || first_row < 0) {
        mbarrier_arrive(full);
        continue;
      }
      mbarrier_arrive_expect_tx(full, Layout::kQBytes / Config::kConsumers);
#pragma unroll
      for (int block = 0; block < Layout::kQkBlocks; ++block) {
        // NOTE: ragged: rows past the sequence's end are the next one's. Nothing is made of them.
        tma_load_4d(smem.q(q_ring.stage, consumer) + block * Layout::kQBlockBytes, arguments.q_map,
                    full, block * kBlockColumns, work.head,
                    work.q_begin + (first_row >> Config::kGqaShift), q_batch<Config>(work),
                    kEvictFirst);
      }
    }
    __syncwarp();
    q_ring.advance(Config::kQStages);
  }

  /// Tells a consumer of a work tile when it has given Q's memory back.
  ATTNJIT_DEVICE void announce(const WorkTile& tile, int consumer) {
    smem.wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
    if (lane == 0) store_work<Config>(smem.work(q_ring.stage, consumer), tile);
  }

  ATTNJIT_DEVICE void run() {
    SequenceList<Config, Mask, Arguments, Params> list(arguments, params, lane);
    for (; !list.done(); list.advance()) {
      work = list.tile();
      smem.next_work_tile();
      kv_head = work.head / Config::kGroup;
      policy = kv_policy(1 << Config::kGqaShift == Config::kGroup &&
                         work.q_len << Config::kGqaShift <= Config::kTileM);
      const bool no_keys = work.tile_begin >= work.tile_end;
      int place = no_keys ? 0 : place_of(work.tile_end - 1);
      if (!no_keys) load_k(work.tile_end - 1, place);
      load_q(no_keys);
      if (no_keys) continue;
      for (int tile = work.tile_end - 2; tile >= work.tile_begin; --tile) {
        const int next = place_of(tile);
        load_k(tile, next);
        finish_tail();
        load_v(tile + 1, place);
        place = next;
      }
      finish_tail();
      load_v(work.tile_begin, place);
      finish_tail();
    }
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      announce({-1, 0, 0, 0, 0}, consumer);
      if (lane == 0) mbarrier_arrive(smem.q_full(q_ring.stage, consumer));
    }
  }
};

}  // namespace attnjit::sm90

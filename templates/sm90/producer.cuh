// SPDX-License-Identifier: Apache-2.0
// The producer: one thread that loads Q, K and V of every work tile by TMA, as far ahead as the
// pipelines allow.
#pragma once

#include "sm90/work.cuh"

namespace attnjit::sm90 {

/// KV tiles are walked from the last to the first: the tiles that a causal mask cuts come first.
/// V lags K by one tile, in the order in which the consumers need them. Each work tile is announced
/// to each consumer with its Q, and the end after the last: the arithmetic of the list would stand
/// between a consumer's tiles.
template <class Config, class Mask, class Arguments, class P>
ATTNJIT_DEVICE void produce(const Smem<Config>& smem, const Arguments& arguments, const P& params) {
  using L = Layout<Config>;
  Ring<Config::kStages> k_ring;
  Ring<Config::kStages> v_ring;
  Ring<Config::kQStages> q_ring;

  WorkList<Config, Mask, Arguments, P> list(arguments, params);
  for (; !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    const int kv_head = work.head / Config::kGroup;

    const auto load_k = [&](int tile) {
      const u32 full = smem.k_full(k_ring.stage);
      // NOTE: an empty barrier's first wait is for the parity before its first phase.
      mbarrier_wait(smem.k_empty(k_ring.stage), k_ring.parity ^ 1);
      mbarrier_arrive_expect_tx(full, L::kKBytes);
#pragma unroll
      for (int block = 0; block < L::kQkBlocks; ++block) {
        tma_load_4d(smem.k(k_ring.stage) + block * L::kKvBlockBytes, arguments.k_map, full,
                    block * 64, tile * Config::kTileN, kv_head, work.batch, kEvictLast);
      }
      k_ring.advance();
    };
    const auto load_v = [&](int tile) {
      const u32 full = smem.v_full(v_ring.stage);
      mbarrier_wait(smem.v_empty(v_ring.stage), v_ring.parity ^ 1);
      mbarrier_arrive_expect_tx(full, L::kVBytes);
#pragma unroll
      for (int block = 0; block < L::kOvBlocks; ++block) {
        tma_load_4d(smem.v(v_ring.stage) + block * L::kKvBlockBytes, arguments.v_map, full,
                    block * 64, tile * Config::kTileN, kv_head, work.batch, kEvictLast);
      }
      v_ring.advance();
    };

    const bool empty = work.tile_begin >= work.tile_end;
    if (!empty) load_k(work.tile_end - 1);

      // Q's memory is handed over for every work tile, also for one without keys: O is staged in
      // it.
#pragma unroll
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      const u32 full = smem.q_full(q_ring.stage, consumer);
      mbarrier_wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
      store_work(smem.work(q_ring.stage, consumer), work);
      if (empty || work.first_row + consumer * 64 < 0) {
        mbarrier_arrive(full);
        continue;
      }
      mbarrier_arrive_expect_tx(full, L::kQBytes / Config::kConsumers);
#pragma unroll
      for (int block = 0; block < L::kQkBlocks; ++block) {
        tma_load_4d(smem.q(q_ring.stage, consumer) + block * L::kQBlockBytes, arguments.q_map, full,
                    block * 64, work.head, (work.first_row + consumer * 64) >> Config::kGqaShift,
                    work.batch, kEvictFirst);
      }
    }
    q_ring.advance();
    if (empty) continue;

    for (int tile = work.tile_end - 2; tile >= work.tile_begin; --tile) {
      load_k(tile);
      load_v(tile + 1);
    }
    load_v(work.tile_begin);
  }
#pragma unroll
  for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
    mbarrier_wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
    store_work(smem.work(q_ring.stage, consumer), {-1, 0, 0, 0, 0});
    mbarrier_arrive(smem.q_full(q_ring.stage, consumer));
  }
}

}  // namespace attnjit::sm90

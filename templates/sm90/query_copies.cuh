// SPDX-License-Identifier: Apache-2.0
// Copies of Q by TMA: a consumer's rows of a work tile.
#pragma once

#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// Loads a consumer's rows to a stage of Q, whose barrier hears of it. One thread. Where there are
/// no keys, or no rows, nothing is loaded and the barrier hears of that.
template <class Config, class Arguments>
ATTNJIT_DEVICE void load_q_rows(const Smem<Config>& smem, const Arguments& arguments,
                                const WorkTile& work, int stage, int consumer, bool no_keys) {
  using Layout = LayoutOf<Config>;
  const u32 full = smem.q_full(stage, consumer);
  const int first_row = first_row_of<Config>(work, consumer);
  if (no_keys || first_row < 0) {
    mbarrier_arrive(full);
    return;
  }
  mbarrier_arrive_expect_tx(full, Layout::kQkBlocks * kOwnedRows<Config> * kBlockRowBytes);
  int position = first_position<Config>(first_row);
  // NOTE: rows past the sequence's end are the next one's. Nothing is made of them.
  if constexpr (Config::kRagged) position += work.q_begin;
#pragma unroll
  for (int block = 0; block < Layout::kQkBlocks; ++block) {
    const u32 destination = smem.q(stage, consumer) + block * Layout::kQBlockBytes;
    tma_load_4d(destination, arguments.q_map, full, block * Layout::kBlockElements, work.head,
                position, q_batch<Config>(work), kEvictFirst);
  }
}

/// Makes the rows of Q that are nobody's zeros, which no copy does. All the CTA's threads, before
/// they meet. NOTE: of NaN the maximum would seem to move with each tile.
template <class Config>
ATTNJIT_DEVICE void clear_idle_rows(const Smem<Config>& smem) {
  using Layout = LayoutOf<Config>;
  constexpr int kChunks = (kConsumerRows - kOwnedRows<Config>)*kBlockRowBytes / 16;
#pragma unroll 1
  for (int q_block = 0; q_block < Config::kQStages * Config::kConsumers * Layout::kQkBlocks;
       ++q_block) {
    const int consumer = q_block % Config::kConsumers;
    const int block = q_block / Config::kConsumers;  // of all stages, which follow one another
    const u32 rows =
        smem.q(0, consumer) + block * Layout::kQBlockBytes + kOwnedRows<Config> * kBlockRowBytes;
    for (int chunk = static_cast<int>(threadIdx.x); chunk < kChunks; chunk += Config::kThreads) {
      store_shared_v4(rows + 16 * chunk, 0, 0, 0, 0);
    }
  }
  fence_proxy_async_shared();  // wgmma reads through it
}

}  // namespace attnjit::sm90

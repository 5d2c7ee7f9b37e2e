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
  mbarrier_arrive_expect_tx(full, Layout::kQBytes / Config::kConsumers);
  int position = first_row >> Config::kGqaShift;
  // NOTE: rows past the sequence's end are the next one's. Nothing is made of them.
  if constexpr (Config::kRagged) position += work.q_begin;
#pragma unroll
  for (int block = 0; block < Layout::kQkBlocks; ++block) {
    const u32 destination = smem.q(stage, consumer) + block * Layout::kQBlockBytes;
    if constexpr (kRowsWithoutHead<Config>) {
      tma_load_5d(destination, arguments.q_map, full, block * Layout::kBlockElements, 0, position,
                  work.head / Config::kGroup, q_batch<Config>(work), kEvictFirst);
    } else {
      tma_load_4d(destination, arguments.q_map, full, block * Layout::kBlockElements, work.head,
                  position, q_batch<Config>(work), kEvictFirst);
    }
  }
}

}  // namespace attnjit::sm90

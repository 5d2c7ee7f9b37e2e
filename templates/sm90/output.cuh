// SPDX-License-Identifier: Apache-2.0
// A consumer's O on its way to global memory: staged in shared memory, stored from there by TMA.
#pragma once

#include "sm90/work.cuh"

namespace attnjit::sm90 {

/// Hands Q's memory back to the producer, once the store of the O staged there has read it; called
/// by each warp. NOTE: bulk groups belong to their thread: elect_one() chooses the one that stored,
/// and finds no groups in the other warps.
template <class Config>
ATTNJIT_DEVICE void release_q(const Smem<Config>& smem, int stage, int consumer, int lane) {
  if (elect_one()) bulk_wait_group_read();
  __syncwarp();
  if (lane == 0) mbarrier_arrive(smem.q_empty(stage, consumer));
}

/// Begins to write the warpgroup's O, by TMA stores that clip at q_len. It is staged in the
/// warpgroup's own rows of Q's memory, whole, and release_q() must follow; or, where
/// Config::kOBlocks is set, in memory of its own, that many blocks of 64 columns at a time.
template <class Config, class Arguments>
ATTNJIT_DEVICE void store_output(const float (&o)[LayoutOf<Config>::kPvColumns / 2],
                                 const Smem<Config>& smem, const Arguments& arguments,
                                 const WorkTile& work, int stage, int consumer, int warp,
                                 int lane) {
  using Layout = LayoutOf<Config>;
  constexpr bool kOwnMemory = Config::kOBlocks > 0;
  constexpr int kBlocks = kOwnMemory ? Config::kOBlocks : Layout::kOvBlocks;
  constexpr int kBlockBytes = kOwnMemory ? Layout::kConsumerBlockBytes : Layout::kQBlockBytes;
  // An stmatrix writes 16 columns of a warp's 16 rows.
  constexpr int kMatrixColumns = 16;
  constexpr int kMatricesPerBlock = kBlockColumns / kMatrixColumns;
  const u32 rows = kOwnMemory ? smem.o(consumer) : smem.q(stage, consumer);
  const int row = warp * kWarpRows + (lane & 15);
  const int first_row = work.first_row + consumer * kConsumerRows;
#pragma unroll
  for (int first = 0; first < Layout::kOvBlocks; first += kBlocks) {
    if constexpr (kOwnMemory) {
      if (warp == 0 && elect_one()) bulk_wait_group_read();
      named_barrier_sync(kEpilogueBarrier + consumer, kWarpgroupThreads);
    }
#pragma unroll
    for (int i = kMatricesPerBlock * first;
         i < min(kMatricesPerBlock * (first + kBlocks), Layout::kPvColumns / kMatrixColumns); ++i) {
      const int chunk = 2 * i + (lane >> 4);  // of 8 columns, 16 bytes
      // NOTE: the 128-byte swizzle, as the TMA store will undo it; rows begin at a multiple of
      // its period.
      const u32 address = rows + (i / kMatricesPerBlock - first) * kBlockBytes +
                          row * kBlockRowBytes + (((chunk & 7) ^ (row & 7)) << 4);
      stmatrix_x4(address, pack_pair<Config::kOutputBf16>(o[8 * i], o[8 * i + 1]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 2], o[8 * i + 3]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 4], o[8 * i + 5]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 6], o[8 * i + 7]));
    }
    fence_proxy_async_shared();
    named_barrier_sync(kEpilogueBarrier + consumer, kWarpgroupThreads);
    if (warp == 0 && elect_one() && first_row >= 0) {
#pragma unroll
      for (int block = first; block < min(first + kBlocks, Layout::kOvBlocks); ++block) {
        tma_store_4d(arguments.o_map, rows + (block - first) * kBlockBytes, block * kBlockColumns,
                     work.head, first_row >> Config::kGqaShift, work.batch);
      }
      bulk_commit_group();
    }
  }
}

}  // namespace attnjit::sm90

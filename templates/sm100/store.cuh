// SPDX-License-Identifier: Apache-2.0
// The store warp's thread: O from shared memory by TMA, clipped at q_len.
#pragma once

#include "sm100/work.cuh"

namespace attnjit::sm100 {

template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void store(const Smem<Config>& smem, const Arguments& arguments,
                          const Params& params) {
  using Layout = LayoutOf<Config>;
  u32 parity = 0;  // a bit a query tile
  Ring ring;       // O's buffers
  bool stored = false;
  for (SchedulerOf<false, Config, Mask, Arguments, Params> list(smem, arguments, params);
       !list.done(); list.advance()) {
    const WorkTile work = list.tile();
#pragma unroll 1
    for (int tile = 0; tile < work.num_qo; ++tile) {
      const int position = work.first_position + tile * Layout::kTileStep;
      const int row = work.q_begin + position;
      // The correction warps have written the rows of a partition, and those of a tile that ends
      // past its sequence.
      const bool staged = !is_merged<Config>(work, arguments) &&
                          !(Config::kRagged && position + Layout::kPositions > work.q_len);
      if constexpr (Layout::kOOverQ) {
        smem.wait(smem.o_staged(tile), static_cast<int>(parity >> tile & 1u));
      }
#pragma unroll 1
      for (int block = 0; staged && block < Layout::kOutputBlocks; ++block) {
        u32 source = smem.q(tile) + static_cast<u32>(block * Layout::kOBlockBytes);
        if constexpr (!Layout::kOOverQ) {
          source = smem.o_buffer(ring.stage);
          smem.wait(smem.o_staged(ring.stage), Layout::kReusesO ? ring.parity : 0);
        }
        if constexpr (Config::kRagged && Config::kFuseGqa) {
          tma_store_4d(arguments.o_map, source, block * Layout::kOutputBlockColumns, 0,
                       work.kv_head, row);
        } else if constexpr (Config::kRagged) {
          tma_store_3d(arguments.o_map, source, block * Layout::kOutputBlockColumns, work.head,
                       row);
        } else if constexpr (Config::kFuseGqa) {
          tma_store_5d(arguments.o_map, source, block * Layout::kOutputBlockColumns, 0,
                       work.kv_head, position, work.batch);
        } else {
          tma_store_4d(arguments.o_map, source, block * Layout::kOutputBlockColumns, work.head,
                       position, work.batch);
        }
        if constexpr (!Layout::kOOverQ) {
          bulk_commit_group();
          if constexpr (Layout::kReusesO) {
            // The block before has been read: two are on their way.
            bulk_wait_group_read<1>();
            if (stored) mbarrier_arrive(smem.o_empty(ring.stage ^ 1));
            stored = true;
          }
          ring.advance(Config::kOBuffers);
        }
      }
      if constexpr (Layout::kOOverQ) {
        bulk_commit_group();
        if constexpr (!Config::kOneWorkTile) {
          bulk_wait_group_read();
          mbarrier_arrive(smem.q_empty(tile));
        }
      }
    }
    parity ^= work.num_qo == 1 ? 1u : 3u;
  }
  // The CTA's memory stays until the last has been read.
  if constexpr (!Layout::kOOverQ || Config::kOneWorkTile) bulk_wait_group_read();
}

}  // namespace attnjit::sm100

// The store warp's thread: O from shared memory by TMA, clipped at q_len.
#pragma once

#include "sm100/work.cuh"

namespace attnjit::sm100 {

template <class Config, class Mask, class Arguments, class P>
ATTNJIT_DEVICE void store(const Smem<Config>& smem, const Arguments& arguments, const P& params) {
  using L = Layout<Config>;
  int parity = 0;
  for (WorkList<Config, Mask, Arguments, P> list(arguments, params); !list.done(); list.advance()) {
    const WorkTile work = list.tile();
#pragma unroll
    for (int tile = 0; tile < Config::kNumQo; ++tile) {
      mbarrier_wait(smem.o_staged(tile), parity);
      const int position = work.first_position + tile * L::kPositions;
      if (position < arguments.q_len) {
#pragma unroll
        for (int block = 0; block < L::kOvBlocks; ++block) {
          const u32 source = smem.q(tile) + static_cast<u32>(block * L::kQBlockBytes);
          if constexpr (Config::kFuseGqa) {
            tma_store_5d(arguments.o_map, source, block * 64, 0, work.kv_head, position,
                         work.batch);
          } else {
            tma_store_4d(arguments.o_map, source, block * 64, work.head, position, work.batch);
          }
        }
        bulk_commit_group();
        bulk_wait_group_read();
      }
      mbarrier_arrive(smem.q_empty(tile));
    }
    parity ^= 1;
  }
}

}  // namespace attnjit::sm100

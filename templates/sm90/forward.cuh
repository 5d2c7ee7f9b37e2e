// SPDX-License-Identifier: Apache-2.0
// The sm_90a attention forward kernel: a producer warpgroup that loads by TMA and one to three
// consumer warpgroups that compute by wgmma.
//
// Config: the plan's constants (sm90/layout.cuh says what must hold of them). Mask and ScoreMod:
// see common/mask.cuh and common/score_mod.cuh. Arguments has
//   const TensorMap *q_map, *o_map   4-D: depth, head, position, batch; a box is 64 rows
//   const TensorMap *k_map, *v_map   4-D: depth, key, head, batch; a box is kTileN keys
//   float* lse, const float* sink                    where Config::kReturnLse, kSink
//   int num_q_heads, q_len, kv_len, m_tiles, total_tiles, paired_units; float scale
#pragma once

#include "sm90/consumer.cuh"
#include "sm90/producer.cuh"

namespace attnjit::sm90 {

template <class Config, class Mask, class ScoreMod, class Arguments, class P>
ATTNJIT_DEVICE void forward(const Arguments& arguments, const P& params) {
  extern __shared__ __align__(1024) unsigned char dynamic_smem[];
  const Smem<Config> smem{shared_address(dynamic_smem)};
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x >> 7));

  if (threadIdx.x == 0) {
    prefetch_tensor_map(arguments.q_map);
    prefetch_tensor_map(arguments.k_map);
    prefetch_tensor_map(arguments.v_map);
    prefetch_tensor_map(arguments.o_map);
    constexpr int kConsumerWarps = 4 * Config::kConsumers;
#pragma unroll
    for (int i = 0; i < Config::kQStages * Config::kConsumers; ++i) {
      mbarrier_init(smem.q_full(i / Config::kConsumers, i % Config::kConsumers), 1);
      mbarrier_init(smem.q_empty(i / Config::kConsumers, i % Config::kConsumers), 4);
    }
#pragma unroll
    for (int stage = 0; stage < Config::kStages; ++stage) {
      mbarrier_init(smem.k_full(stage), 1);
      mbarrier_init(smem.k_empty(stage), kConsumerWarps);
      mbarrier_init(smem.v_full(stage), 1);
      mbarrier_init(smem.v_empty(stage), kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<Config::kProducerRegisters>();
    if (warp_uniform(static_cast<int>(threadIdx.x >> 5)) == 0 && elect_one()) {
      produce<Config, Mask>(smem, arguments, params);
    }
  } else {
    setmaxnreg_inc<Config::kConsumerRegisters>();
    consume<Config, Mask, ScoreMod>(smem, arguments, params, warpgroup - 1);
  }
}

}  // namespace attnjit::sm90

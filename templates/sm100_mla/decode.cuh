// SPDX-License-Identifier: Apache-2.0
// The sm_100a kernel of absorbed MLA: all query heads over one row of K per key, whose latent part
// is V; and of head_dim above 256, whose V is a tensor of its own. A CTA has 64 rows; S, P and O
// of 64 rows are in tensor memory.
//
// Config: the plan's constants (sm100_mla/layout.cuh says what must hold of them). Mask and
// ScoreMod: see common/mask.cuh and common/score_mod.cuh. Arguments is what sm90_mla/decode.cuh
// says.
#pragma once

#include "mla/producer.cuh"
#include "sm100_mla/products.cuh"
#include "sm100_mla/softmax.cuh"

namespace attnjit::sm100_mla {

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void decode(const Arguments& arguments, const Params& params) {
  static_assert(skips_hidden_tiles<Config>() == Mask::kBlockSparse,
                "the plan says whether tiles are asked about");
  extern __shared__ __align__(kSwizzlePeriod) unsigned char dynamic_smem[];
  const Smem<Config> smem(shared_address(dynamic_smem), arguments);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));
  const int lane = static_cast<int>(threadIdx.x & 31u);

  if (threadIdx.x == 0) {
    mla::begin_cta<Config>(smem, arguments);
    init_barriers<Config>(smem.barrier(0));
  } else if (warp == kScoresWarp) {
    tcgen05_alloc<Config::kTmemColumns>(smem.tmem_address());
    tcgen05_relinquish_alloc_permit();
    tcgen05_fence_before();
  }
  // NOTE: before anything is read or written: the launch before may still write it, or read it.
  await_prerequisites();
  find_sequence_range<Config, Mask>(smem, arguments, params);
  const int cta = mla::begin_together<Config>();
  tcgen05_fence_after();
  const Tmem<Config> tmem{load_shared_word(smem.tmem_address())};

  if (warp < kSoftmaxWarp) {
    if constexpr (Config::kRowCopies) {
      using Copies = mla::ThreadCopies<Config, Mask, Arguments>;
      mla::Producer<Config, Mask, Copies, Arguments, Params>{
          smem,   arguments,
          params, Copies{smem, arguments, warp % mla::kTileCopyWarps<Config>, lane},
          cta,    warp,
          lane}
          .run();
    } else if (warp == 0 || (Config::kLoadsApart && warp == mla::kVLoadWarp)) {
      using Copies = mla::BoxCopies<Config, Mask, Arguments>;
      mla::Producer<Config, Mask, Copies, Arguments, Params>{
          smem, arguments, params, Copies{smem, arguments, cta, 0, lane}, cta, warp, lane}
          .run();
    }
  } else if (warp < kScoresWarp) {
    SoftmaxWarp<Config, Mask, ScoreMod, Arguments, Params>(smem, tmem, arguments, params).run();
    named_barrier_arrive(kTeardownBarrier, kTeardownThreads);
  } else if (warp == kScoresWarp) {
    ScoresWarp<Config>{{smem, tmem, lane}}.run();
    named_barrier_sync(kTeardownBarrier, kTeardownThreads);
    tcgen05_fence_after();
    tcgen05_dealloc<Config::kTmemColumns>(tmem.base);
  } else if (warp == kOutputWarp) {
    OutputWarp<Config>{{smem, tmem, lane}}.run();
  }
  // The other CTA may still load into this one's memory, and arrive at its barriers.
  if constexpr (Config::kCluster > 1) cluster_barrier();
}

}  // namespace attnjit::sm100_mla

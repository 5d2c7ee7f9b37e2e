// SPDX-License-Identifier: Apache-2.0
// The sm_90a kernel of absorbed MLA, all query heads over one row of K per key, whose latent part
// is V; and of head_dim above 256, whose V is a tensor of its own. A producer warpgroup loads;
// two consumer warpgroups share a tile of 64 rows, each with half of O's columns.
//
// Config: the plan's constants (sm90_mla/layout.cuh says what must hold of them). Mask and
// ScoreMod: see common/mask.cuh and common/score_mod.cuh. Arguments has
//   const TensorMap* q_map           4-D: depth, head, position, batch; a box is 64 rows
//   const TensorMap* k_map           4-D: depth, key, head, batch; of pages depth, row, head, page;
//                                    a box is kBoxKeys rows; where Config::kSeparateV so is v_map
//   unsigned char* o; i64 o_batch_bytes, o_row_bytes, o_head_bytes
//   float* lse, const float* sink    where Config::kReturnLse, kSink
//   int num_q_heads, q_len, kv_len, m_tiles, total_tiles, paired_units; float scale
// Where sequences differ in length it has, for m_tiles to paired_units, what sm90/forward.cuh says:
//   batch, kv_lens, kv_offsets, total_kv, page_table, max_pages, q_offsets, total_q
// and where Config::kRowCopies, for k_map,
//   const unsigned char* k; int num_pages; i64 k_page_bytes, k_row_bytes
// with k_head_bytes and the same of v where Config::kSeparateV;
// and where Config::kSplit, for the partitions' results, which a merge follows,
//   float *partial_o, *partial_lse; int partitions; i64 rows
// with int uniform_splits where Config::kStreamK, and int cluster_reduced where
// Config::kClusterReduces (common/sequence_ranges.cuh)
#pragma once

#include "mla/producer.cuh"
#include "sm90_mla/consumer.cuh"

namespace attnjit::sm90_mla {

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void decode(const Arguments& arguments, const Params& params) {
  static_assert(skips_hidden_tiles<Config>() == Mask::kBlockSparse,
                "the plan says whether tiles are asked about");
  extern __shared__ __align__(kSwizzlePeriod) unsigned char dynamic_smem[];
  const Smem<Config> smem(shared_address(dynamic_smem), arguments);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x >> 7));

  if (threadIdx.x == 0) {
    mla::begin_cta<Config>(smem, arguments);
    init_barriers<Config>(smem.barrier(0));
  }
  // Where two CTAs reduce, each arrives at barriers of the other, which are made by then.
  if (reduces_cluster<Config>(arguments)) {
    cluster_arrive_relaxed();
    cluster_wait();
  }
  // NOTE: before anything is read or written: the launch before may still write it, or read it.
  // Where lengths are not asked for all roles are at their work by then.
  if (finds_by_lengths<Config>(arguments)) await_prerequisites();
  find_sequence_range<Config, Mask>(smem, arguments, params);
  const int cta = mla::begin_together<Config>();

  if (warpgroup == 0) {
    setmaxnreg_dec<Config::kProducerRegisters>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));
    const int lane = static_cast<int>(threadIdx.x & 31u);
    if (!mla::kMayLoadQAtOnce<Config> || warp != mla::kQLoadWarp) await_prerequisites();
    if constexpr (Config::kRowCopies) {
      using Copies = mla::ThreadCopies<Config, Mask, Arguments>;
      mla::Producer<Config, Mask, Copies, Arguments, Params>{
          smem, arguments, params, Copies{smem, arguments, warp, lane}, cta, warp, lane}
          .run();
    } else if (warp < Config::kStageLoaders) {
      using Copies = mla::BoxCopies<Config, Mask, Arguments>;
      mla::Producer<Config, Mask, Copies, Arguments, Params>{
          smem, arguments, params, Copies{smem, arguments, 0, warp, lane}, 0, warp, lane}
          .run();
    } else if constexpr (mla::kMayLoadQAtOnce<Config>) {
      using Copies = mla::BoxCopies<Config, Mask, Arguments>;
      if (warp == mla::kQLoadWarp) {
        mla::Producer<Config, Mask, Copies, Arguments, Params>{
            smem, arguments, params, Copies{smem, arguments, 0, warp, lane}, 0, warp, lane}
            .load_q_at_once();
      }
    }
  } else {
    setmaxnreg_inc<Config::kConsumerRegisters>();
    // NOTE: no wait for the launch before: a work tile is published by a warp that has waited, and
    // then what that launch wrote is visible to the whole grid (PTX 9.7.13.13).
    name_accumulators<Config>();
    Consumer<Config, Mask, ScoreMod, Arguments, Params>(smem, arguments, params, warpgroup - 1)
        .run();
  }
  // The other CTA may still store to this one's memory, and arrive at its barriers.
  if constexpr (Config::kCluster > 1) cluster_barrier();
}

}  // namespace attnjit::sm90_mla

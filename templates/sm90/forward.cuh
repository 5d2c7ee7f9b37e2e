// SPDX-License-Identifier: Apache-2.0
// The sm_90a attention forward kernel: a producer warpgroup that loads by TMA, another one where K
// is upcast, and one to three consumer warpgroups that compute by wgmma.
//
// Config: the plan's constants (sm90/layout.cuh says what must hold of them). Mask and ScoreMod:
// see common/mask.cuh and common/score_mod.cuh. Arguments has
//   const TensorMap *q_map, *o_map   4-D: depth, head, position, batch; a box is a consumer's rows
//   const TensorMap *k_map, *v_map   4-D: depth, key, head, batch; a box is kTileN keys
//   float* lse, const float* sink                    where Config::kReturnLse, kSink
//   const float *k_scale, *v_scale                   where Config::kScales is not kNoScales
//   const float* q_scale                             and Q is e4m3, too
//   i64 scale_page_stride, scale_row_stride, scale_head_stride   and they are of a page's tokens
//   const float* output_scale                        where O is e4m3
//   int num_q_heads, q_len, kv_len, m_tiles, total_tiles, paired_units; float scale
//   int tile_groups, first_tiles, second_tiles, tile_growth
//   int small_tile                                   where there is a Config::SmallTile
//   TileCounters* tile_counters                      where tiles are dynamic
// Where sequences differ in length (pages, ragged batches) it has, for m_tiles to tile_growth,
//   const int* kv_lens; int batch                    of each; q_len and kv_len are the longest's
//   const int* kv_offsets; int total_kv              where Config::kRaggedKv, for kv_lens: sequence
//                                                    b has the keys from kv_offsets[b] on
//   const int* page_table; int max_pages             where Config::kPageSize; k_map and v_map are
//                                                    depth, row, head, page; a box is kBoxKeys rows
//   const int* q_offsets; int total_q                where Config::kRagged: sequence b has the rows
//   unsigned char* o; i64 o_row_bytes, o_head_bytes  from q_offsets[b] on to q_offsets[b + 1]
// and where O is f32, for o_map,
//   unsigned char* o; i64 o_batch_bytes, o_row_bytes, o_head_bytes   the first but of ragged
//   batches
// and where Config::kRowCopies, for k_map and v_map,
//   const unsigned char *k, *v; int num_pages
//   i64 k_page_bytes, k_row_bytes, k_head_bytes, v_page_bytes, v_row_bytes, v_head_bytes
// and where Config::kBlockMask, of a map of the mask (maps/map_rows.cuh)
//   const int *kv_num_blocks, *kv_indices, *full_kv_num_blocks, *full_kv_indices
//   int map_batches, map_heads, heads_per_map, map_q_blocks, map_kv_blocks
// and where Config::kBlockMaskBits, of its bits (maps/block_bits.cuh)
//   const int* kv_bits; const u32* block_bits; int bit_blocks
// and where Config::kSplit, for the partitions' results, which a merge follows,
//   float *partial_o, *partial_lse; int partitions; i64 rows
//   where Config::kCuts several partitions are the ranges that there is room for, and of sequences
//   of one length the CTAs (common/cut_table.cuh)
// with int uniform_splits where Config::kHeadStreamK (common/sequence_ranges.cuh)
// and where Config::kDebugWaits
//   unsigned* wait_records
#pragma once

#include "common/sequence_ranges.cuh"
#include "common/sequence_tiles.cuh"
#include "common/work_ranges.cuh"
#include "sm90/box_copies.cuh"
#include "sm90/consumer.cuh"
#include "sm90/producer.cuh"
#include "sm90/row_copies.cuh"
#include "sm90/tile_copies.cuh"
#include "sm90/transposer.cuh"
#include "sm90/upcaster.cuh"
#include "sm90/warp_producer.cuh"

namespace attnjit::sm90 {

/// The work of a CTA, by one body of the kernel.
template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void run_body(const Arguments& arguments, const Params& params) {
  static_assert(Config::kBlockSparse == (Mask::kBlockSparse || Config::kBlockMask),
                "the plan has room for the descriptors of a list");
  extern __shared__ __align__(kSwizzlePeriod) unsigned char dynamic_smem[];
  const Smem<Config> smem(shared_address(dynamic_smem), arguments);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x >> 7));

  if (threadIdx.x == 0) {
    // What comes next finds room as CTAs of this grid end: the merge, or another launch.
    if constexpr (Config::kOverlaps) launch_dependents();
    check_alignment(smem.base);
    prefetch_tensor_map(arguments.q_map);
    if constexpr (!Config::kRowCopies) {
      prefetch_tensor_map(arguments.k_map);
      prefetch_tensor_map(arguments.v_map);
    }
    if constexpr (!LayoutOf<Config>::kOFromRegisters) prefetch_tensor_map(arguments.o_map);
    init_barriers<Config>(smem.barrier(0));
  }
  if constexpr (sums_by_product<Config>()) {
    using Layout = LayoutOf<Config>;
    static_assert(
        Config::kOnesOffset % 16 == 0 &&
            Config::kOnesOffset >= Config::kRawOffset + Config::kRawStages * Layout::kRawVBytes &&
            Config::kOnesOffset >= Config::kOOffset + Config::kConsumers * Config::kOBlocks *
                                                          Layout::kConsumerBlockBytes &&
            Config::kWorkOffset >= Config::kOnesOffset + kOnesBytes,
        "ones lie behind V's rows and O, and before the published work");
    if (threadIdx.x < kOnesBytes / 16) {
      store_shared_v4(smem.ones() + 16 * threadIdx.x, kFourOnes, kFourOnes, kFourOnes, kFourOnes);
      fence_proxy_async_shared();  // wgmma reads through it
    }
  }
  if constexpr (packs_units<Config>()) clear_idle_rows<Config>(smem);
  // NOTE: before anything is read or written: the launch before may still write it, or read it.
  if constexpr (Config::kOverlaps) await_prerequisites();
  if constexpr (deals_head_ranges<Config>()) {
    find_sequence_range<Config, Mask>(smem, arguments, params);
  }
  if constexpr (cuts_tiles<Config>() && kLengthsDiffer<Config>) {
    using Finder = CutFinder<Config, Mask, SequenceTiling<Config>, Arguments, Params>;
    find_cuts<Finder>(CutWords{smem.cursor(0)}, arguments, params);
  }
  __syncthreads();

  constexpr int kProducers = LayoutOf<Config>::kProducers;
  if (warpgroup == 0) {
    setmaxnreg_dec<Config::kProducerRegisters>();
    const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));
    const int lane = static_cast<int>(threadIdx.x & 31u);
    if constexpr (Config::kRowCopies) {
      using Copies = RowCopies<Config, Arguments>;
      using List = SequenceSchedulerOf<Config, Mask, Arguments, Params>;
      if (Copies::kWarps == kRowCopyWarps || warp < Copies::kWarps) {
        WarpProducer<Config, Mask, Copies, List, Arguments, Params>{
            smem, arguments, params, Copies{smem, arguments, warp, lane}, warp, lane}
            .run();
      }
    } else if (warp == 0) {
      using Copies = BoxCopies<Config, Arguments>;
      using List =
          Either<LayoutOf<Config>::kKvLens, SequenceSchedulerOf<Config, Mask, Arguments, Params>,
                 WarpScheduler<Config, Mask, Arguments, Params>>;
      if constexpr (kListsBoxes<Config>) {
        WarpProducer<Config, Mask, TileCopies<Config, Arguments>, List, Arguments, Params>{
            smem, arguments, params, {smem, arguments}, warp, lane}
            .run();
      } else if constexpr (LayoutOf<Config>::kKvLens || Config::kBlockSparse) {
        WarpProducer<Config, Mask, Copies, List, Arguments, Params>{
            smem, arguments, params, Copies{smem, arguments, lane}, warp, lane}
            .run();
      } else if constexpr (cuts_tiles<Config>()) {
        // NOTE: each list has its loop: both would not fit the producer's registers.
        Producer<Config, Mask, Arguments, Params> producer{smem, arguments, params};
        if (arguments.partitions > 1) {
          RangeList<Config, Mask, Arguments, Params> list(arguments, params, lane);
          if (elect_one()) producer.load_all(list);
        } else if (elect_one()) {
          producer.template load_all<StaticScheduler<Config, Mask, Arguments, Params>>();
        }
      } else if (elect_one()) {
        Producer<Config, Mask, Arguments, Params>{smem, arguments, params}.run();
      }
    }
    if constexpr (LayoutOf<Config>::kHasRawTiles) {
      // NOTE: not from `warp`, which would be kept while a tile scheduler is walked.
      const int own =
          (rematerializes<Config>() ? thread_read_again() >> 5 : warp) - Config::kFirstVRewriter;
      if constexpr (Config::kE4m3) {
        if (own >= 0) Transposer<Config, Arguments>{smem, arguments, own, lane}.run();
      } else {
        if (own >= 0) Upcaster<Config, Arguments, false>{smem, arguments, own, lane}.run();
      }
    }
  } else if (kProducers == 2 && warpgroup == 1) {
    setmaxnreg_dec<Config::kProducerRegisters>();
    if constexpr (Config::kUpcastsKv) {
      const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5)) & 3;
      Upcaster<Config, Arguments, true>{smem, arguments, warp, static_cast<int>(threadIdx.x & 31u)}
          .run();
    }
  } else if (LayoutOf<Config>::kIdle > 0 && warpgroup >= kProducers + Config::kConsumers) {
    setmaxnreg_dec<Config::kProducerRegisters>();
  } else {
    setmaxnreg_inc<Config::kConsumerRegisters>();
    // NOTE: a constant where there is one, and not kept in a register.
    const int rank = Config::kConsumers == 1 ? 0 : warpgroup - kProducers;
    Consumer<Config, Mask, ScoreMod, Arguments, Params>(smem, arguments, params, rank).run();
  }
}

/// The body that the launch chose, where there are two.
template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void forward(const Arguments& arguments, const Params& params) {
  name_accumulators<Config>();
  if constexpr (requires { typename Config::SmallTile; }) {
    name_accumulators<typename Config::SmallTile>();
    if (arguments.small_tile != 0) {
      run_body<typename Config::SmallTile, Mask, ScoreMod>(arguments, params);
      return;
    }
  }
  run_body<Config, Mask, ScoreMod>(arguments, params);
}

}  // namespace attnjit::sm90

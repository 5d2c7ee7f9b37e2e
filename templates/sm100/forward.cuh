// SPDX-License-Identifier: Apache-2.0
// The sm_100a attention forward kernel: warps with a job each, S, P and O in tensor memory.
//
// Config: the plan's constants (sm100/layout.cuh says what must hold of them). Mask and ScoreMod:
// see common/mask.cuh and common/score_mod.cuh. Arguments has
//   const TensorMap *q_map, *k_map, *v_map, *o_map
//     Q and O: depth, head, row, batch, with fused heads depth, group, kv_head, row, batch; ragged
//     without batch. K and V: depth, kv_head, row, batch; paged depth, kv_head, row, page
//   const TensorMap *q_rope_map, *k_rope_map         where Config::kSeparateRope: as Q's, and as
//                                                    K's of one head
//   float* lse, const float* sink                    where Config::kReturnLse, kSink
//   const float *q_scale, *k_scale, *v_scale         where Config::kScales (sm100/scales.cuh)
//   const float* output_scale                        where Config::kOutputBytes is 1: O is e4m3
//   int num_q_heads, m_tiles, total_heads, section_heads
//   int total_tiles                                  unless Config::kOneWorkTile, or steals_tiles()
//   int q_len, kv_len                                of the longest sequence
//   const int* kv_lens                               paged or ragged: of each sequence
//   const int* page_table, int max_pages             paged: row b has sequence b's pages
//   int num_pages; i64 scale_page_stride, scale_row_stride, scale_head_stride
//                                                    paged, where each key has a scale of its own
//   const int* q_offsets, int batch, total_q         ragged: sequence b has the rows from
//   unsigned char* o, i64 o_row_bytes, o_head_bytes  q_offsets[b] on to q_offsets[b + 1]
//   int one_query                                    where Config::kSwitchTo1Q
// where Config::kPublished and not kCounted, for total_tiles, m_tiles, total_heads, section_heads,
//   int batch
//   const int* kv_offsets; int total_kv              where Config::kRaggedKv, for kv_lens: sequence
//                                                    b has the keys from kv_offsets[b] on
// where Config::kRowCopies or kUpcastsKv, for k_map and v_map,
//   const unsigned char *k, *v; int num_pages        the number where there are pages
//   i64 k_page_bytes, k_row_bytes, k_head_bytes, v_page_bytes, v_row_bytes, v_head_bytes
//                                                    of a page, or of a sequence
// where Config::kSplit, for the partitions' results, which a merge follows,
//   float *partial_o, *partial_lse; int partitions; i64 rows
//                                                    where Config::kCuts, partitions are the CTAs
//                                                    for whose parts there is room
//   TileCounters* tile_counters                      where takes_whole<Config>()
// where Config::kBlockMask, of a map's lists for work tiles (maps/list_tiles.cuh)
//   const int *list_counts, *list
//   int map_batches, map_heads, heads_per_map, lists_per_map, rows_per_list, list_places
// and where Config::kBlockMaskBits, of its bits (maps/block_bits.cuh)
//   const int* list_descriptors; const u32* block_bits; int bit_blocks
// and always
//   float scale
//   unsigned* wait_records                           where Config::kDebugWaits
#pragma once

#include "sm100/correction.cuh"
#include "sm100/load.cuh"
#include "sm100/mma.cuh"
#include "sm100/publish.cuh"
#include "sm100/softmax.cuh"
#include "sm100/store.cuh"
#include "sm100/tail.cuh"
#include "sm100/upcasting.cuh"

namespace attnjit::sm100 {

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void forward(const Arguments& arguments, const Params& params) {
  using Layout = LayoutOf<Config>;
  static_assert(Config::kSkipsTiles == (Mask::kBlockSparse && !Config::kBlockMask &&
                                        (Config::kOneWorkTile || Config::kPublished)),
                "the plan knows whether the mask says what it shows of tiles");
  extern __shared__ __align__(kSwizzlePeriod) unsigned char dynamic_smem[];
  const u32 base = shared_address(dynamic_smem);
  const Smem<Config> smem(base, arguments);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));

  if (warp == 0) {
    if (elect_one()) {
      // What comes next finds room as CTAs of this grid end: the merge, or another launch.
      if constexpr (Config::kOverlaps) launch_dependents();
      check_alignment(base);
    }
    __syncwarp();
    init_barriers_by_warp<Config>(smem.barrier(0));
  } else if (warp == Layout::kMmaWarp) {
    tcgen05_alloc<Config::kTmemColumns, Layout::kPair>(smem.tmem_address());
    tcgen05_relinquish_alloc_permit<Layout::kPair>();
    tcgen05_fence_before();
  } else if (warp == Layout::kLoadWarp) {
    if (elect_one()) {
      prefetch_tensor_map(arguments.q_map);
      if constexpr (Layout::kBoxesOfKeys) {
        prefetch_tensor_map(arguments.k_map);
        prefetch_tensor_map(arguments.v_map);
      }
      if constexpr (Layout::kSeparateRope) {
        prefetch_tensor_map(arguments.q_rope_map);
        prefetch_tensor_map(arguments.k_rope_map);
      }
      prefetch_tensor_map(arguments.o_map);
    }
  } else if (warp == Layout::kStoreWarp) {
    if constexpr (Layout::kBoxQRows < kRows) clear_spare_rows(smem);
  } else if (warp == Layout::kSpareWarp) {
    if constexpr (Config::kOneWorkTile) {
      if constexpr (Config::kOverlaps) await_prerequisites();
      find_only_work<Config, Mask>(smem, arguments, params);
    }
  }
  // NOTE: before anything is read or written: the launch before may still write it, or read it.
  if constexpr (Config::kOverlaps) await_prerequisites();
  if constexpr (cuts_tiles<Config>()) {
    using Tiling = SequenceTiling<Config>;
    using Finder = Either<takes_whole<Config>(), CutFinder<Config, Mask, Tiling, Arguments, Params>,
                          DecodeFinder<Config, Mask, Tiling, Arguments, Params>>;
    find_cuts<Finder>(CutWords{smem.cuts()}, arguments, params);
  }
  if constexpr (Layout::kPair) {
    cluster_barrier();
  } else {
    __syncthreads();
  }
  tcgen05_fence_after();
  const u32 tmem = load_shared_word(smem.tmem_address());

  // NOTE: each role has its own, opaque copies of the addresses: of shared ones, alive in every
  // role, the role with the fewest registers would make all others spill.
  if (warp < Layout::kCorrectionWarp) {
    setmaxnreg_inc<Config::kSoftmaxRegisters>();
    softmax<Config, Mask, ScoreMod>(Smem<Config>(opaque(base), arguments),
                                    Tmem<Config>{opaque(tmem)}, arguments, params, warp >> 2);
  } else if (warp < Layout::kMmaWarp) {
    setmaxnreg_dec<Config::kCorrectionRegisters>();
    correct<Config, Mask>(Smem<Config>(opaque(base), arguments), Tmem<Config>{opaque(tmem)},
                          arguments, params);
    if constexpr (!Layout::kPair) named_barrier_arrive(kTeardownBarrier, kTeardownThreads);
  } else if (Config::kUpcastsKv && warp >= Layout::kUpcastWarp) {
    if constexpr (Config::kUpcastsKv) {
      if constexpr (Config::kUpcastRegisters > Layout::kLaunchRegisters) {
        setmaxnreg_inc<Config::kUpcastRegisters>();
      } else {
        setmaxnreg_dec<Config::kUpcastRegisters>();
      }
      upcast<Config, Mask>(Smem<Config>(opaque(base), arguments), arguments, params,
                           warp - Layout::kUpcastWarp);
    }
  } else {
    // Jobs that one thread each does.
    setmaxnreg_dec<Config::kOtherRegisters>();
    if constexpr (Config::kPublished) {
      if (warp == Layout::kSpareWarp)
        publish<Config, Mask>(Smem<Config>(opaque(base), arguments), arguments, params);
    } else if constexpr (Layout::kTails) {
      if (warp == Layout::kSpareWarp)
        clear_only_tail<Config>(Smem<Config>(opaque(base), arguments), arguments, params);
    }
    if constexpr (Config::kRowCopies) {
      if (warp == Layout::kLoadWarp)
        load<Config, Mask>(Smem<Config>(opaque(base), arguments), arguments, params);
    }
    if (elect_one()) {
      const Smem<Config> own(opaque(base), arguments);
      if (warp == Layout::kMmaWarp && own.leads()) {
        multiply<Config, Mask>(own, Tmem<Config>{opaque(tmem)}, arguments, params);
      } else if (!Config::kRowCopies && warp == Layout::kLoadWarp) {
        if constexpr (Config::kUpcastsKv) {
          load_queries<Config, Mask>(own, arguments, params);
        } else {
          load<Config, Mask>(own, arguments, params);
        }
      } else if (warp == Layout::kStoreWarp) {
        store<Config, Mask>(own, arguments, params);
      }
    }
    __syncwarp();
    if (!Layout::kPair && warp == Layout::kMmaWarp) {
      // The correction warps have read the last O, and before it the softmax warps the last S.
      named_barrier_sync(kTeardownBarrier, kTeardownThreads);
      tcgen05_fence_after();
      tcgen05_dealloc<Config::kTmemColumns>(tmem);
    }
  }
  if constexpr (Layout::kPair) {
    // The memory of each stays until the other neither multiplies it nor arrives at its barriers.
    cluster_barrier();
    if (warp == Layout::kMmaWarp) {
      tcgen05_fence_after();
      tcgen05_dealloc<Config::kTmemColumns, true>(tmem);
    }
  }
}

}  // namespace attnjit::sm100

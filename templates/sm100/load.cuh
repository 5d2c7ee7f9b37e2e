// The load warp's thread: Q, K and V of every work tile by TMA, as far ahead as the stages allow.
#pragma once

#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// Loads columns [64 block, 64 block + 64) of 128 rows of Q.
template <class Config, class Arguments>
ATTNJIT_DEVICE void load_q_block(const Smem<Config>& smem, const Arguments& arguments,
                                 const WorkTile& work, int tile, int block, u32 barrier) {
  using L = Layout<Config>;
  const u32 destination = smem.q(tile) + static_cast<u32>(block * L::kQBlockBytes);
  const int position = work.first_position + tile * L::kPositions;
  if constexpr (Config::kFuseGqa) {
    tma_load_5d(destination, arguments.q_map, barrier, block * 64, 0, work.kv_head, position,
                work.batch, kEvictFirst);
  } else {
    tma_load_4d(destination, arguments.q_map, barrier, block * 64, work.head, position, work.batch,
                kEvictFirst);
  }
}

/// Loads a chunk of a tile of K or V.
template <class Config, bool kIsK, class Arguments>
ATTNJIT_DEVICE void load_kv_chunk(const KvTile<Config, kIsK>& kv, const Arguments& arguments,
                                  const WorkTile& work, int tile, int chunk) {
  constexpr int kBlocks = KvTile<Config, kIsK>::kBlocks / KvTile<Config, kIsK>::kChunks;
  kv.acquire(chunk);
  kv.expect(chunk);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const int block = chunk * kBlocks + i;
    tma_load_4d(kv.block(block), kIsK ? arguments.k_map : arguments.v_map, kv.full(chunk),
                block * 64, work.kv_head, tile * Config::kTileN, work.batch, kEvictLast);
  }
}

/// Takes K and V in the order of the products (sm100/mma.cuh): with two query tiles K and V by
/// turns, with one a K tile ahead.
template <class Config, class Mask, class Arguments, class P>
ATTNJIT_DEVICE void load(const Smem<Config>& smem, const Arguments& arguments, const P& params) {
  using L = Layout<Config>;
  KvSequence<Config> kv(smem);
  int q_parity = 1;

  for (WorkList<Config, Mask, Arguments, P> list(arguments, params); !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    const int tiles = work.tiles();

    const auto load_k = [&](int rank, bool with_q) {
      const KvTile<Config, true> k = kv.template next<true>();
#pragma unroll
      for (int chunk = 0; chunk < Config::kQkStages; ++chunk) {
        load_kv_chunk(k, arguments, work, work.tile_end - 1 - rank, chunk);
        if (!with_q) continue;
#pragma unroll
        for (int tile = 0; tile < Config::kNumQo; ++tile) {
          if (chunk == 0) mbarrier_wait(smem.q_empty(tile), q_parity);
          const u32 full = smem.q_full(tile, chunk);
          mbarrier_arrive_expect_tx(full, L::kChunkBlocks * L::kQBlockBytes);
#pragma unroll
          for (int i = 0; i < L::kChunkBlocks; ++i) {
            load_q_block(smem, arguments, work, tile, chunk * L::kChunkBlocks + i, full);
          }
        }
      }
    };
    const auto load_v = [&](int rank) {
      load_kv_chunk(kv.template next<false>(), arguments, work, work.tile_end - 1 - rank, 0);
    };

    if (tiles == 0) {
      // NOTE: waits all the same, though it loads nothing: a phase that nobody waited for would
      // make the next wait return a tile too early.
#pragma unroll
      for (int tile = 0; tile < Config::kNumQo; ++tile) {
        mbarrier_wait(smem.q_empty(tile), q_parity);
      }
    } else {
      load_k(0, true);
      if constexpr (Config::kNumQo == 1) {
        if (tiles > 1) load_k(1, false);
      }
      constexpr int kAhead = Config::kNumQo == 1 ? 2 : 1;
      for (int rank = 0; rank < tiles; ++rank) {
        load_v(rank);
        if (rank + kAhead < tiles) load_k(rank + kAhead, false);
      }
    }
    q_parity ^= 1;
  }

  // The CTA's memory stays until the products have read, and their barriers have heard of, all.
#pragma unroll 1
  for (int i = 0; i < Config::kStages; ++i) {
    const KvTile<Config, true> k = kv.template next<true>();
#pragma unroll
    for (int chunk = 0; chunk < Config::kQkStages; ++chunk) k.acquire(chunk);
    if constexpr (!Config::kFusedKv) kv.template next<false>().acquire(0);
  }
}

}  // namespace attnjit::sm100

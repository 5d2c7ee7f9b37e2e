// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows against all their KV tiles.
//
// Design: Shah et al., "FlashAttention-3", 2024: S = Q K^T from shared memory, P stays in registers
// as the A operand of O += P V; the next tile's S is computed while this tile's softmax runs
// (overlap within the warpgroup), and warpgroups take turns at issuing products, so that one's
// softmax runs under another's (ping-pong).
#pragma once

#include "sm90/softmax.cuh"
#include "sm90/work.cuh"

namespace attnjit::sm90 {

/// Named barriers; 0 is the whole CTA's.
constexpr int kTurnBarrier = 1;      ///< + consumer: its turn to issue products
constexpr int kEpilogueBarrier = 4;  ///< + consumer: its O is in shared memory

template <class Config>
ATTNJIT_DEVICE void await_turn(int consumer) {
  if constexpr (Config::kPingPong) named_barrier_sync(kTurnBarrier + consumer, 256);
}

template <class Config>
ATTNJIT_DEVICE void pass_turn(int consumer) {
  if constexpr (Config::kPingPong) {
    const int next = consumer == Config::kConsumers - 1 ? 0 : consumer + 1;
    named_barrier_arrive(kTurnBarrier + next, 256);
  }
}

/// Issues S = Q K^T of one tile.
template <class Config>
ATTNJIT_DEVICE void issue_qk(float (&s)[Config::kTileN / 2], u32 q_address, u32 k_address) {
  using L = Layout<Config>;
  const u64 q = matrix_descriptor<16>(q_address);
  const u64 k = matrix_descriptor<16>(k_address);
#pragma unroll
  for (int step = 0; step < L::kQkSteps; ++step) {
    const int in_block = step % 4 * 32;
    Wgmma<Config::kTileN>::template ss<Config::kBf16>(
        s, q + (step / 4 * L::kQBlockBytes + in_block) / 16,
        k + (step / 4 * L::kKvBlockBytes + in_block) / 16, step > 0);
  }
  wgmma_commit();
}

/// Issues O += P V of one tile.
template <class Config>
ATTNJIT_DEVICE void issue_pv(float (&o)[Layout<Config>::kPvColumns / 2],
                             const u32 (&p)[Config::kTileN / 4], u32 v_address) {
  using L = Layout<Config>;
  const u64 v = matrix_descriptor<L::kKvBlockBytes>(v_address);
#pragma unroll
  for (int step = 0; step < L::kPvSteps; ++step) {
    Wgmma<L::kPvColumns>::template rs<Config::kBf16>(o, p[4 * step], p[4 * step + 1],
                                                     p[4 * step + 2], p[4 * step + 3],
                                                     v + step * (16 * 128) / 16, 1);
  }
  wgmma_commit();
}

/// Rounds probabilities to the operand type.
template <class Config>
ATTNJIT_DEVICE void pack_probabilities(u32 (&p)[Config::kTileN / 4],
                                       const float (&s)[Config::kTileN / 2]) {
#pragma unroll
  for (int i = 0; i < Config::kTileN / 4; ++i) {
    p[i] = pack_pair<Config::kBf16>(s[2 * i], s[2 * i + 1]);
  }
}

template <int kCount>
ATTNJIT_DEVICE void rescale_output(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[(i >> 1) & 1];
}

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
ATTNJIT_DEVICE void store_output(const float (&o)[Layout<Config>::kPvColumns / 2],
                                 const Smem<Config>& smem, const Arguments& arguments,
                                 const WorkTile& work, int stage, int consumer, int warp,
                                 int lane) {
  using L = Layout<Config>;
  constexpr bool kOwnMemory = Config::kOBlocks > 0;
  constexpr int kBlocks = kOwnMemory ? Config::kOBlocks : L::kOvBlocks;
  constexpr int kBlockBytes = kOwnMemory ? 64 * 128 : L::kQBlockBytes;
  const u32 rows = kOwnMemory ? smem.o(consumer) : smem.q(stage, consumer);
  const int row = warp * 16 + (lane & 15);
  const int first_row = work.first_row + consumer * 64;
#pragma unroll
  for (int first = 0; first < L::kOvBlocks; first += kBlocks) {
    if constexpr (kOwnMemory) {
      if (warp == 0 && elect_one()) bulk_wait_group_read();
      named_barrier_sync(kEpilogueBarrier + consumer, 128);
    }
#pragma unroll
    for (int i = 4 * first; i < min(4 * (first + kBlocks), L::kPvColumns / 16); ++i) {
      const int chunk = 2 * i + (lane >> 4);  // of 8 columns, 16 bytes
      // NOTE: the 128-byte swizzle, as the TMA store will undo it; rows begin at a multiple of
      // 1024.
      const u32 address =
          rows + (i / 4 - first) * kBlockBytes + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
      stmatrix_x4(address, pack_pair<Config::kOutputBf16>(o[8 * i], o[8 * i + 1]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 2], o[8 * i + 3]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 4], o[8 * i + 5]),
                  pack_pair<Config::kOutputBf16>(o[8 * i + 6], o[8 * i + 7]));
    }
    fence_proxy_async_shared();
    named_barrier_sync(kEpilogueBarrier + consumer, 128);
    if (warp == 0 && elect_one() && first_row >= 0) {
#pragma unroll
      for (int block = first; block < min(first + kBlocks, L::kOvBlocks); ++block) {
        tma_store_4d(arguments.o_map, rows + (block - first) * kBlockBytes, block * 64, work.head,
                     first_row >> Config::kGqaShift, work.batch);
      }
      bulk_commit_group();
    }
  }
}

template <class Config, class Mask, class ScoreMod, class Arguments, class P>
ATTNJIT_DEVICE void consume(const Smem<Config>& smem, const Arguments& arguments, const P& params,
                            int consumer) {
  using L = Layout<Config>;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5)) & 3;
  const int shift = arguments.kv_len - arguments.q_len;
  constexpr int kPack = Config::kGqaShift;
  const int rows = arguments.q_len << kPack;
  const float log2_scale = ScoreMod::kIdentity ? arguments.scale * kLog2e : kLog2e;

  Ring<Config::kStages> k_ring;
  Ring<Config::kStages> v_ring;
  Ring<Config::kQStages> q_ring;
  int unreleased = -1;  // the stage of Q whose memory still holds the O of the work tile before
  const auto release = [&] {
    if constexpr (Config::kOBlocks == 0 && Config::kQStages > 1) {
      if (unreleased >= 0) release_q(smem, unreleased, consumer, lane);
      unreleased = -1;
    }
  };
  if (consumer == Config::kConsumers - 1) pass_turn<Config>(consumer);

  while (true) {
    mbarrier_wait(smem.q_full(q_ring.stage, consumer), q_ring.parity);
    const WorkTile work = load_work(smem.work(q_ring.stage, consumer), lane);
    if (work.batch < 0) break;
    const int group_row = work.first_row + consumer * 64;
    const int thread_row = group_row + warp * 16 + (lane >> 2);
    // This warpgroup's rows may see fewer tiles than the CTA's; before row 0 they see none.
    const int last_row = min(group_row + 64, rows) - 1;
    const WorkTile own = kv_tiles_of<Config, Mask>(work, group_row, last_row, arguments, params);
    // Tiles inside core need no mask.
    const KvRange core = Mask::core((max(group_row, 0) >> kPack) + shift,
                                    (last_row >> kPack) + shift, arguments.kv_len, params);
    ScoreTile tile;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = thread_row + 8 * half;
      const int head = work.head + (row & ((1 << kPack) - 1));
      tile.row[half] = {work.batch,
                        head,
                        work.head / Config::kGroup,
                        (row >> kPack) + shift,
                        0,
                        arguments.q_len,
                        arguments.kv_len};
    }
    const typename ScoreMod::State state[2] = {
        ScoreMod::prepare(tile.row[0].h, arguments.num_q_heads, params),
        ScoreMod::prepare(tile.row[1].h, arguments.num_q_heads, params)};

    OnlineSoftmax softmax{log2_scale};
    float o[L::kPvColumns / 2];
#pragma unroll
    for (int i = 0; i < L::kPvColumns / 2; ++i) o[i] = 0.0f;

    const auto in_core = [&](int index) {
      const int first = index * Config::kTileN;
      return first >= core.begin && core.end - first >= Config::kTileN;
    };
    const auto prepare_scores = [&](float(&s)[Config::kTileN / 2], int index, bool masked) {
      tile.first_kv = index * Config::kTileN + 2 * (lane & 3);
      modify_scores<ScoreMod>(s, tile, state, arguments.scale, params);
      if (masked) mask_scores<Mask>(s, tile, params);
    };

    // Takes part in the pipelines of tiles that no row here sees, and in their turns: one a tile,
    // without the first of a work tile.
    const auto skip = [&](int tiles, bool turn) {
      for (; tiles > 0; --tiles) {
        mbarrier_wait(smem.k_full(k_ring.stage), k_ring.parity);
        if (lane == 0) mbarrier_arrive(smem.k_empty(k_ring.stage));
        k_ring.advance();
        mbarrier_wait(smem.v_full(v_ring.stage), v_ring.parity);
        if (lane == 0) mbarrier_arrive(smem.v_empty(v_ring.stage));
        v_ring.advance();
        // NOTE: after the memory is handed back, which must not wait for another's turn.
        if (turn) {
          await_turn<Config>(consumer);
          pass_turn<Config>(consumer);
        }
        turn = true;
      }
    };

    const u32 q_address = smem.q(q_ring.stage, consumer);
    const bool idle = own.tile_begin >= own.tile_end;
    // Where O has memory of its own, Q is free once the last product has read it.
    const auto release_early = [&] {
      if constexpr (Config::kOBlocks > 0) {
        if (lane == 0) mbarrier_arrive(smem.q_empty(q_ring.stage, consumer));
      }
    };
    if (idle) release_early();
    skip(work.tile_end - (idle ? work.tile_begin : own.tile_end), !idle);
    if (!idle) {
      u32 p[Config::kTileN / 4];
      float correction[2];
      int index = own.tile_end - 1;

      // A tile by itself: S, and P V of the tile before, then the softmax. Serves the first.
      const auto step_alone = [&](bool first) {
        float s[Config::kTileN / 2];
        mbarrier_wait(smem.k_full(k_ring.stage), k_ring.parity);
        if (!first) {
          await_turn<Config>(consumer);
          mbarrier_wait(smem.v_full(v_ring.stage), v_ring.parity);
          pin_registers(o);
          pin_registers(p);
          wgmma_fence();
          issue_pv<Config>(o, p, smem.v(v_ring.stage));
          wgmma_wait<0>();
          pin_registers(o);
          if (lane == 0) mbarrier_arrive(smem.v_empty(v_ring.stage));
          v_ring.advance();
        }
        wgmma_fence();
        issue_qk<Config>(s, q_address, smem.k(k_ring.stage));
        if (!first) pass_turn<Config>(consumer);
        wgmma_wait<0>();
        pin_registers(s);
        // NOTE: each warp arrives for itself: a wgmma wait covers the executing threads' products.
        if (lane == 0) mbarrier_arrive(smem.k_empty(k_ring.stage));
        if (index == own.tile_begin) release_early();
        k_ring.advance();
        prepare_scores(s, index, !in_core(index));
        const bool moved = softmax.step(s, correction);
        pack_probabilities<Config>(p, s);
        if (moved) rescale_output(o, correction);
      };
      // A tile whose softmax runs under P V of the tile before.
      const auto step = [&](bool masked) {
        float s[Config::kTileN / 2];
        mbarrier_wait(smem.k_full(k_ring.stage), k_ring.parity);
        await_turn<Config>(consumer);
        pin_registers(o);
        pin_registers(p);
        wgmma_fence();
        issue_qk<Config>(s, q_address, smem.k(k_ring.stage));
        mbarrier_wait(smem.v_full(v_ring.stage), v_ring.parity);
        wgmma_fence();
        issue_pv<Config>(o, p, smem.v(v_ring.stage));
        pass_turn<Config>(consumer);
        wgmma_wait<1>();
        pin_registers(s);
        if (lane == 0) mbarrier_arrive(smem.k_empty(k_ring.stage));
        if (index == own.tile_begin) release_early();
        k_ring.advance();
        prepare_scores(s, index, masked);
        const bool moved = softmax.step(s, correction);
        wgmma_wait<0>();
        pin_registers(o);
        if (lane == 0) mbarrier_arrive(smem.v_empty(v_ring.stage));
        v_ring.advance();
        pack_probabilities<Config>(p, s);
        if (moved) rescale_output(o, correction);
      };

      // NOTE: a loop for each kind of tile. A test of the kind between S and the softmax ends a
      // basic block there; what follows is scheduled worse, and that cost 7 to 10 %. Each loop
      // costs compile time, so there are no more than the mask can use.
      if constexpr (Mask::kFromZero) {
        // Masked tiles come first, and beyond the first tile seldom more than one.
        bool first = true;
        do {
          step_alone(first);
          first = false;
          --index;
        } while (!Mask::kHidesNothing && index >= own.tile_begin && !in_core(index));
        release();
        for (; index >= own.tile_begin; --index) step(false);
      } else {
        step_alone(true);
        release();
        --index;
        if constexpr (Mask::kHasCore) {
          // Masked tiles, full tiles, masked tiles.
          while (index >= own.tile_begin) {
            for (; index >= own.tile_begin && !in_core(index); --index) step(true);
            for (; index >= own.tile_begin && in_core(index); --index) step(false);
          }
        } else {
          for (; index >= own.tile_begin; --index) step(true);
        }
      }
      mbarrier_wait(smem.v_full(v_ring.stage), v_ring.parity);
      pin_registers(o);
      pin_registers(p);
      wgmma_fence();
      issue_pv<Config>(o, p, smem.v(v_ring.stage));
      wgmma_wait<0>();
      pin_registers(o);
      if (lane == 0) mbarrier_arrive(smem.v_empty(v_ring.stage));
      v_ring.advance();
      if constexpr (!Mask::kFromZero) skip(own.tile_begin - work.tile_begin, true);
    }

    float output_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sink = 0.0f;
      if constexpr (Config::kSink) sink = arguments.sink[tile.row[half].h];
      float lse;
      softmax.template finish<Config::kSink, Config::kLseIncludesSink>(half, sink,
                                                                       output_scale[half], lse);
      if constexpr (Config::kReturnLse) {
        const int row = thread_row + 8 * half;
        if ((lane & 3) == 0 && row >= 0 && row < rows) {
          const i64 head_row =
              static_cast<i64>(work.batch) * arguments.num_q_heads + tile.row[half].h;
          arguments.lse[head_row * arguments.q_len + (row >> kPack)] = lse;
        }
      }
    }
    rescale_output(o, output_scale);
    release();
    store_output<Config>(o, smem, arguments, work, q_ring.stage, consumer, warp, lane);
    if constexpr (Config::kOBlocks == 0) {
      if constexpr (Config::kQStages == 1) {
        release_q(smem, q_ring.stage, consumer, lane);
      } else {
        unreleased = q_ring.stage;
      }
    }
    q_ring.advance();
  }
  // NOTE: the memory must outlive the reads of the last store.
  release();
  if constexpr (Config::kOBlocks > 0) {
    if (warp == 0 && elect_one()) bulk_wait_group_read();
  }
}

}  // namespace attnjit::sm90

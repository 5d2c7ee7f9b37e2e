// SPDX-License-Identifier: Apache-2.0
// A consumer's products, S = Q K^T and O += P V, and the order in which consumers issue them.
#pragma once

#include "sm90/named_registers.cuh"

namespace attnjit::sm90 {

/// Ping-pong: waits until this consumer may issue products.
template <class Config>
ATTNJIT_DEVICE void order_barrier_sync(int consumer) {
  if constexpr (Config::kPingPong) named_barrier_sync(kOrderBarrier + consumer, kOrderThreads);
}

/// The order barrier of the next consumer. NOTE: opaque, so that it is computed once and not with
/// each tile.
template <class Config>
ATTNJIT_DEVICE int next_barrier(int consumer) {
  const int next = consumer == Config::kConsumers - 1 ? 0 : consumer + 1;
  return static_cast<int>(opaque(static_cast<u32>(kOrderBarrier + next)));
}

/// Lets the next consumer issue products.
template <class Config>
ATTNJIT_DEVICE void order_barrier_arrive(int next_barrier) {
  if constexpr (Config::kPingPong) named_barrier_arrive(next_barrier, kOrderThreads);
}

/// Bytes from the first step of Q K^T to another, in blocks of columns of `block_bytes` each.
ATTNJIT_DEVICE constexpr int step_offset(int step, int block_bytes) {
  constexpr int kStepsPerBlock = kBlockRowBytes / kStepBytes;
  return step / kStepsPerBlock * block_bytes + step % kStepsPerBlock * kStepBytes;
}

/// Loads the steps of Q that a warp holds in registers over a work tile. NOTE: the 128-byte swizzle
/// flips the bits of an address that a step within a block adds to. NOTE: a lane releases Q for
/// its warp, whose reads are before that.
template <class Config, int kStep = 0>
ATTNJIT_DEVICE void hold_q(u32 q_address, int warp, int lane) {
  if constexpr (kStep < Config::kQRegisterSteps) {
    constexpr int kOffset = step_offset(kStep, LayoutOf<Config>::kQBlockBytes);
    const u32 row = q_address + (warp * kWarpRows + lane % 16) * kBlockRowBytes;
    const u32 chunk = (lane / 16 ^ lane % 8) << 4;
    load_q_registers<Config::kBody, kStep>(row + kOffset / kBlockRowBytes * kBlockRowBytes +
                                           (chunk ^ kOffset % kBlockRowBytes));
    hold_q<Config, kStep + 1>(q_address, warp, lane);
  } else if constexpr (kStep > 0) {
    __syncwarp();
  }
}

/// Issues the products of the steps whose Q is in registers.
template <class Config, int kStep = 0>
ATTNJIT_DEVICE void issue_register_qk(u64 k) {
  if constexpr (kStep < Config::kQRegisterSteps) {
    using Layout = LayoutOf<Config>;
    ScoreWgmma<Config::kTileN>::template rs<Layout::kOperand, (kStep > 0), Config::kBody, kStep>(
        k + step_offset(kStep, Layout::kKvBlockBytes) / 16);
    issue_register_qk<Config, kStep + 1>(k);
  }
}

/// Issues S = Q K^T of one tile. NOTE: a loop, and no template of the step: an instantiation of a
/// function takes longer to compile than its code.
template <class Config>
ATTNJIT_DEVICE void issue_qk(u32 q_address, u32 k_address) {
  using Layout = LayoutOf<Config>;
  using Product = ScoreWgmma<Config::kTileN>;
  const u64 q = matrix_descriptor<16>(q_address), k = matrix_descriptor<16>(k_address);
  if constexpr (Config::kQRegisterSteps > 0) {
    issue_register_qk<Config>(k);
  } else {
    Product::template ss<Layout::kOperand, false, Config::kBody>(q, k);
  }
#pragma unroll
  for (int step = max(Config::kQRegisterSteps, 1); step < Layout::kQkSteps; ++step) {
    Product::template ss<Layout::kOperand, true, Config::kBody>(
        q + step_offset(step, Layout::kQBlockBytes) / 16,
        k + step_offset(step, Layout::kKvBlockBytes) / 16);
  }
  wgmma_commit();
}

/// Issues O += P V of one tile, which is to be committed: of the first columns of O or of the rest.
template <class Config, int kColumns, bool kRest>
ATTNJIT_DEVICE void issue_pv_columns(const u32 (&p)[LayoutOf<Config>::kPWords], u64 v) {
  using Layout = LayoutOf<Config>;
  constexpr int kStep = Config::kE4m3 ? 2 * Layout::kVChunkBytes : kStepColumns * kBlockRowBytes;
#pragma unroll
  for (int step = 0; step < Layout::kPvSteps; ++step) {
    OutputWgmma<kColumns>::template rs<Layout::kPvOperand, kOutputSet<Config> + (kRest ? 1 : 0)>(
        p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3], v + step * kStep / 16);
  }
}
template <class Config>
ATTNJIT_DEVICE void issue_pv(const u32 (&p)[LayoutOf<Config>::kPWords], u32 v_address) {
  using Layout = LayoutOf<Config>;
  u64 v;
  if constexpr (Config::kE4m3) {
    v = plain_matrix_descriptor<Layout::kVChunkBytes>(v_address);
  } else {
    v = matrix_descriptor<Layout::kKvBlockBytes>(v_address);
  }
  constexpr int kFirst = Layout::kPvFirst, kRest = Layout::kPvColumns - kFirst;
  issue_pv_columns<Config, kFirst, false>(p, v);
  if constexpr (kRest > 0) {
    static_assert(!Config::kE4m3 && kFirst == Layout::kBlockElements,
                  "the rest begins with a block of columns");
    issue_pv_columns<Config, kRest, true>(p, v + Layout::kKvBlockBytes / 16);
  }
}

/// Issues the sums of P's rows: a product with eight columns of ones.
template <class Config>
ATTNJIT_DEVICE void issue_row_sums(float (&sums)[4], const u32 (&p)[LayoutOf<Config>::kPWords],
                                   u32 ones_address) {
  using Layout = LayoutOf<Config>;
  const u64 ones = plain_matrix_descriptor<kOnesBytes / 2>(ones_address);
#pragma unroll
  for (int step = 0; step < Layout::kPvSteps; ++step) {
    wgmma_n8<Layout::kPvOperand>(sums, p[4 * step], p[4 * step + 1], p[4 * step + 2],
                                 p[4 * step + 3], ones, step > 0);
  }
}

/// A thread's probabilities as the A operand of P V. Of e4m3 a register of A has two columns of
/// each of two neighbouring groups of 8: the order of keys that V is transposed to.
template <class Config>
ATTNJIT_DEVICE void pack_probabilities(u32 (&p)[LayoutOf<Config>::kPWords],
                                       const float (&s)[Config::kTileN / 2]) {
  if constexpr (Config::kE4m3) {
#pragma unroll
    for (int i = 0; i < LayoutOf<Config>::kPWords; ++i) {
      const int first = 8 * (i / 2) + 2 * (i & 1);
      p[i] = pack_e4m3(s[first], s[first + 1], s[first + 4], s[first + 5]);
    }
  } else {
    pack_pairs<LayoutOf<Config>::kPvOperand == WgmmaOperand::kBf16>(p, s);
  }
}

}  // namespace attnjit::sm90

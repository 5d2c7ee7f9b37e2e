// SPDX-License-Identifier: Apache-2.0
// A consumer's products, S = Q K^T and O += P V, and its turn to issue them.
#pragma once

#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// Where warpgroups take turns: waits for this consumer's.
template <class Config>
ATTNJIT_DEVICE void await_turn(int consumer) {
  if constexpr (Config::kPingPong) named_barrier_sync(kTurnBarrier + consumer, kTurnThreads);
}

/// Gives the turn to the next consumer.
template <class Config>
ATTNJIT_DEVICE void pass_turn(int consumer) {
  if constexpr (Config::kPingPong) {
    const int next = consumer == Config::kConsumers - 1 ? 0 : consumer + 1;
    named_barrier_arrive(kTurnBarrier + next, kTurnThreads);
  }
}

/// Issues S = Q K^T of one tile.
template <class Config>
ATTNJIT_DEVICE void issue_qk(float (&s)[Config::kTileN / 2], u32 q_address, u32 k_address) {
  using Layout = LayoutOf<Config>;
  constexpr int kStepsPerBlock = kBlockColumns / kStepColumns;
  const u64 q = matrix_descriptor<16>(q_address);
  const u64 k = matrix_descriptor<16>(k_address);
#pragma unroll
  for (int step = 0; step < Layout::kQkSteps; ++step) {
    const int block = step / kStepsPerBlock;
    const int in_block = step % kStepsPerBlock * (2 * kStepColumns);
    Wgmma<Config::kTileN>::template ss<Config::kBf16>(
        s, q + (block * Layout::kQBlockBytes + in_block) / 16,
        k + (block * Layout::kKvBlockBytes + in_block) / 16, step > 0);
  }
  wgmma_commit();
}

/// Issues O += P V of one tile.
template <class Config>
ATTNJIT_DEVICE void issue_pv(float (&o)[LayoutOf<Config>::kPvColumns / 2],
                             const u32 (&p)[Config::kTileN / 4], u32 v_address) {
  using Layout = LayoutOf<Config>;
  const u64 v = matrix_descriptor<Layout::kKvBlockBytes>(v_address);
#pragma unroll
  for (int step = 0; step < Layout::kPvSteps; ++step) {
    Wgmma<Layout::kPvColumns>::template rs<Config::kBf16>(
        o, p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3],
        v + step * (kStepColumns * kBlockRowBytes) / 16, 1);
  }
  wgmma_commit();
}

template <int kCount>
ATTNJIT_DEVICE void rescale_output(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[(i >> 1) & 1];
}

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// A thread's row in the online softmax of the sm_100a kernels, and the factor of O that follows.
//
// Source: FlashAttention-4 (Dao et al., 2026): O is rescaled only when the maximum has grown by
// more than a threshold.
#pragma once

#include "common/online.cuh"
#include "common/tcgen05.cuh"

namespace attnjit::sm100 {

/// The running state of a row. Scores are in units of which `log2_scale` makes exponents of 2;
/// log2_scale > 0.
struct OnlineRow {
  float maximum = kMaxFloor;
  float sum = 0.0f;

  /// Takes the tile's maximum in and returns what earlier sums and outputs are to be multiplied by.
  /// The maximum is renewed only where it grew by more than kRescaleThreshold (log2): probabilities
  /// are relative to it, and up to 2^kRescaleThreshold they lose nothing in f32, bf16 and fp16. Of
  /// e4m3 that and kPBias stay below 448.
  template <class Config>
  ATTNJIT_DEVICE float renew(float tile_maximum, float log2_scale) {
    const float grown = (tile_maximum - maximum) * log2_scale;
    if (!(grown > Config::kRescaleThreshold)) return 1.0f;
    // Nothing was seen before: there is nothing to correct.
    const float factor = maximum == kMaxFloor ? 1.0f : exp2_approx(-grown);
    maximum = tile_maximum;
    sum *= factor;
    return factor;
  }
};

/// The sum of a row, by four chains of pairs.
template <int kCount>
ATTNJIT_DEVICE float row_sum(const float (&s)[kCount]) {
  FloatPair sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = {s[2 * i], s[2 * i + 1]};
#pragma unroll
  for (int i = 8; i < kCount; i += 8) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] = add_pair(sums[k], {s[i + 2 * k], s[i + 2 * k + 1]});
  }
  const FloatPair all = add_pair(add_pair(sums[0], sums[1]), add_pair(sums[2], sums[3]));
  return all.x + all.y;
}

/// Multiplies kColumns columns of a warp's rows of O in tensor memory, 16 at a time, the next ones
/// on their way. NOTE: one copy of the code for all columns: it seldom runs.
template <int kColumns>
ATTNJIT_DEVICE void rescale(u32 o, float factor) {
  static_assert(kColumns % 16 == 0);
  float values[2][16];
  tcgen05_ld_16(values[0], 0, o);
#pragma unroll 1
  for (int column = 0; column < kColumns; column += 32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int here = column + 16 * half;
      if (half == 1 && kColumns % 32 != 0 && here >= kColumns) break;
      float(&now)[16] = values[half];
      tcgen05_wait_ld_16(now, 0);
      if ((half == 0 && kColumns % 32 == 0) || here + 16 < kColumns) {
        tcgen05_ld_16(values[half ^ 1], 0, o + static_cast<u32>(here + 16));
      }
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const FloatPair scaled = mul_pair({now[i], now[i + 1]}, {factor, factor});
        now[i] = scaled.x;
        now[i + 1] = scaled.y;
      }
      tcgen05_st_16(o + static_cast<u32>(here), now, 0);
    }
  }
  tcgen05_wait_st();
}

}  // namespace attnjit::sm100

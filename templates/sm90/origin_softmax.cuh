// SPDX-License-Identifier: Apache-2.0
// Online softmax where keys have scales: scores come as exponents, relative to what a row has come
// to (sm90/key_scales.cuh).
#pragma once

#include "sm90/softmax.cuh"

namespace attnjit::sm90 {

/// The running state of a thread's two rows, as OnlineSoftmax's (sm90/softmax.cuh), of exponents of
/// 2 that are relative to `origin`. They are up to kPBias while none exceeds the greatest before.
/// So a score takes two fused operations, with k_scale and with v_scale, and no third one but where
/// a maximum moves.
template <class Config, int kScales>
struct OriginSoftmax {
  RowScales<kScales> log2_scale;   ///< makes exponents of 2 of scores; > 0
  float origin[2] = {0.0f, 0.0f};  ///< 0: the row has seen nothing
  float sum[2] = {0.0f, 0.0f};     ///< of this lane's columns, which who has the scales adds up

  /// Replaces exponents by probabilities relative to the running maximum. True, in the whole warp,
  /// where a row's maximum moved: earlier outputs are then to be multiplied by `correction`. end()
  /// waits for the product of the tile before.
  ///
  /// NOTE: where registers lack correct(correction) multiplies them before the exponentials. A tile
  /// that moves none writes no factors, so that ptxas kept those of a tile before, in two
  /// registers. NOTE: a warp by itself knows whether a maximum moved, and a wait for products is
  /// one statement of the whole warpgroup: end() stands on no side of that branch.
  template <int kCount, class End, class Correct>
  ATTNJIT_DEVICE bool step(float (&s)[kCount], float (&correction)[2], const End& end,
                           const Correct& correct) {
    static_assert(Config::kExp2FmaPairs == 0 && !sums_by_product<Config>(),
                  "exponentials are the MUFU's, and sums are added up");
    float largest[2];
    for_both_rows<true>([&](int half) {
      // NOTE: of a row that has seen nothing all exponents may be negative.
      largest[half] = origin[half] == 0.0f ? kMaxFloor : Config::kPBias;
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
        largest[half] = fmaxf(largest[half], fmaxf(s[i], s[i + 1]));
      }
    });
    bool moved = follow_far_maxima(s, largest, correction);
    end();
    if constexpr (rematerializes_rows<Config>()) {
      if (moved) correct(correction);
      moved = false;
    }
#pragma unroll
    for (float& score : s) score = exp2_approx(score);
    return moved;
  }

  /// As OnlineSoftmax's.
  ATTNJIT_DEVICE RowMaxSum max_sum(int half) const {
    return {quad_sum(sum[half]), origin[half] == 0.0f ? kMaxFloor : origin[half]};
  }

 private:
  /// Whether what exceeds the greatest before does not exceed it by more than the threshold.
  ATTNJIT_DEVICE bool stays(int half, float largest) const {
    return origin[half] != 0.0f && largest <= Config::kPBias + Config::kRescaleThreshold;
  }

  /// Moves the origins, if in the warp a maximum has grown far, and makes exponents and sums
  /// relative to them. True where it has.
  template <int kCount>
  ATTNJIT_DEVICE bool follow_far_maxima(float (&s)[kCount], float (&largest)[2],
                                        float (&correction)[2]) {
    bool keep = true;
    for_both_rows<true>([&](int half) {
      if constexpr (Config::kRescaleByRow) largest[half] = quad_max(largest[half]);
      keep = keep && stays(half, largest[half]);
    });
    if (__all_sync(0xffffffffu, keep)) return false;
    for_both_rows<true>([&](int half) {
      const bool first = origin[half] == 0.0f;
      float top = quad_max(largest[half]);
      // With kRescaleByRow a row's bits do not depend on the rows beside it: it moves by nothing.
      if (Config::kRescaleByRow && stays(half, largest[half])) top = Config::kPBias;
      float to = origin[half] + (top - Config::kPBias);
      if (to == 0.0f) to = 0x1p-100f;
      if (top == kMaxFloor) to = 0.0f;
      const float grown = to - origin[half];
      origin[half] = to;
      correction[half] = first ? 1.0f : exp2_approx(-grown);
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
        s[i] -= grown;
        s[i + 1] -= grown;
      }
      sum[half] *= correction[half];
    });
    return true;
  }
};

}  // namespace attnjit::sm90

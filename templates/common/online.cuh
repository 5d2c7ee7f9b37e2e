// SPDX-License-Identifier: Apache-2.0
// What is said of a row of scores by online softmax, in every kernel: the sum of its probabilities
// and the maximum that they are relative to.
//
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// The least running maximum. NOTE: finite, so that a row that sees nothing subtracts it without
/// making NaN: hidden scores are -inf, and exp2(-inf + finite) is 0. A power of two, so that its
/// product with the scale is exact: the fused subtraction that follows leaves 0, not a huge
/// residue.
constexpr float kMaxFloor = -0x1p+100f;

/// What makes exponents of 2 of scores whose scale was read from memory. NOTE: not 0, which a
/// tensor of zeros may have: hidden scores are -inf, and 0 times that is NaN. Nor so small that its
/// reciprocal is infinite: a row that saw nothing multiplies that by 0.
ATTNJIT_DEVICE float exponent_scale(float scale) {
  const float log2_scale = scale * kLog2e;
  return fabsf(log2_scale) < 0x1p-120f ? 0x1p-120f : log2_scale;
}

/// A row's sum of probabilities, relative to its maximum (log2).
struct RowMaxSum {
  float sum, maximum;
};

/// Both as one: what each is to be multiplied by to be relative to the same maximum.
ATTNJIT_DEVICE RowMaxSum merge(RowMaxSum a, RowMaxSum b, float& a_factor, float& b_factor) {
  const float maximum = fmaxf(a.maximum, b.maximum);
  a_factor = exp2_approx(a.maximum - maximum);
  b_factor = exp2_approx(b.maximum - maximum);
  return {a.sum * a_factor + b.sum * b_factor, maximum};
}

/// Ends a row: what its output is to be multiplied by, and its natural LSE. A row that saw nothing
/// gets 0 and -inf, or with a sink 0 and the sink; so does a row beside whose sink all that it saw
/// vanishes, whatever the sink is: its exponent of 2 may be beyond f32. NOTE: a reciprocal that is
/// within an ulp of f32, far below what P of 16 bits leaves right: an exact division is 48 to 100
/// instructions. It is taken of a sum of 0, too: as a branch it spilled 12 bytes beside scales of
/// rows on sm_90a.
template <class Config, bool kSink = Config::kSink>
ATTNJIT_DEVICE float finish_row(RowMaxSum own, float sink, float& lse) {
  RowMaxSum total = own;
  float rescale = 1.0f;
  if constexpr (kSink) {
    float sink_factor;
    total = merge(own, {1.0f, fminf(sink * kLog2e, largest_float())}, rescale, sink_factor);
  }
  const RowMaxSum shown = Config::kLseIncludesSink ? total : own;
  lse = shown.sum == 0.0f ? -infinity() : fmaf(shown.maximum, kLn2, log2_approx(shown.sum) * kLn2);
  if constexpr (kSink && Config::kLseIncludesSink) {
    if (own.sum * rescale == 0.0f) lse = sink;
  }
  const float inverse = reciprocal_approx(total.sum);
  return total.sum == 0.0f ? 0.0f : rescale * inverse;
}

}  // namespace attnjit

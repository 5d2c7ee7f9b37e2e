// SPDX-License-Identifier: Apache-2.0
// 2^x of scores, most on the MUFU pipe and where it is the bound a share of them on the FMA pipe.
#pragma once

#include "common/ptx.cuh"

namespace attnjit::sm90 {

/// 2^x by range reduction and a polynomial of degree 2: within 2.1e-3 of it, relatively, a 30th of
/// an e4m3 ulp; 0 from -127 down, -inf included. x is at most 127. Source: FlashAttention-4 (Dao et
/// al., 2026); Cody and Waite's reduction.
ATTNJIT_DEVICE float exp2_polynomial(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
  x = fmaxf(x, -127.0f);
  const float shifted = x + kRound;
  const float fraction = x - (shifted - kRound);
  float p = fmaf(0.24099834f, fraction, 0.70342627f);
  p = fmaf(p, fraction, 1.0f);
  // The whole part stands in the low bits of `shifted`: it goes to the exponent.
  return __int_as_float(static_cast<int>((__float_as_uint(shifted) << 23) + __float_as_uint(p)));
}

/// Whether pair `pair` of a row's kPairs in a thread is computed by polynomial: kCount of them are,
/// evenly spread.
template <int kCount, int kPairs>
ATTNJIT_DEVICE constexpr bool by_polynomial(int pair) {
  static_assert(kCount <= kPairs, "no more polynomials than pairs");
  return pair * kCount / kPairs != (pair + 1) * kCount / kPairs;
}

}  // namespace attnjit::sm90

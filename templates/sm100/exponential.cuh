// SPDX-License-Identifier: Apache-2.0
// 2^x of a row of scores, most on the MUFU pipe and a share of them on the FMA pipe.
#pragma once

#include "common/ptx.cuh"

namespace attnjit::sm100 {

/// 2^x of two numbers by range reduction and a polynomial of degree 3: within 8.8e-5 of it,
/// relatively, a quarter of a bf16 ulp; 0 from -127 down, -inf included. x is at most 127.
/// Source: FlashAttention-4 (Dao et al., 2026); Cody and Waite's reduction.
ATTNJIT_DEVICE FloatPair exp2_polynomial(FloatPair x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
  x = {fmaxf(x.x, -127.0f), fmaxf(x.y, -127.0f)};
  const FloatPair shifted = add_pair_down(x, {kRound, kRound});
  const FloatPair whole = add_pair(shifted, {-kRound, -kRound});
  const FloatPair fraction = fma_pair(whole, {-1.0f, -1.0f}, x);
  FloatPair p = fma_pair({0.077119089663028717f, 0.077119089663028717f}, fraction,
                         {0.227564394474029541f, 0.227564394474029541f});
  p = fma_pair(p, fraction, {0.695146143436431885f, 0.695146143436431885f});
  p = fma_pair(p, fraction, {1.0f, 1.0f});
  // The whole part stands in the low bits of `shifted`: it goes to the exponent.
  // One IMAD of ptxas 13.0, on the FMA pipe, which has room; FlashAttention-4's is a LEA.
  return {__int_as_float((__float_as_int(shifted.x) << 23) + __float_as_int(p.x)),
          __int_as_float((__float_as_int(shifted.y) << 23) + __float_as_int(p.y))};
}

/// Whether pair `pair` of a row is computed by polynomial: kCount of the first kPairs, evenly
/// spread; of the others none, so that the last part of P is not held up.
template <int kCount, int kPairs>
constexpr bool by_polynomial(int pair) {
  static_assert(kCount <= kPairs, "no more polynomials than pairs");
  return pair < kPairs && pair * kCount / kPairs != (pair + 1) * kCount / kPairs;
}

}  // namespace attnjit::sm100

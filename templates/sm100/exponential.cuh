// SPDX-License-Identifier: Apache-2.0
// 2^x of a row of scores, most on the MUFU pipe and a share of them on the FMA pipe.
#pragma once

#include "common/ptx.cuh"

namespace attnjit::sm100 {

// NOTE: a statement a pair, for compile time: of single instructions the optimiser keeps what each
// makes. Factors and offsets are pairs as well (pair_bits in common/ptx.cuh).

/// 2^(factor x + offset) of two numbers, by MUFU.
ATTNJIT_DEVICE void exp2_pair(float& a, float& b, u64 factor, u64 offset) {
  asm("{\n.reg .b64 x;\n.reg .f32 c, d;\n\t"
      "mov.b64 x, {%2, %3};\n\t"
      "fma.rn.f32x2 x, x, %4, %5;\n\t"
      "mov.b64 {c, d}, x;\n\t"
      "ex2.approx.ftz.f32 %0, c;\n\t"
      "ex2.approx.ftz.f32 %1, d;\n}"
      : "=f"(a), "=f"(b)
      : "f"(a), "f"(b), "l"(factor), "l"(offset));
}

// clang-format off

// From the pair x to {i, j}, 2^x. By range reduction and a polynomial of degree 3: within 8.8e-5 of
// it, relatively, a quarter of a bf16 ulp; 0 from -127 down, -inf included. The exponent is at most
// 127. Source: FlashAttention-4 (Dao et al., 2026); Cody and Waite's reduction.
//
// -127 is 0fc2fe0000. 1.5 * 2^23 is 0x4b400000: what is added to it, rounded down, loses its
// fraction; y is then the whole part, and x the fraction. Of that
// ((0.0771190897 x + 0.227564394) x + 0.695146143) x + 1. The whole part stands in the low bits of
// `shifted`: it goes to the exponent, by one IMAD of ptxas 13.0, on the FMA pipe, which has room;
// FlashAttention-4's is a LEA.
#define ATTNJIT_EXP2_REGISTERS \
  ".reg .b64 x, shifted, y, t;\n.reg .f32 c, d;\n.reg .b32 i, j, k, l;\n\t"
#define ATTNJIT_EXP2_POLYNOMIAL                                              \
  "mov.b64 {c, d}, x;\n\t"                                                   \
  "max.f32 c, c, 0fc2fe0000;\n\tmax.f32 d, d, 0fc2fe0000;\n\t"              \
  "mov.b64 x, {c, d};\n\t"                                                   \
  "mov.b64 t, 0x4b4000004b400000;\n\tadd.rm.f32x2 shifted, x, t;\n\t"       \
  "mov.b64 t, 0xcb400000cb400000;\n\tadd.rn.f32x2 y, shifted, t;\n\t"       \
  "mov.b64 t, 0xbf800000bf800000;\n\tfma.rn.f32x2 x, y, t, x;\n\t"          \
  "mov.b64 y, 0x3d9df09d3d9df09d;\n\t"                                       \
  "mov.b64 t, 0x3e6906a43e6906a4;\n\tfma.rn.f32x2 y, y, x, t;\n\t"          \
  "mov.b64 t, 0x3f31f5193f31f519;\n\tfma.rn.f32x2 y, y, x, t;\n\t"          \
  "mov.b64 t, 0x3f8000003f800000;\n\tfma.rn.f32x2 y, y, x, t;\n\t"          \
  "mov.b64 {i, j}, shifted;\n\tmov.b64 {k, l}, y;\n\t"                      \
  "shl.b32 i, i, 23;\n\tshl.b32 j, j, 23;\n\t"                              \
  "add.s32 i, i, k;\n\tadd.s32 j, j, l;\n\t"

// clang-format on

/// The same by that.
ATTNJIT_DEVICE void exp2_pair_by_polynomial(float& a, float& b, u64 factor, u64 offset) {
  asm("{\n" ATTNJIT_EXP2_REGISTERS
      "mov.b64 x, {%2, %3};\n\t"
      "fma.rn.f32x2 x, x, %4, %5;\n\t" ATTNJIT_EXP2_POLYNOMIAL
      "mov.b32 %0, i;\n\t"
      "mov.b32 %1, j;\n}"
      : "=f"(a), "=f"(b)
      : "f"(a), "f"(b), "l"(factor), "l"(offset));
}

/// Whether pair `pair` of a row is computed by polynomial: kCount of the first kPairs, evenly
/// spread; of the others none, so that the last part of P is not held up.
template <int kCount, int kPairs>
constexpr bool by_polynomial(int pair) {
  static_assert(kCount <= kPairs, "no more polynomials than pairs");
  return pair < kPairs && pair * kCount / kPairs != (pair + 1) * kCount / kPairs;
}

}  // namespace attnjit::sm100

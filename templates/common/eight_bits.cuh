// SPDX-License-Identifier: Apache-2.0
// e4m3 upcast to 16-bit types. Each of its numbers is one of fp16 and of bf16, and NaN stays NaN.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// A pair of fp16 that are numbers of bf16, too: cvt.f32.f16 (9.7.9.21), of which bf16 is the upper
/// half.
ATTNJIT_DEVICE u32 bf16_of_fp16(u32 pair) {
  const FloatPair wide = unpack_pair<false>(pair);
  return permute_bytes(__float_as_uint(wide.x), __float_as_uint(wide.y), 0x7632);
}

/// cvt.rn.f16x2.e4m3x2 (9.7.9.21), twice: four e4m3, the first in the low byte, as two pairs.
/// NOTE: a pair of bf16 takes four instructions. The bits of the sign and of the rest, shifted, and
/// a product with 2^120 are one more, and make a number of NaN.
template <bool kBf16>
ATTNJIT_DEVICE void upcast_e4m3(u32 four, u32& low, u32& high) {
  asm("{\n.reg .b16 first, second;\n"
      "mov.b32 {first, second}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n"
      "cvt.rn.f16x2.e4m3x2 %1, second;\n}"
      : "=r"(low), "=r"(high)
      : "r"(four));
  if constexpr (kBf16) {
    low = bf16_of_fp16(low);
    high = bf16_of_fp16(high);
  }
}

/// Stores 16 e4m3, upcast: 32 bytes, whose halves the swizzle may have swapped. `to`: of the first
/// half, counted from `offset` on, a multiple of 32.
template <bool kBf16>
ATTNJIT_DEVICE void store_upcast(u32 to, u32 offset, const u32 (&narrow)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    u32 wide[4];
    upcast_e4m3<kBf16>(narrow[2 * half], wide[0], wide[1]);
    upcast_e4m3<kBf16>(narrow[2 * half + 1], wide[2], wide[3]);
    store_shared_v4((to ^ static_cast<u32>(half << 4)) + offset, wide[0], wide[1], wide[2],
                    wide[3]);
  }
}

}  // namespace attnjit

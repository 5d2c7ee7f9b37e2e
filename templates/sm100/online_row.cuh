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

/// Takes eight columns of a row into four maxima. NOTE: a statement, for compile time.
ATTNJIT_DEVICE void take_maxima(float (&maxima)[4], const float* s) {
  asm("max.f32 %0, %0, %4, %5;\n\t"
      "max.f32 %1, %1, %6, %7;\n\t"
      "max.f32 %2, %2, %8, %9;\n\t"
      "max.f32 %3, %3, %10, %11;"
      : "+f"(maxima[0]), "+f"(maxima[1]), "+f"(maxima[2]), "+f"(maxima[3])
      : "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]), "f"(s[4]), "f"(s[5]), "f"(s[6]), "f"(s[7]));
}

/// Adds eight columns of a row to four sums, which are pairs. NOTE: a statement, for compile time.
ATTNJIT_DEVICE void add_columns(u64 (&sums)[4], const float* s) {
  asm("{\n.reg .b64 x;\n\t"
      "mov.b64 x, {%4, %5};\n\tadd.rn.f32x2 %0, %0, x;\n\t"
      "mov.b64 x, {%6, %7};\n\tadd.rn.f32x2 %1, %1, x;\n\t"
      "mov.b64 x, {%8, %9};\n\tadd.rn.f32x2 %2, %2, x;\n\t"
      "mov.b64 x, {%10, %11};\n\tadd.rn.f32x2 %3, %3, x;\n}"
      : "+l"(sums[0]), "+l"(sums[1]), "+l"(sums[2]), "+l"(sums[3])
      : "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]), "f"(s[4]), "f"(s[5]), "f"(s[6]), "f"(s[7]));
}

/// The sum of four pairs. NOTE: a statement, for compile time.
ATTNJIT_DEVICE float sum_of_pairs(const u64 (&sums)[4]) {
  float sum;
  asm("{\n.reg .b64 x, y;\n.reg .f32 a, b;\n\t"
      "add.rn.f32x2 x, %1, %2;\n\tadd.rn.f32x2 y, %3, %4;\n\tadd.rn.f32x2 x, x, y;\n\t"
      "mov.b64 {a, b}, x;\n\tadd.f32 %0, a, b;\n}"
      : "=f"(sum)
      : "l"(sums[0]), "l"(sums[1]), "l"(sums[2]), "l"(sums[3]));
  return sum;
}

/// The sum of a row, by four chains of pairs.
template <int kCount>
ATTNJIT_DEVICE float row_sum(const float (&s)[kCount]) {
  u64 sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = pair_bits({s[2 * i], s[2 * i + 1]});
#pragma unroll
  for (int i = 8; i < kCount; i += 8) add_columns(sums, s + i);
  return sum_of_pairs(sums);
}

#define ATTNJIT_SCALE2(i, j) \
  "mov.b64 x, {o" #i ", o" #j "};\n\tmul.rn.f32x2 x, x, f;\n\tmov.b64 {o" #i ", o" #j "}, x;\n\t"
#define ATTNJIT_SCALE16 \
  ATTNJIT_SCALE2(0, 1)  \
  ATTNJIT_SCALE2(2, 3)  \
  ATTNJIT_SCALE2(4, 5)  \
  ATTNJIT_SCALE2(6, 7)  \
  ATTNJIT_SCALE2(8, 9) ATTNJIT_SCALE2(10, 11) ATTNJIT_SCALE2(12, 13) ATTNJIT_SCALE2(14, 15)
#define ATTNJIT_SCALE32                                                                           \
  ATTNJIT_SCALE16 ATTNJIT_SCALE2(16, 17) ATTNJIT_SCALE2(18, 19) ATTNJIT_SCALE2(20, 21)            \
      ATTNJIT_SCALE2(22, 23) ATTNJIT_SCALE2(24, 25) ATTNJIT_SCALE2(26, 27) ATTNJIT_SCALE2(28, 29) \
          ATTNJIT_SCALE2(30, 31)
#define ATTNJIT_O16 "o0,o1,o2,o3,o4,o5,o6,o7,o8,o9,o10,o11,o12,o13,o14,o15"
#define ATTNJIT_O32 ATTNJIT_O16 ",o16,o17,o18,o19,o20,o21,o22,o23,o24,o25,o26,o27,o28,o29,o30,o31"
#define ATTNJIT_RESCALE(columns)                                                             \
  asm volatile("{\n.reg .f32 o<" #columns                                                    \
               ">;\n.reg .b64 f, x;\n\tmov.b64 f, {%1, %1};\n\t"                             \
               "tcgen05.ld.sync.aligned.32x32b.x" #columns ".b32 {" ATTNJIT_O##columns       \
               "}, [%0];\n\t"                                                                \
               "tcgen05.wait::ld.sync.aligned;\n\t" ATTNJIT_SCALE##columns                   \
               "tcgen05.st.sync.aligned.32x32b.x" #columns ".b32 [%0], {" ATTNJIT_O##columns \
               "};\n}" ::"r"(o + static_cast<u32>(column)),                                  \
               "f"(factor)                                                                   \
               : "memory")

/// Multiplies kColumns columns of a warp's rows of O in tensor memory, 32 or 16 at a time. NOTE:
/// one copy of the code for all columns, in one statement: it seldom runs.
template <int kColumns>
ATTNJIT_DEVICE void rescale(u32 o, float factor) {
  static_assert(kColumns % 16 == 0);
  constexpr int kAtOnce = kColumns % 32 == 0 ? 32 : 16;
#pragma unroll 1
  for (int column = 0; column < kColumns; column += kAtOnce) {
    if constexpr (kAtOnce == 32) {
      ATTNJIT_RESCALE(32);
    } else {
      ATTNJIT_RESCALE(16);
    }
  }
  tcgen05_wait_st();
}

#undef ATTNJIT_SCALE2
#undef ATTNJIT_SCALE16
#undef ATTNJIT_SCALE32
#undef ATTNJIT_O16
#undef ATTNJIT_O32
#undef ATTNJIT_RESCALE

}  // namespace attnjit::sm100

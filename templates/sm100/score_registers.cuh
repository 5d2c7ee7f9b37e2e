// SPDX-License-Identifier: Apache-2.0
// A thread's row of scores of a tile, from tensor memory to P: PTX registers with names of their
// own, s0_0 to s0_7 of the first eight columns, s1_0 of the ninth, and so on.
//
// NOTE: for compile time (docs/compile.md). The optimiser is given a statement for eight columns or
// more in the place of their values, and ptxas makes the same loop of both. A name is one place: a
// kernel has one softmax. All statements are volatile, so they run in their order.
#pragma once

#include "common/tcgen05.cuh"
#include "sm100/exponential.cuh"
#include "sm100/online_row.cuh"

namespace attnjit::sm100 {

// clang-format off

#define ATTNJIT_S8(g) \
  "s" g "_0,s" g "_1,s" g "_2,s" g "_3,s" g "_4,s" g "_5,s" g "_6,s" g "_7"
// The groups of eight of 32 columns, whose numbers are operands from %n on.
#define ATTNJIT_S32(n0, n1, n2, n3) \
  "{" ATTNJIT_S8(n0) "," ATTNJIT_S8(n1) "," ATTNJIT_S8(n2) "," ATTNJIT_S8(n3) "}"

#define ATTNJIT_LARGEST8(g)                                                    \
  "max.f32 %0, %0, s" g "_0, s" g "_1;\n\tmax.f32 %1, %1, s" g "_2, s" g "_3;\n\t" \
  "max.f32 %2, %2, s" g "_4, s" g "_5;\n\tmax.f32 %3, %3, s" g "_6, s" g "_7;\n\t"

// Begins a sum with a pair of columns, or adds them to it.
#define ATTNJIT_BEGIN(sum, i, j) "mov.b64 " sum ", {" i ", " j "};\n\t"
#define ATTNJIT_ADD(sum, i, j) "mov.b64 x, {" i ", " j "};\n\tadd.rn.f32x2 " sum ", " sum ", x;\n\t"
#define ATTNJIT_SUM8(ADD, g)                                           \
  ADD("%0", "s" g "_0", "s" g "_1") ADD("%1", "s" g "_2", "s" g "_3")  \
  ADD("%2", "s" g "_4", "s" g "_5") ADD("%3", "s" g "_6", "s" g "_7")

// Two columns' probabilities, 2^(x * %0 + %1): by MUFU, and by polynomial (exponential.cuh).
#define ATTNJIT_MUFU(i, j)          \
  "mov.b64 x, {" i ", " j "};\n\t"   \
  "fma.rn.f32x2 x, x, %0, %1;\n\t"   \
  "mov.b64 {c, d}, x;\n\t"           \
  "ex2.approx.ftz.f32 " i ", c;\n\t" \
  "ex2.approx.ftz.f32 " j ", d;\n\t"
#define ATTNJIT_POLY(i, j)            \
  "mov.b64 x, {" i ", " j "};\n\t"     \
  "fma.rn.f32x2 x, x, %0, %1;\n\t"     \
  ATTNJIT_EXP2_POLYNOMIAL              \
  "mov.b32 " i ", i;\n\t"              \
  "mov.b32 " j ", j;\n\t"
// Those of eight columns of group %2, of which the pairs that `bits` has are by polynomial.
#define ATTNJIT_EXP8(bits, A, B, C, D)                                                        \
  if constexpr (kPolynomials == bits) {                                                       \
    asm volatile("{\n" ATTNJIT_EXP2_REGISTERS                                                  \
                 A("s%2_0", "s%2_1") B("s%2_2", "s%2_3") C("s%2_4", "s%2_5")                  \
                 D("s%2_6", "s%2_7") "}" ::"l"(factors), "l"(offsets), "n"(kGroup));          \
  }
#define ATTNJIT_M ATTNJIT_MUFU
#define ATTNJIT_P ATTNJIT_POLY

// Packs eight columns into four words, by CVT, whose first source is the upper half.
#define ATTNJIT_PACK8(cvt, w0, w1, w2, w3, g)                                        \
  cvt " " w0 ", s" g "_1, s" g "_0;\n\t" cvt " " w1 ", s" g "_3, s" g "_2;\n\t"      \
  cvt " " w2 ", s" g "_5, s" g "_4;\n\t" cvt " " w3 ", s" g "_7, s" g "_6;\n\t"
#define ATTNJIT_STORE8 \
  "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {w0,w1,w2,w3,w4,w5,w6,w7};\n}"
#define ATTNJIT_PACK16(cvt)                                                               \
  asm volatile("{\n.reg .b32 w<8>;\n\t" ATTNJIT_PACK8(cvt, "w0", "w1", "w2", "w3", "%1")  \
               ATTNJIT_PACK8(cvt, "w4", "w5", "w6", "w7", "%2") ATTNJIT_STORE8            \
               ::"r"(address), "n"(kGroup), "n"(kGroup + 1) : "memory")
#define ATTNJIT_PACK_E4M3(g, w, w1)                                                       \
  "cvt.rn.satfinite.e4m3x2.f32 low, s" g "_1, s" g "_0;\n\t"                              \
  "cvt.rn.satfinite.e4m3x2.f32 high, s" g "_3, s" g "_2;\n\tmov.b32 " w ", {low, high};\n\t" \
  "cvt.rn.satfinite.e4m3x2.f32 low, s" g "_5, s" g "_4;\n\t"                              \
  "cvt.rn.satfinite.e4m3x2.f32 high, s" g "_7, s" g "_6;\n\tmov.b32 " w1 ", {low, high};\n\t"

/// Names the registers: once in a kernel, before anything else of this file.
ATTNJIT_DEVICE void name_scores() {
  asm volatile(
      ".reg .f32 s0_<8>, s1_<8>, s2_<8>, s3_<8>, s4_<8>, s5_<8>, s6_<8>, s7_<8>, s8_<8>, s9_<8>, "
      "s10_<8>, s11_<8>, s12_<8>, s13_<8>, s14_<8>, s15_<8>, s16_<8>, s17_<8>, s18_<8>, s19_<8>;");
}

/// Loads the 32 columns from group kGroup on, which are defined after the wait of maxima().
template <int kGroup>
ATTNJIT_DEVICE void load_scores(u32 address) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 " ATTNJIT_S32("%1", "%2", "%3", "%4")
               ", [%0];" ::"r"(address), "n"(kGroup), "n"(kGroup + 1), "n"(kGroup + 2),
               "n"(kGroup + 3));
}
/// tcgen05.ld.red.x32.max: the same, and `maximum` becomes the largest of the 32 (NaN is passed
/// over). sm_103a has it, sm_100a has not.
template <int kGroup>
ATTNJIT_DEVICE void load_scores_max(u32 address, float& maximum) {
  asm volatile("tcgen05.ld.red.sync.aligned.32x32b.x32.max.f32 "
               ATTNJIT_S32("%2", "%3", "%4", "%5") ", %0, [%1];"
               : "=f"(maximum) : "r"(address), "n"(kGroup), "n"(kGroup + 1), "n"(kGroup + 2),
               "n"(kGroup + 3));
}
ATTNJIT_DEVICE void await_scores() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
ATTNJIT_DEVICE void await_scores_max(float& maximum) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" : "+f"(maximum)::"memory");
}

/// Takes them into four maxima.
template <int kGroup>
ATTNJIT_DEVICE void take_maxima(float (&maxima)[4]) {
  asm volatile(ATTNJIT_LARGEST8("%4") ATTNJIT_LARGEST8("%5") ATTNJIT_LARGEST8("%6")
               ATTNJIT_LARGEST8("%7")
               : "+f"(maxima[0]), "+f"(maxima[1]), "+f"(maxima[2]), "+f"(maxima[3])
               : "n"(kGroup), "n"(kGroup + 1), "n"(kGroup + 2), "n"(kGroup + 3));
}

/// Replaces the scores of a group by probabilities. kPolynomials: a bit a pair.
template <int kGroup, int kPolynomials>
ATTNJIT_DEVICE void exponentiate_group(u64 factors, u64 offsets) {
  ATTNJIT_EXP8(0, ATTNJIT_M, ATTNJIT_M, ATTNJIT_M, ATTNJIT_M)
  ATTNJIT_EXP8(1, ATTNJIT_P, ATTNJIT_M, ATTNJIT_M, ATTNJIT_M)
  ATTNJIT_EXP8(2, ATTNJIT_M, ATTNJIT_P, ATTNJIT_M, ATTNJIT_M)
  ATTNJIT_EXP8(3, ATTNJIT_P, ATTNJIT_P, ATTNJIT_M, ATTNJIT_M)
  ATTNJIT_EXP8(4, ATTNJIT_M, ATTNJIT_M, ATTNJIT_P, ATTNJIT_M)
  ATTNJIT_EXP8(5, ATTNJIT_P, ATTNJIT_M, ATTNJIT_P, ATTNJIT_M)
  ATTNJIT_EXP8(6, ATTNJIT_M, ATTNJIT_P, ATTNJIT_P, ATTNJIT_M)
  ATTNJIT_EXP8(7, ATTNJIT_P, ATTNJIT_P, ATTNJIT_P, ATTNJIT_M)
  ATTNJIT_EXP8(8, ATTNJIT_M, ATTNJIT_M, ATTNJIT_M, ATTNJIT_P)
  ATTNJIT_EXP8(9, ATTNJIT_P, ATTNJIT_M, ATTNJIT_M, ATTNJIT_P)
  ATTNJIT_EXP8(10, ATTNJIT_M, ATTNJIT_P, ATTNJIT_M, ATTNJIT_P)
  ATTNJIT_EXP8(11, ATTNJIT_P, ATTNJIT_P, ATTNJIT_M, ATTNJIT_P)
  ATTNJIT_EXP8(12, ATTNJIT_M, ATTNJIT_M, ATTNJIT_P, ATTNJIT_P)
  ATTNJIT_EXP8(13, ATTNJIT_P, ATTNJIT_M, ATTNJIT_P, ATTNJIT_P)
  ATTNJIT_EXP8(14, ATTNJIT_M, ATTNJIT_P, ATTNJIT_P, ATTNJIT_P)
  ATTNJIT_EXP8(15, ATTNJIT_P, ATTNJIT_P, ATTNJIT_P, ATTNJIT_P)
}

/// Packs the columns of eight words of P, from group kGroup on, and stores them.
template <MmaOperand kOperand, int kGroup>
ATTNJIT_DEVICE void store_probabilities(u32 address) {
  if constexpr (kOperand == MmaOperand::kBf16) {
    ATTNJIT_PACK16("cvt.rn.bf16x2.f32");
  } else if constexpr (kOperand == MmaOperand::kFp16) {
    ATTNJIT_PACK16("cvt.rn.f16x2.f32");
  } else {
    asm volatile("{\n.reg .b32 w<8>;\n.reg .b16 low, high;\n\t"
                 ATTNJIT_PACK_E4M3("%1", "w0", "w1") ATTNJIT_PACK_E4M3("%2", "w2", "w3")
                 ATTNJIT_PACK_E4M3("%3", "w4", "w5") ATTNJIT_PACK_E4M3("%4", "w6", "w7")
                 ATTNJIT_STORE8
                 ::"r"(address), "n"(kGroup), "n"(kGroup + 1), "n"(kGroup + 2), "n"(kGroup + 3)
                 : "memory");
  }
}

/// Adds the probabilities of 32 columns to four sums, which are pairs; those of group 0 begin them.
template <int kGroup>
ATTNJIT_DEVICE void add_probabilities(u64 (&sums)[4]) {
  if constexpr (kGroup == 0) {
    asm volatile("{\n.reg .b64 x;\n\t" ATTNJIT_SUM8(ATTNJIT_BEGIN, "0")
                 ATTNJIT_SUM8(ATTNJIT_ADD, "1") ATTNJIT_SUM8(ATTNJIT_ADD, "2")
                 ATTNJIT_SUM8(ATTNJIT_ADD, "3") "}"
                 : "=l"(sums[0]), "=l"(sums[1]), "=l"(sums[2]), "=l"(sums[3]));
  } else {
    asm volatile("{\n.reg .b64 x;\n\t" ATTNJIT_SUM8(ATTNJIT_ADD, "%4")
                 ATTNJIT_SUM8(ATTNJIT_ADD, "%5") ATTNJIT_SUM8(ATTNJIT_ADD, "%6")
                 ATTNJIT_SUM8(ATTNJIT_ADD, "%7") "}"
                 : "+l"(sums[0]), "+l"(sums[1]), "+l"(sums[2]), "+l"(sums[3])
                 : "n"(kGroup), "n"(kGroup + 1), "n"(kGroup + 2), "n"(kGroup + 3));
  }
}

// clang-format on

// Of exponential.cuh.
#undef ATTNJIT_EXP2_REGISTERS
#undef ATTNJIT_EXP2_POLYNOMIAL
#undef ATTNJIT_S8
#undef ATTNJIT_S32
#undef ATTNJIT_LARGEST8
#undef ATTNJIT_BEGIN
#undef ATTNJIT_ADD
#undef ATTNJIT_SUM8
#undef ATTNJIT_MUFU
#undef ATTNJIT_POLY
#undef ATTNJIT_EXP8
#undef ATTNJIT_M
#undef ATTNJIT_P
#undef ATTNJIT_PACK8
#undef ATTNJIT_STORE8
#undef ATTNJIT_PACK16
#undef ATTNJIT_PACK_E4M3

/// A tile's row from S to the row's sum. kGroup: where each function begins.
template <class Config>
struct ScoreRegisters {
  static constexpr int kGroups = Config::kTileN / 8;
  static_assert(kGroups <= 20, "name_scores names 160");

  /// Loads S, 32 columns ahead of those whose maxima are taken.
  ATTNJIT_DEVICE static void read(u32 columns, float (&maxima)[4]) {
    if constexpr (Config::kMaximumByLoad) {
      float first;
      load_scores_max<0>(columns, first);
      take_loaded(columns, maxima, first);
    } else {
      load_scores<0>(columns);
      take(columns, maxima);
    }
  }

  /// The sum of the probabilities, by four chains of pairs.
  template <int kGroup = 0>
  ATTNJIT_DEVICE static void sum(u64 (&sums)[4]) {
    add_probabilities<kGroup>(sums);
    if constexpr (kGroup + 4 < kGroups) sum<kGroup + 4>(sums);
  }
  ATTNJIT_DEVICE static float row_sum() {
    u64 sums[4];
    sum(sums);
    return sum_of_pairs(sums);
  }

 private:
  template <int kGroup = 0>
  ATTNJIT_DEVICE static void take(u32 columns, float (&maxima)[4]) {
    await_scores();
    constexpr int kNext = kGroup + 4;
    if constexpr (kNext < kGroups) load_scores<kNext>(columns + static_cast<u32>(8 * kNext));
    take_maxima<kGroup>(maxima);
    if constexpr (kNext < kGroups) take<kNext>(columns, maxima);
  }
  /// The same where a load finds the maximum of what it loads: `largest`, of the last load.
  template <int kGroup = 0>
  ATTNJIT_DEVICE static void take_loaded(u32 columns, float (&maxima)[4], float largest) {
    await_scores_max(largest);
    constexpr int kNext = kGroup + 4;
    float ahead = 0.0f;
    if constexpr (kNext < kGroups) {
      load_scores_max<kNext>(columns + static_cast<u32>(8 * kNext), ahead);
    }
    float& maximum = maxima[kGroup / 4 % 4];
    maximum = fmaxf(maximum, largest);
    if constexpr (kNext < kGroups) take_loaded<kNext>(columns, maxima, ahead);
  }
};

}  // namespace attnjit::sm100

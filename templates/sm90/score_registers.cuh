// SPDX-License-Identifier: Apache-2.0
// What is done with scores where they are: in the registers of S (sm90/named_registers.cuh).
//
// NOTE: for compile time (docs/compile.md). The optimiser is given a statement of eight registers
// in the place of some thirty values, and ptxas makes the same code of both.
#pragma once

#include "sm90/named_registers.cuh"

namespace attnjit::sm90 {

// A statement's eight registers are columns 0 and 1 of the thread's first row and of its second
// one, and columns 2 and 3 of both.

// clang-format off

// Keeps S where a bit of its row's word is set.
#define ATTNJIT_HIDE(S, WORD, BIT)             \
  "and.b32 bit, " WORD ", " BIT ";\n\t"        \
  "setp.ne.b32 seen, bit, 0;\n\t"              \
  "selp.f32 " S ", " S ", hidden, seen;\n\t"

// The largest of LARGEST and two scores.
#define ATTNJIT_LARGEST(LARGEST, S0, S1)       \
  "max.f32 x, " S0 ", " S1 ";\n\t"             \
  "max.f32 " LARGEST ", " LARGEST ", x;\n\t"

// Probabilities of two scores, to P0 and P1: 2^(score * SCALE + SHIFT).
#define ATTNJIT_EXP2(P0, P1, S0, S1, SCALE, SHIFT)         \
  "fma.rn.f32 " P0 ", " S0 ", " SCALE ", " SHIFT ";\n\t"   \
  "fma.rn.f32 " P1 ", " S1 ", " SCALE ", " SHIFT ";\n\t"   \
  "ex2.approx.ftz.f32 " P0 ", " P0 ";\n\t"                 \
  "ex2.approx.ftz.f32 " P1 ", " P1 ";\n\t"

// Begins a sum with two probabilities, or adds them to it.
#define ATTNJIT_BEGIN(SUM, P0, P1) "add.f32 " SUM ", " P0 ", " P1 ";\n\t"
#define ATTNJIT_ADD(SUM, P0, P1) \
  "add.f32 x, " P0 ", " P1 ";\n\tadd.f32 " SUM ", " SUM ", x;\n\t"

// Operands: four sums, the rows' scales and shifts, registers.
#define ATTNJIT_IN_PLACE(SUM, S0, S1, SCALE, SHIFT, ADD) \
  ATTNJIT_EXP2(S0, S1, S0, S1, SCALE, SHIFT) ADD(SUM, S0, S1)
#define ATTNJIT_PROBABILITIES(ADD, OUT)                                                 \
  asm volatile(                                                                         \
      "{\n.reg .f32 x;\n\t"                                                             \
      ATTNJIT_IN_PLACE("%0", "s%8_%9", "s%8_%10", "%4", "%6", ADD)                      \
      ATTNJIT_IN_PLACE("%1", "s%8_%11", "s%8_%12", "%5", "%7", ADD)                     \
      ATTNJIT_IN_PLACE("%2", "s%8_%13", "s%8_%14", "%4", "%6", ADD)                     \
      ATTNJIT_IN_PLACE("%3", "s%8_%15", "s%8_%16", "%5", "%7", ADD) "}"                 \
      : OUT(sums[0]), OUT(sums[1]), OUT(sums[2]), OUT(sums[3])                          \
      : "f"(scale[0]), "f"(scale[1]), "f"(shift[0]), "f"(shift[1]), ATTNJIT_EIGHT(kSet) \
      : "memory")

// Operands: four sums, four pairs, and then the same. CVT's first source is the upper half.
#define ATTNJIT_TO_PAIR(SUM, PAIR, S0, S1, SCALE, SHIFT, ADD, CVT) \
  ATTNJIT_EXP2("x", "y", S0, S1, SCALE, SHIFT) CVT " " PAIR ", y, x;\n\t" ADD(SUM, "x", "y")
#define ATTNJIT_PAIRS(ADD, OUT, CVT)                                                        \
  asm volatile(                                                                             \
      "{\n.reg .f32 x, y;\n\t"                                                              \
      ATTNJIT_TO_PAIR("%0", "%4", "s%12_%13", "s%12_%14", "%8", "%10", ADD, CVT)            \
      ATTNJIT_TO_PAIR("%1", "%5", "s%12_%15", "s%12_%16", "%9", "%11", ADD, CVT)            \
      ATTNJIT_TO_PAIR("%2", "%6", "s%12_%17", "s%12_%18", "%8", "%10", ADD, CVT)            \
      ATTNJIT_TO_PAIR("%3", "%7", "s%12_%19", "s%12_%20", "%9", "%11", ADD, CVT) "}"        \
      : OUT(sums[0]), OUT(sums[1]), OUT(sums[2]), OUT(sums[3]), "=r"(w[0]), "=r"(w[1]),     \
        "=r"(w[2]), "=r"(w[3])                                                              \
      : "f"(scale[0]), "f"(scale[1]), "f"(shift[0]), "f"(shift[1]), ATTNJIT_EIGHT(kSet)     \
      : "memory")

// Operands: four pairs, registers.
#define ATTNJIT_PACK(CVT)                                                     \
  asm volatile(CVT " %0, s%4_%6, s%4_%5;\n\t" CVT " %1, s%4_%8, s%4_%7;\n\t"  \
               CVT " %2, s%4_%10, s%4_%9;\n\t" CVT " %3, s%4_%12, s%4_%11;"   \
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])               \
               : ATTNJIT_EIGHT(kSet)                                          \
               : "memory")

/// S of a tile of N keys, of a set. Each function has a statement for the registers from kFrom on.
template <int N, int kSet>
struct ScoreRegisters {
  static constexpr int kCount = N / 2;
  static_assert(kCount % 8 == 0 && kCount > 8,
                "a statement names eight registers; sums are written before the scales' last use");

  template <int kFrom = 0>
  ATTNJIT_DEVICE static void read(float (&s)[kCount]) {
    constexpr int i = kFrom;
    float* const v = s + kFrom;
    asm volatile(
        "mov.f32 %0, s%8_%9;\n\tmov.f32 %1, s%8_%10;\n\t"
        "mov.f32 %2, s%8_%11;\n\tmov.f32 %3, s%8_%12;\n\t"
        "mov.f32 %4, s%8_%13;\n\tmov.f32 %5, s%8_%14;\n\t"
        "mov.f32 %6, s%8_%15;\n\tmov.f32 %7, s%8_%16;"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]),
          "=f"(v[7])
        : ATTNJIT_EIGHT(kSet)
        : "memory");
    if constexpr (kFrom + 8 < kCount) read<kFrom + 8>(s);
  }

  template <int kFrom = 0>
  ATTNJIT_DEVICE static void write(const float (&s)[kCount]) {
    constexpr int i = kFrom;
    const float* const v = s + kFrom;
    asm volatile(
        "mov.f32 s%8_%9, %0;\n\tmov.f32 s%8_%10, %1;\n\t"
        "mov.f32 s%8_%11, %2;\n\tmov.f32 s%8_%12, %3;\n\t"
        "mov.f32 s%8_%13, %4;\n\tmov.f32 s%8_%14, %5;\n\t"
        "mov.f32 s%8_%15, %6;\n\tmov.f32 s%8_%16, %7;"
        ::"f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]),
          ATTNJIT_EIGHT(kSet)
        : "memory");
    if constexpr (kFrom + 8 < kCount) write<kFrom + 8>(s);
  }

  /// Hides the columns whose bit is not set: of each row, 32 a word. NOTE: bits become predicates
  /// several at a time (R2P), of one row: by turns, masked tiles were 7 to 16 instructions longer.
  template <int kFrom = 0, int kWords>
  ATTNJIT_DEVICE static void hide(const u32 (&bits)[2][kWords]) {
    constexpr int i = kFrom, word = kFrom / 64, column = kFrom / 2 % 32;
    asm volatile(
        "{\n.reg .pred seen;\n.reg .b32 bit;\n.reg .f32 hidden;\n\t"
        "mov.f32 hidden, 0fFF800000;\n\t"
        ATTNJIT_HIDE("s%6_%7", "%0", "%2") ATTNJIT_HIDE("s%6_%8", "%0", "%3")
        ATTNJIT_HIDE("s%6_%11", "%0", "%4") ATTNJIT_HIDE("s%6_%12", "%0", "%5")
        ATTNJIT_HIDE("s%6_%9", "%1", "%2") ATTNJIT_HIDE("s%6_%10", "%1", "%3")
        ATTNJIT_HIDE("s%6_%13", "%1", "%4") ATTNJIT_HIDE("s%6_%14", "%1", "%5") "}"
        ::"r"(bits[0][word]), "r"(bits[1][word]), "n"(1u << column), "n"(2u << column),
          "n"(4u << column), "n"(8u << column), ATTNJIT_EIGHT(kSet)
        : "memory");
    if constexpr (kFrom + 8 < kCount) hide<kFrom + 8>(bits);
  }

  /// The largest of each row's scores and of what `largest` was.
  template <int kFrom = 0>
  ATTNJIT_DEVICE static void find_largest(float (&largest)[2]) {
    constexpr int i = kFrom;
    asm volatile(
        "{\n.reg .f32 x;\n\t"
        ATTNJIT_LARGEST("%0", "s%2_%3", "s%2_%4") ATTNJIT_LARGEST("%1", "s%2_%5", "s%2_%6")
        ATTNJIT_LARGEST("%0", "s%2_%7", "s%2_%8") ATTNJIT_LARGEST("%1", "s%2_%9", "s%2_%10") "}"
        : "+f"(largest[0]), "+f"(largest[1])
        : ATTNJIT_EIGHT(kSet)
        : "memory");
    if constexpr (kFrom + 8 < kCount) find_largest<kFrom + 8>(largest);
  }

  /// Replaces scores by their probabilities, 2^(score * scale + shift) of each row's, and sums them
  /// up: sums 0 and 2 are of the first row, 1 and 3 of the second one.
  template <int kFrom = 0>
  ATTNJIT_DEVICE static void make_probabilities(const float (&scale)[2], const float (&shift)[2],
                                                float (&sums)[4]) {
    constexpr int i = kFrom;
    if constexpr (kFrom == 0) {
      ATTNJIT_PROBABILITIES(ATTNJIT_BEGIN, "=f");
    } else {
      ATTNJIT_PROBABILITIES(ATTNJIT_ADD, "+f");
    }
    if constexpr (kFrom + 8 < kCount) make_probabilities<kFrom + 8>(scale, shift, sums);
  }

  /// Packs them.
  template <bool kBf16, int kFrom = 0>
  ATTNJIT_DEVICE static void pack(u32 (&pairs)[kCount / 2]) {
    constexpr int i = kFrom;
    u32* const w = pairs + kFrom / 2;
    if constexpr (kBf16) {
      ATTNJIT_PACK("cvt.rn.bf16x2.f32");
    } else {
      ATTNJIT_PACK("cvt.rn.f16x2.f32");
    }
    if constexpr (kFrom + 8 < kCount) pack<kBf16, kFrom + 8>(pairs);
  }

  /// Both, but the scores stay as they are.
  template <bool kBf16, int kFrom = 0>
  ATTNJIT_DEVICE static void probabilities(const float (&scale)[2], const float (&shift)[2],
                                           u32 (&pairs)[kCount / 2], float (&sums)[4]) {
    constexpr int i = kFrom;
    u32* const w = pairs + kFrom / 2;
    if constexpr (kBf16 && kFrom == 0) {
      ATTNJIT_PAIRS(ATTNJIT_BEGIN, "=f", "cvt.rn.bf16x2.f32");
    } else if constexpr (kBf16) {
      ATTNJIT_PAIRS(ATTNJIT_ADD, "+f", "cvt.rn.bf16x2.f32");
    } else if constexpr (kFrom == 0) {
      ATTNJIT_PAIRS(ATTNJIT_BEGIN, "=f", "cvt.rn.f16x2.f32");
    } else {
      ATTNJIT_PAIRS(ATTNJIT_ADD, "+f", "cvt.rn.f16x2.f32");
    }
    if constexpr (kFrom + 8 < kCount) probabilities<kBf16, kFrom + 8>(scale, shift, pairs, sums);
  }
};

// clang-format on

#undef ATTNJIT_HIDE
#undef ATTNJIT_LARGEST
#undef ATTNJIT_EXP2
#undef ATTNJIT_BEGIN
#undef ATTNJIT_ADD
#undef ATTNJIT_IN_PLACE
#undef ATTNJIT_PROBABILITIES
#undef ATTNJIT_TO_PAIR
#undef ATTNJIT_PAIRS
#undef ATTNJIT_PACK

template <class Config>
using ScoresOf = ScoreRegisters<Config::kTileN, Config::kBody>;

}  // namespace attnjit::sm90

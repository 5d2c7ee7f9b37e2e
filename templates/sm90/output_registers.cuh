// SPDX-License-Identifier: Apache-2.0
// A consumer's O: PTX registers with names of their own, o0_0, o0_1, .. and those of a second
// product's columns, o1_0, o1_1, ..; a second body of the kernel has o2_ and o3_.
//
// NOTE: for compile time. As a variable O is 64 values or more that the optimiser carries through
// each loop, wait and product, which was a fifth of its work (docs/compile.md). It sees none of
// these; ptxas makes the same loops of them. Each statement that names them is volatile, so they
// run in their order. NOTE: a body each: to ptxas a name is one place, and bodies differ in what
// else they hold; where they shared names it found no room for O.
#pragma once

#include "common/wgmma.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// Which of the names a body's O has, by its first columns and the rest of them.
template <class Config>
constexpr int kOutputSet = 2 * Config::kBody;

/// Names the O of a body: once in a kernel, before anything else of this file.
template <class Config>
ATTNJIT_DEVICE void name_output() {
  using Layout = LayoutOf<Config>;
  constexpr int kFirst = Layout::kPvFirst / 2, kRest = Layout::kPvColumns / 2 - kFirst;
  asm volatile(".reg .f32 o%0_<%1>;" ::"n"(kOutputSet<Config>), "n"(kFirst) : "memory");
  if constexpr (kRest > 0) {
    asm volatile(".reg .f32 o%0_<%1>;" ::"n"(kOutputSet<Config> + 1), "n"(kRest) : "memory");
  }
}

// Statements name eight registers of set `set`, from `i` on.
#define ATTNJIT_EIGHT                                                                       \
  "n"(set), "n"(i), "n"(i + 1), "n"(i + 2), "n"(i + 3), "n"(i + 4), "n"(i + 5), "n"(i + 6), \
      "n"(i + 7)

/// O of kCount registers a thread, laid out as a wgmma accumulator; from kFirst on they are the
/// second product's. kSet is the first one's set.
template <int kCount, int kFirst, int kSet>
struct OutputRegisters {
  static_assert(kCount % 8 == 0 && kFirst % 8 == 0, "a statement names eight registers");

  template <int kFrom = 0>
  ATTNJIT_DEVICE static void zero() {
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    asm volatile(
        "mov.f32 o%0_%1, 0f00000000;\n\t"
        "mov.f32 o%0_%2, 0f00000000;\n\t"
        "mov.f32 o%0_%3, 0f00000000;\n\t"
        "mov.f32 o%0_%4, 0f00000000;\n\t"
        "mov.f32 o%0_%5, 0f00000000;\n\t"
        "mov.f32 o%0_%6, 0f00000000;\n\t"
        "mov.f32 o%0_%7, 0f00000000;\n\t"
        "mov.f32 o%0_%8, 0f00000000;" ::ATTNJIT_EIGHT
        : "memory");
    if constexpr (kFrom + 8 < kCount) zero<kFrom + 8>();
  }
  /// Multiplies each of the thread's two rows.
  template <int kFrom = 0>
  ATTNJIT_DEVICE static void scale(const float (&factor)[2]) {
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    asm volatile(
        "mul.f32 o%2_%3, o%2_%3, %0;\n\t"
        "mul.f32 o%2_%4, o%2_%4, %0;\n\t"
        "mul.f32 o%2_%5, o%2_%5, %1;\n\t"
        "mul.f32 o%2_%6, o%2_%6, %1;\n\t"
        "mul.f32 o%2_%7, o%2_%7, %0;\n\t"
        "mul.f32 o%2_%8, o%2_%8, %0;\n\t"
        "mul.f32 o%2_%9, o%2_%9, %1;\n\t"
        "mul.f32 o%2_%10, o%2_%10, %1;" ::"f"(factor[0]),
        "f"(factor[1]), ATTNJIT_EIGHT
        : "memory");
    if constexpr (kFrom + 8 < kCount) scale<kFrom + 8>(factor);
  }
  /// Gives registers kFrom to kEnd - 1, eight at a time, to use(first of them, their values): so no
  /// more than eight have a second place.
  template <int kFrom, int kEnd, class Use>
  ATTNJIT_DEVICE static void read(const Use& use) {
    static_assert(kFrom % 8 == 0 && kEnd % 8 == 0, "a statement names eight registers");
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    float v[8];
    asm volatile(
        "mov.f32 %0, o%8_%9;\n\t"
        "mov.f32 %1, o%8_%10;\n\t"
        "mov.f32 %2, o%8_%11;\n\t"
        "mov.f32 %3, o%8_%12;\n\t"
        "mov.f32 %4, o%8_%13;\n\t"
        "mov.f32 %5, o%8_%14;\n\t"
        "mov.f32 %6, o%8_%15;\n\t"
        "mov.f32 %7, o%8_%16;"
        : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]),
          "=f"(v[7])
        : ATTNJIT_EIGHT
        : "memory");
    use(kFrom, v);
    if constexpr (kFrom + 8 < kEnd) read<kFrom + 8, kEnd>(use);
  }

 private:
  static constexpr int set_of(int i) { return kSet + (i < kFirst ? 0 : 1); }
  static constexpr int place_of(int i) { return i < kFirst ? i : i - kFirst; }
};

// Cumulative lists of names, of the set that is a statement's operand 5.
#define ATTNJIT_NAME(I) "o%5_" I
#define ATTNJIT_8(T)   \
  ATTNJIT_NAME(T "0,") \
  ATTNJIT_NAME(T "1,") \
  ATTNJIT_NAME(T "2,") \
  ATTNJIT_NAME(T "3,") \
  ATTNJIT_NAME(T "4,") ATTNJIT_NAME(T "5,") ATTNJIT_NAME(T "6,") ATTNJIT_NAME(T "7")
#define ATTNJIT_10(T) ATTNJIT_8(T) "," ATTNJIT_NAME(T "8,") ATTNJIT_NAME(T "9")
#define ATTNJIT_TO(I) "," ATTNJIT_NAME(I)
#define ATTNJIT_NAMES16 \
  ATTNJIT_10("")        \
  ATTNJIT_TO("10")      \
  ATTNJIT_TO("11") ATTNJIT_TO("12") ATTNJIT_TO("13") ATTNJIT_TO("14") ATTNJIT_TO("15")
#define ATTNJIT_NAMES32                                              \
  ATTNJIT_NAMES16 ATTNJIT_TO("16") ATTNJIT_TO("17") ATTNJIT_TO("18") \
      ATTNJIT_TO("19") "," ATTNJIT_10("2") ATTNJIT_TO("30") ATTNJIT_TO("31")
#define ATTNJIT_NAMES48                                                               \
  ATTNJIT_NAMES32 ATTNJIT_TO("32") ATTNJIT_TO("33") ATTNJIT_TO("34") ATTNJIT_TO("35") \
      ATTNJIT_TO("36") ATTNJIT_TO("37") ATTNJIT_TO("38") ATTNJIT_TO("39") "," ATTNJIT_8("4")
#define ATTNJIT_NAMES64                                                                  \
  ATTNJIT_NAMES48 ATTNJIT_TO("48") ATTNJIT_TO("49") "," ATTNJIT_10("5") ATTNJIT_TO("60") \
      ATTNJIT_TO("61") ATTNJIT_TO("62") ATTNJIT_TO("63")
#define ATTNJIT_NAMES80                                                               \
  ATTNJIT_NAMES64 ATTNJIT_TO("64") ATTNJIT_TO("65") ATTNJIT_TO("66") ATTNJIT_TO("67") \
      ATTNJIT_TO("68") ATTNJIT_TO("69") "," ATTNJIT_10("7")
#define ATTNJIT_NAMES96                                                                  \
  ATTNJIT_NAMES80 "," ATTNJIT_10("8") ATTNJIT_TO("90") ATTNJIT_TO("91") ATTNJIT_TO("92") \
      ATTNJIT_TO("93") ATTNJIT_TO("94") ATTNJIT_TO("95")
#define ATTNJIT_NAMES112                                             \
  ATTNJIT_NAMES96 ATTNJIT_TO("96") ATTNJIT_TO("97") ATTNJIT_TO("98") \
      ATTNJIT_TO("99") "," ATTNJIT_10("10") ATTNJIT_TO("110") ATTNJIT_TO("111")
#define ATTNJIT_NAMES128                                                                   \
  ATTNJIT_NAMES112 ATTNJIT_TO("112") ATTNJIT_TO("113") ATTNJIT_TO("114") ATTNJIT_TO("115") \
      ATTNJIT_TO("116") ATTNJIT_TO("117") ATTNJIT_TO("118") ATTNJIT_TO("119") "," ATTNJIT_8("12")

/// O += A * B as Wgmma::rs() of common/wgmma.cuh, of a set's registers. The N values below are the
/// ones that plans use.
template <int N>
struct OutputWgmma;

#define ATTNJIT_OUTPUT_RS(N, C, TYPE, REST)                                                        \
  asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPE \
               " {" ATTNJIT_NAMES##C "}, {%0,%1,%2,%3}, %4, p, " REST ";\n}" ::"r"(a0),            \
               "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(kSet)                                        \
               : "memory")
#define ATTNJIT_OUTPUT_WGMMA(N, C)                                         \
  template <>                                                              \
  struct OutputWgmma<N> {                                                  \
    template <WgmmaOperand kOperand, int kSet>                             \
    ATTNJIT_DEVICE static void rs(u32 a0, u32 a1, u32 a2, u32 a3, u64 b) { \
      if constexpr (kOperand == WgmmaOperand::kE4m3) {                     \
        ATTNJIT_OUTPUT_RS(N, C, "k32.f32.e4m3.e4m3", "1, 1");              \
      } else if constexpr (kOperand == WgmmaOperand::kBf16) {              \
        ATTNJIT_OUTPUT_RS(N, C, "k16.f32.bf16.bf16", "1, 1, 1");           \
      } else {                                                             \
        ATTNJIT_OUTPUT_RS(N, C, "k16.f32.f16.f16", "1, 1, 1");             \
      }                                                                    \
    }                                                                      \
  };

ATTNJIT_OUTPUT_WGMMA(32, 16)
ATTNJIT_OUTPUT_WGMMA(64, 32)
ATTNJIT_OUTPUT_WGMMA(96, 48)
ATTNJIT_OUTPUT_WGMMA(128, 64)
ATTNJIT_OUTPUT_WGMMA(160, 80)
ATTNJIT_OUTPUT_WGMMA(192, 96)
ATTNJIT_OUTPUT_WGMMA(224, 112)
ATTNJIT_OUTPUT_WGMMA(256, 128)

#undef ATTNJIT_EIGHT
#undef ATTNJIT_NAME
#undef ATTNJIT_8
#undef ATTNJIT_10
#undef ATTNJIT_TO
#undef ATTNJIT_NAMES16
#undef ATTNJIT_NAMES32
#undef ATTNJIT_NAMES48
#undef ATTNJIT_NAMES64
#undef ATTNJIT_NAMES80
#undef ATTNJIT_NAMES96
#undef ATTNJIT_NAMES112
#undef ATTNJIT_NAMES128
#undef ATTNJIT_OUTPUT_RS
#undef ATTNJIT_OUTPUT_WGMMA

template <class Config>
using OutputOf = OutputRegisters<LayoutOf<Config>::kPvColumns / 2, LayoutOf<Config>::kPvFirst / 2,
                                 kOutputSet<Config>>;

}  // namespace attnjit::sm90

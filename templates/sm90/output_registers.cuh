// SPDX-License-Identifier: Apache-2.0
// A consumer's O: PTX registers with names of their own, o0, o1, .. and those of a second product's
// columns, r0, r1, ...
//
// NOTE: for compile time. As a variable O is 64 values or more that the optimiser carries through
// each loop, wait and product, which was a fifth of its work (docs/compile.md). It sees none of
// these; ptxas makes the same loops of them. Each statement that names them is volatile, so they
// run in their order.
#pragma once

#include "common/wgmma.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// Names O's registers: once in a kernel, before anything else of this file.
template <int kFirst, int kRest>
ATTNJIT_DEVICE void name_output() {
  asm volatile(".reg .f32 o<%0>, r<%1>;" ::"n"(kFirst), "n"(kRest > 0 ? kRest : 1) : "memory");
}

// Statements name eight registers, from `i` on.
#define ATTNJIT_EIGHT \
  "n"(i), "n"(i + 1), "n"(i + 2), "n"(i + 3), "n"(i + 4), "n"(i + 5), "n"(i + 6), "n"(i + 7)
#define ATTNJIT_ZERO_ONE(P, I) "mov.f32 " P I ", 0f00000000;\n\t"
#define ATTNJIT_ZERO(P)     \
  ATTNJIT_ZERO_ONE(P, "%0") \
  ATTNJIT_ZERO_ONE(P, "%1") \
  ATTNJIT_ZERO_ONE(P, "%2") \
  ATTNJIT_ZERO_ONE(P, "%3") \
  ATTNJIT_ZERO_ONE(P, "%4") \
  ATTNJIT_ZERO_ONE(P, "%5") \
  ATTNJIT_ZERO_ONE(P, "%6") \
  ATTNJIT_ZERO_ONE(P, "%7")
#define ATTNJIT_SCALE_ONE(P, I, BY) "mul.f32 " P I ", " P I ", " BY ";\n\t"
#define ATTNJIT_SCALE(P)           \
  ATTNJIT_SCALE_ONE(P, "%2", "%0") \
  ATTNJIT_SCALE_ONE(P, "%3", "%0") \
  ATTNJIT_SCALE_ONE(P, "%4", "%1") \
  ATTNJIT_SCALE_ONE(P, "%5", "%1") \
  ATTNJIT_SCALE_ONE(P, "%6", "%0") \
  ATTNJIT_SCALE_ONE(P, "%7", "%0") \
  ATTNJIT_SCALE_ONE(P, "%8", "%1") \
  ATTNJIT_SCALE_ONE(P, "%9", "%1")
#define ATTNJIT_READ_ONE(P, TO, I) "mov.f32 " TO ", " P I ";\n\t"
#define ATTNJIT_READ(P)            \
  ATTNJIT_READ_ONE(P, "%0", "%8")  \
  ATTNJIT_READ_ONE(P, "%1", "%9")  \
  ATTNJIT_READ_ONE(P, "%2", "%10") \
  ATTNJIT_READ_ONE(P, "%3", "%11") \
  ATTNJIT_READ_ONE(P, "%4", "%12") \
  ATTNJIT_READ_ONE(P, "%5", "%13") \
  ATTNJIT_READ_ONE(P, "%6", "%14") \
  ATTNJIT_READ_ONE(P, "%7", "%15")

/// O of kCount registers a thread, laid out as a wgmma accumulator; from kFirst on they are the
/// second product's.
template <int kCount, int kFirst>
struct OutputRegisters {
  static_assert(kCount % 8 == 0 && kFirst % 8 == 0, "a statement names eight registers");

  template <int kFrom = 0>
  ATTNJIT_DEVICE static void zero() {
    if constexpr (kFrom < kFirst) {
      constexpr int i = kFrom;
      asm volatile(ATTNJIT_ZERO("o")::ATTNJIT_EIGHT : "memory");
    } else {
      constexpr int i = kFrom - kFirst;
      asm volatile(ATTNJIT_ZERO("r")::ATTNJIT_EIGHT : "memory");
    }
    if constexpr (kFrom + 8 < kCount) zero<kFrom + 8>();
  }
  /// Multiplies each of the thread's two rows.
  template <int kFrom = 0>
  ATTNJIT_DEVICE static void scale(const float (&factor)[2]) {
    if constexpr (kFrom < kFirst) {
      constexpr int i = kFrom;
      asm volatile(ATTNJIT_SCALE("o")::"f"(factor[0]), "f"(factor[1]), ATTNJIT_EIGHT : "memory");
    } else {
      constexpr int i = kFrom - kFirst;
      asm volatile(ATTNJIT_SCALE("r")::"f"(factor[0]), "f"(factor[1]), ATTNJIT_EIGHT : "memory");
    }
    if constexpr (kFrom + 8 < kCount) scale<kFrom + 8>(factor);
  }
  template <int kFrom = 0>
  ATTNJIT_DEVICE static void read(float (&o)[kCount]) {
    float* const v = o + kFrom;
    if constexpr (kFrom < kFirst) {
      constexpr int i = kFrom;
      asm volatile(ATTNJIT_READ("o")
                   : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]),
                     "=f"(v[6]), "=f"(v[7])
                   : ATTNJIT_EIGHT
                   : "memory");
    } else {
      constexpr int i = kFrom - kFirst;
      asm volatile(ATTNJIT_READ("r")
                   : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]),
                     "=f"(v[6]), "=f"(v[7])
                   : ATTNJIT_EIGHT
                   : "memory");
    }
    if constexpr (kFrom + 8 < kCount) read<kFrom + 8>(o);
  }
};

// Cumulative lists of names.
#define ATTNJIT_N8(P, T) P T "0," P T "1," P T "2," P T "3," P T "4," P T "5," P T "6," P T "7"
#define ATTNJIT_N10(P, T) ATTNJIT_N8(P, T) "," P T "8," P T "9"
#define ATTNJIT_NAMES16(P) ATTNJIT_N10(P, "") "," P "10," P "11," P "12," P "13," P "14," P "15"
#define ATTNJIT_NAMES32(P) \
  ATTNJIT_NAMES16(P) "," P "16," P "17," P "18," P "19," ATTNJIT_N10(P, "2") "," P "30," P "31"
#define ATTNJIT_NAMES48(P) \
  ATTNJIT_NAMES32(P)       \
  "," P "32," P "33," P "34," P "35," P "36," P "37," P "38," P "39," ATTNJIT_N8(P, "4")
#define ATTNJIT_NAMES64(P) \
  ATTNJIT_NAMES48(P) "," P "48," P "49," ATTNJIT_N10(P, "5") "," P "60," P "61," P "62," P "63"
#define ATTNJIT_NAMES80(P) \
  ATTNJIT_NAMES64(P) "," P "64," P "65," P "66," P "67," P "68," P "69," ATTNJIT_N10(P, "7")
#define ATTNJIT_NAMES96(P) \
  ATTNJIT_NAMES80(P) "," ATTNJIT_N10(P, "8") "," P "90," P "91," P "92," P "93," P "94," P "95"
#define ATTNJIT_NAMES112(P) \
  ATTNJIT_NAMES96(P) "," P "96," P "97," P "98," P "99," ATTNJIT_N10(P, "10") "," P "110," P "111"
#define ATTNJIT_NAMES128(P) \
  ATTNJIT_NAMES112(P)       \
  "," P "112," P "113," P "114," P "115," P "116," P "117," P "118," P "119," ATTNJIT_N8(P, "12")

/// O += A * B as Wgmma::rs() of common/wgmma.cuh, of O's first columns or of the rest. The N values
/// below are the ones that plans use.
template <int N, bool kRest>
struct OutputWgmma;

#define ATTNJIT_OUTPUT_RS(N, C, TYPE, P, REST)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPE \
               " {" ATTNJIT_NAMES##C(P) "}, {%0,%1,%2,%3}, %4, p, " REST ";\n}" ::"r"(a0),         \
               "r"(a1), "r"(a2), "r"(a3), "l"(b)                                                   \
               : "memory")
#define ATTNJIT_OUTPUT_WGMMA(N, C, REST_COLUMNS, P)                        \
  template <>                                                              \
  struct OutputWgmma<N, REST_COLUMNS> {                                    \
    template <WgmmaOperand kOperand>                                       \
    ATTNJIT_DEVICE static void rs(u32 a0, u32 a1, u32 a2, u32 a3, u64 b) { \
      if constexpr (kOperand == WgmmaOperand::kE4m3) {                     \
        ATTNJIT_OUTPUT_RS(N, C, "k32.f32.e4m3.e4m3", P, "1, 1");           \
      } else if constexpr (kOperand == WgmmaOperand::kBf16) {              \
        ATTNJIT_OUTPUT_RS(N, C, "k16.f32.bf16.bf16", P, "1, 1, 1");        \
      } else {                                                             \
        ATTNJIT_OUTPUT_RS(N, C, "k16.f32.f16.f16", P, "1, 1, 1");          \
      }                                                                    \
    }                                                                      \
  };

ATTNJIT_OUTPUT_WGMMA(32, 16, false, "o")
ATTNJIT_OUTPUT_WGMMA(64, 32, false, "o")
ATTNJIT_OUTPUT_WGMMA(96, 48, false, "o")
ATTNJIT_OUTPUT_WGMMA(128, 64, false, "o")
ATTNJIT_OUTPUT_WGMMA(160, 80, false, "o")
ATTNJIT_OUTPUT_WGMMA(192, 96, false, "o")
ATTNJIT_OUTPUT_WGMMA(224, 112, false, "o")
ATTNJIT_OUTPUT_WGMMA(256, 128, false, "o")
ATTNJIT_OUTPUT_WGMMA(32, 16, true, "r")
ATTNJIT_OUTPUT_WGMMA(64, 32, true, "r")
ATTNJIT_OUTPUT_WGMMA(96, 48, true, "r")
ATTNJIT_OUTPUT_WGMMA(128, 64, true, "r")
ATTNJIT_OUTPUT_WGMMA(160, 80, true, "r")
ATTNJIT_OUTPUT_WGMMA(192, 96, true, "r")

#undef ATTNJIT_EIGHT
#undef ATTNJIT_ZERO_ONE
#undef ATTNJIT_ZERO
#undef ATTNJIT_SCALE_ONE
#undef ATTNJIT_SCALE
#undef ATTNJIT_READ_ONE
#undef ATTNJIT_READ
#undef ATTNJIT_N8
#undef ATTNJIT_N10
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
using OutputOf = OutputRegisters<LayoutOf<Config>::kPvColumns / 2, LayoutOf<Config>::kPvFirst / 2>;

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// A consumer's accumulators, and what it holds of Q: PTX registers with names of their own. O has
// o0_0, o0_1, .. and for a second product's columns o1_0, o1_1, ..; S has s0_0, s0_1, .., and Q
// q0_0, q0_1, ... The small-tile variant of the kernel has o2_, o3_, s1_ and q1_.
//
// NOTE: for compile time. As a variable O is 64 values or more that the optimiser carries through
// each loop, wait and product, which was a fifth of its work, and S is as many in each statement of
// its product (docs/compile.md). It sees none of these; ptxas makes the same loops of them. Each
// statement that names them is volatile, so they run in their order. NOTE: a body each: to ptxas a
// name is one place, and bodies differ in what else they hold; where they shared names it found no
// room for O, and serialised the products that make S (C7511).
#pragma once

#include "common/wgmma.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// Which of the names a body's O has, by its first columns and the rest of them.
template <class Config>
constexpr int kOutputSet = 2 * Config::kBody;

/// Names the registers of a body: once in a kernel, before anything else of this file.
template <class Config>
ATTNJIT_DEVICE void name_accumulators() {
  using Layout = LayoutOf<Config>;
  constexpr int kFirst = Layout::kPvFirst / 2, kRest = Layout::kPvColumns / 2 - kFirst;
  asm volatile(".reg .f32 o%0_<%1>;" ::"n"(kOutputSet<Config>), "n"(kFirst) : "memory");
  if constexpr (kRest > 0) {
    asm volatile(".reg .f32 o%0_<%1>;" ::"n"(kOutputSet<Config> + 1), "n"(kRest) : "memory");
  }
  asm volatile(".reg .f32 s%0_<%1>;" ::"n"(Config::kBody), "n"(Config::kTileN / 2) : "memory");
  if constexpr (Config::kQRegisterSteps > 0) {
    asm volatile(".reg .b32 q%0_<%1>;" ::"n"(Config::kBody), "n"(4 * Config::kQRegisterSteps)
                 : "memory");
  }
}

/// Loads a warp's Q of a step, 16 rows of 32 bytes, as the A operand of its product. A lane gives
/// the address of 16 bytes: lanes 0 to 15 of the rows' first halves, 16 to 31 of their second.
template <int kSet, int kStep>
ATTNJIT_DEVICE void load_q_registers(u32 address) {
  constexpr int i = 4 * kStep;
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {q%1_%2, q%1_%3, q%1_%4, q%1_%5}, [%0];" ::"r"(
          address),
      "n"(kSet), "n"(i), "n"(i + 1), "n"(i + 2), "n"(i + 3)
      : "memory");
}

// Eight registers of a set, from `i` on, as a statement names them: here and in
// sm90/score_registers.cuh.
#define ATTNJIT_EIGHT(SET)                                                                  \
  "n"(SET), "n"(i), "n"(i + 1), "n"(i + 2), "n"(i + 3), "n"(i + 4), "n"(i + 5), "n"(i + 6), \
      "n"(i + 7)

// A statement that multiplies eight by their rows' factors, and makes four pairs of them by CVT,
// whose first source is the upper half. Its operands are the pairs, the factors, eight names.
#define ATTNJIT_PACK_SCALED(CVT)                                                   \
  asm volatile(                                                                    \
      "{\n.reg .f32 x, y;\n\t"                                                     \
      "mul.f32 x, o%6_%7, %4;\n\tmul.f32 y, o%6_%8, %4;\n\t" CVT                   \
      " %0, y, x;\n\t"                                                             \
      "mul.f32 x, o%6_%9, %5;\n\tmul.f32 y, o%6_%10, %5;\n\t" CVT                  \
      " %1, y, x;\n\t"                                                             \
      "mul.f32 x, o%6_%11, %4;\n\tmul.f32 y, o%6_%12, %4;\n\t" CVT                 \
      " %2, y, x;\n\t"                                                             \
      "mul.f32 x, o%6_%13, %5;\n\tmul.f32 y, o%6_%14, %5;\n\t" CVT " %3, y, x;\n}" \
      : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])                             \
      : "f"(factor[0]), "f"(factor[1]), ATTNJIT_EIGHT(set)                         \
      : "memory")

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
        "mov.f32 o%0_%8, 0f00000000;" ::ATTNJIT_EIGHT(set)
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
        "f"(factor[1]), ATTNJIT_EIGHT(set)
        : "memory");
    if constexpr (kFrom + 8 < kCount) scale<kFrom + 8>(factor);
  }
  /// Adds to registers kFrom to kFrom + 7 what they are, times their rows' factors, elsewhere.
  template <int kFrom>
  ATTNJIT_DEVICE static void add(const float (&v)[8], const float (&factor)[2]) {
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    asm volatile(
        "fma.rn.f32 o%10_%11, %0, %8, o%10_%11;\n\t"
        "fma.rn.f32 o%10_%12, %1, %8, o%10_%12;\n\t"
        "fma.rn.f32 o%10_%13, %2, %9, o%10_%13;\n\t"
        "fma.rn.f32 o%10_%14, %3, %9, o%10_%14;\n\t"
        "fma.rn.f32 o%10_%15, %4, %8, o%10_%15;\n\t"
        "fma.rn.f32 o%10_%16, %5, %8, o%10_%16;\n\t"
        "fma.rn.f32 o%10_%17, %6, %9, o%10_%17;\n\t"
        "fma.rn.f32 o%10_%18, %7, %9, o%10_%18;" ::"f"(v[0]),
        "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]), "f"(factor[0]),
        "f"(factor[1]), ATTNJIT_EIGHT(set)
        : "memory");
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
        : ATTNJIT_EIGHT(set)
        : "memory");
    use(kFrom, v);
    if constexpr (kFrom + 8 < kEnd) read<kFrom + 8, kEnd>(use);
  }

  /// The same, times their rows' factors.
  template <int kFrom, int kEnd, class Use>
  ATTNJIT_DEVICE static void read_scaled(const float (&factor)[2], const Use& use) {
    static_assert(kFrom % 8 == 0 && kEnd % 8 == 0, "a statement names eight registers");
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    float v[8];
    asm volatile(
        "mul.f32 %0, o%10_%11, %8;\n\t"
        "mul.f32 %1, o%10_%12, %8;\n\t"
        "mul.f32 %2, o%10_%13, %9;\n\t"
        "mul.f32 %3, o%10_%14, %9;\n\t"
        "mul.f32 %4, o%10_%15, %8;\n\t"
        "mul.f32 %5, o%10_%16, %8;\n\t"
        "mul.f32 %6, o%10_%17, %9;\n\t"
        "mul.f32 %7, o%10_%18, %9;"
        : "=&f"(v[0]), "=&f"(v[1]), "=&f"(v[2]), "=&f"(v[3]), "=&f"(v[4]), "=&f"(v[5]), "=&f"(v[6]),
          "=f"(v[7])
        : "f"(factor[0]), "f"(factor[1]), ATTNJIT_EIGHT(set)
        : "memory");
    use(kFrom, v);
    if constexpr (kFrom + 8 < kEnd) read_scaled<kFrom + 8, kEnd>(factor, use);
  }

  /// Gives eight at a time, times their rows' factors, as four pairs of 16 bits, to use(first of
  /// the eight, pairs): a statement, for compile time.
  template <bool kBf16, int kFrom, int kEnd, class Use>
  ATTNJIT_DEVICE static void pack(const float (&factor)[2], const Use& use) {
    static_assert(kFrom % 8 == 0 && kEnd % 8 == 0, "a statement names eight registers");
    constexpr int set = set_of(kFrom), i = place_of(kFrom);
    u32 w[4];
    if constexpr (kBf16) {
      ATTNJIT_PACK_SCALED("cvt.rn.bf16x2.f32");
    } else {
      ATTNJIT_PACK_SCALED("cvt.rn.f16x2.f32");
    }
    use(kFrom, w);
    if constexpr (kFrom + 8 < kEnd) pack<kBf16, kFrom + 8, kEnd>(factor, use);
  }

 private:
  static constexpr int set_of(int i) { return kSet + (i < kFirst ? 0 : 1); }
  static constexpr int place_of(int i) { return i < kFirst ? i : i - kFirst; }
};

// Cumulative lists of names, which begin with P.
#define ATTNJIT_N8(P, T) P T "0," P T "1," P T "2," P T "3," P T "4," P T "5," P T "6," P T "7"
#define ATTNJIT_N10(P, T) ATTNJIT_N8(P, T) "," P T "8," P T "9"
#define ATTNJIT_NAMES16(P) ATTNJIT_N10(P, "") "," P "10," P "11," P "12," P "13," P "14," P "15"
#define ATTNJIT_NAMES32(P) \
  ATTNJIT_NAMES16(P) "," P "16," P "17," P "18," P "19," ATTNJIT_N10(P, "2") "," P "30," P "31"
#define ATTNJIT_NAMES40(P) \
  ATTNJIT_NAMES32(P) "," P "32," P "33," P "34," P "35," P "36," P "37," P "38," P "39"
#define ATTNJIT_NAMES48(P) \
  ATTNJIT_NAMES32(P)       \
  "," P "32," P "33," P "34," P "35," P "36," P "37," P "38," P "39," ATTNJIT_N8(P, "4")
#define ATTNJIT_NAMES56(P) \
  ATTNJIT_NAMES48(P) "," P "48," P "49," P "50," P "51," P "52," P "53," P "54," P "55"
#define ATTNJIT_NAMES64(P) \
  ATTNJIT_NAMES48(P) "," P "48," P "49," ATTNJIT_N10(P, "5") "," P "60," P "61," P "62," P "63"
#define ATTNJIT_NAMES72(P) \
  ATTNJIT_NAMES64(P) "," P "64," P "65," P "66," P "67," P "68," P "69," P "70," P "71"
#define ATTNJIT_NAMES80(P) \
  ATTNJIT_NAMES64(P) "," P "64," P "65," P "66," P "67," P "68," P "69," ATTNJIT_N10(P, "7")
#define ATTNJIT_NAMES88(P) ATTNJIT_NAMES80(P) "," ATTNJIT_N8(P, "8")
#define ATTNJIT_NAMES96(P) \
  ATTNJIT_NAMES80(P) "," ATTNJIT_N10(P, "8") "," P "90," P "91," P "92," P "93," P "94," P "95"
#define ATTNJIT_NAMES112(P) \
  ATTNJIT_NAMES96(P) "," P "96," P "97," P "98," P "99," ATTNJIT_N10(P, "10") "," P "110," P "111"
#define ATTNJIT_NAMES128(P) \
  ATTNJIT_NAMES112(P)       \
  "," P "112," P "113," P "114," P "115," P "116," P "117," P "118," P "119," ATTNJIT_N8(P, "12")

/// O += A * B of a set's registers, A from registers. The N values below are the ones that plans
/// use.
template <int N>
struct OutputWgmma;

#define ATTNJIT_OUTPUT_RS(N, C, TYPE, REST)                                                        \
  asm volatile("{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPE \
               " {" ATTNJIT_NAMES##C("o%5_") "}, {%0,%1,%2,%3}, %4, p, " REST ";\n}" ::"r"(a0),    \
               "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(kSet)                                        \
               : "memory")
#define ATTNJIT_OUTPUT_WGMMA(N, C)                                         \
  template <>                                                              \
  struct OutputWgmma<N> {                                                  \
    template <WgmmaOperand kOperand, int kSet>                             \
    ATTNJIT_DEVICE static void rs(u32 a0, u32 a1, u32 a2, u32 a3, u64 b) { \
      ATTNJIT_BY_OPERAND(ATTNJIT_OUTPUT_RS, N, C, "1")                     \
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

/// S (+)= A * B, both from shared memory; rs(): A is a step of Q in registers. The N values below
/// are the ones that plans use.
template <int N>
struct ScoreWgmma;

#define ATTNJIT_SCORE_SS(N, C, TYPE, REST)                                                 \
  asm volatile(                                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPE \
      " {" ATTNJIT_NAMES##C("s%3_") "}, %0, %1, p, " REST ";\n}" ::"l"(a),                 \
      "l"(b), "n"(kAccumulate), "n"(kSet)                                                  \
      : "memory")
#define ATTNJIT_SCORE_RS(N, C, TYPE, REST)                                                 \
  asm volatile(                                                                            \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\nwgmma.mma_async.sync.aligned.m64n" #N TYPE \
      " {" ATTNJIT_NAMES##C("s%2_") "}, {q%2_%3, q%2_%4, q%2_%5, q%2_%6}, %0, p, " REST    \
                                    ";\n}" ::"l"(b),                                       \
      "n"(kAccumulate), "n"(kSet), "n"(4 * kStep), "n"(4 * kStep + 1), "n"(4 * kStep + 2), \
      "n"(4 * kStep + 3)                                                                   \
      : "memory")
#define ATTNJIT_SCORE_WGMMA(N, C)                                           \
  template <>                                                               \
  struct ScoreWgmma<N> {                                                    \
    template <WgmmaOperand kOperand, bool kAccumulate, int kSet, int kStep> \
    ATTNJIT_DEVICE static void rs(u64 b) {                                  \
      ATTNJIT_BY_OPERAND(ATTNJIT_SCORE_RS, N, C, "0")                       \
    }                                                                       \
    template <WgmmaOperand kOperand, bool kAccumulate, int kSet>            \
    ATTNJIT_DEVICE static void ss(u64 a, u64 b) {                           \
      ATTNJIT_BY_OPERAND(ATTNJIT_SCORE_SS, N, C, "0, 0")                    \
    }                                                                       \
  };

ATTNJIT_SCORE_WGMMA(64, 32)
ATTNJIT_SCORE_WGMMA(80, 40)
ATTNJIT_SCORE_WGMMA(96, 48)
ATTNJIT_SCORE_WGMMA(112, 56)
ATTNJIT_SCORE_WGMMA(128, 64)
ATTNJIT_SCORE_WGMMA(144, 72)
ATTNJIT_SCORE_WGMMA(160, 80)
ATTNJIT_SCORE_WGMMA(176, 88)
ATTNJIT_SCORE_WGMMA(192, 96)
ATTNJIT_SCORE_WGMMA(224, 112)

#undef ATTNJIT_PACK_SCALED
#undef ATTNJIT_N8
#undef ATTNJIT_N10
#undef ATTNJIT_NAMES16
#undef ATTNJIT_NAMES32
#undef ATTNJIT_NAMES40
#undef ATTNJIT_NAMES48
#undef ATTNJIT_NAMES56
#undef ATTNJIT_NAMES64
#undef ATTNJIT_NAMES72
#undef ATTNJIT_NAMES80
#undef ATTNJIT_NAMES88
#undef ATTNJIT_NAMES96
#undef ATTNJIT_NAMES112
#undef ATTNJIT_NAMES128
#undef ATTNJIT_OUTPUT_RS
#undef ATTNJIT_OUTPUT_WGMMA
#undef ATTNJIT_SCORE_RS
#undef ATTNJIT_SCORE_SS
#undef ATTNJIT_SCORE_WGMMA
#undef ATTNJIT_BY_OPERAND

template <class Config>
using OutputOf = OutputRegisters<LayoutOf<Config>::kPvColumns / 2, LayoutOf<Config>::kPvFirst / 2,
                                 kOutputSet<Config>>;

}  // namespace attnjit::sm90

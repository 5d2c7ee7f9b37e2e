// SPDX-License-Identifier: Apache-2.0
// wgmma of the shapes that the clock measures, with accumulators that are values: those of kernels
// have registers with names (templates/sm90/named_registers.cuh).
#pragma once

#include "common/wgmma.cuh"

namespace attnjit::clock_bench {

/// D (+)= A * B. `accumulate` 0: D = A * B.
template <int N>
struct Wgmma;

// Cumulative operand lists: Dn names registers 0..n-1, On binds them.
#define ATTNJIT_D16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTNJIT_O16                                                                               \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15])
#define ATTNJIT_D32 ATTNJIT_D16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTNJIT_O32                                                                              \
  ATTNJIT_O16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),     \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define ATTNJIT_D40 ATTNJIT_D32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTNJIT_O40                                                                          \
  ATTNJIT_O32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), \
      "+f"(d[38]), "+f"(d[39])
#define ATTNJIT_D48 ATTNJIT_D40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTNJIT_O48                                                                          \
  ATTNJIT_O40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
      "+f"(d[46]), "+f"(d[47])
#define ATTNJIT_D56 ATTNJIT_D48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTNJIT_O56                                                                          \
  ATTNJIT_O48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
      "+f"(d[54]), "+f"(d[55])
#define ATTNJIT_D64 ATTNJIT_D56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTNJIT_O64                                                                          \
  ATTNJIT_O56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), \
      "+f"(d[62]), "+f"(d[63])
#define ATTNJIT_D72 ATTNJIT_D64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTNJIT_O72                                                                          \
  ATTNJIT_O64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), \
      "+f"(d[70]), "+f"(d[71])
#define ATTNJIT_D80 ATTNJIT_D72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define ATTNJIT_O80                                                                          \
  ATTNJIT_O72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), \
      "+f"(d[78]), "+f"(d[79])
#define ATTNJIT_D88 ATTNJIT_D80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define ATTNJIT_O88                                                                          \
  ATTNJIT_O80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), \
      "+f"(d[86]), "+f"(d[87])
#define ATTNJIT_D96 ATTNJIT_D88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTNJIT_O96                                                                          \
  ATTNJIT_O88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), \
      "+f"(d[94]), "+f"(d[95])
#define ATTNJIT_D112 \
  ATTNJIT_D96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define ATTNJIT_O112                                                                           \
  ATTNJIT_O96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), \
      "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),      \
      "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define ATTNJIT_D128 \
  ATTNJIT_D112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTNJIT_O128                                                                      \
  ATTNJIT_O112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]),     \
      "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), \
      "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// One instruction: A's operands as the asm names them, and the asm's inputs from A's on.
#define ATTNJIT_WGMMA(N, C, TYPE, A, B, P, REST, ...)                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P                                             \
               ", 0;\n"                                                                          \
               "wgmma.mma_async.sync.aligned.m64n" #N TYPE " {" ATTNJIT_D##C "}, " A ", " B      \
                                                                             ", p, " REST ";\n}" \
               : ATTNJIT_O##C                                                                    \
               : __VA_ARGS__)

// Both of an N with C accumulator registers a thread. The operands are numbered from C on.
#define ATTNJIT_WGMMA_SS(N, C, A, B, P)                                                           \
  template <WgmmaOperand kOperand>                                                                \
  ATTNJIT_DEVICE static void ss(float(&d)[C], u64 a, u64 b, int accumulate) {                     \
    if constexpr (kOperand == WgmmaOperand::kE4m3) {                                              \
      ATTNJIT_WGMMA(N, C, "k32.f32.e4m3.e4m3", A, B, P, "1, 1", "l"(a), "l"(b), "r"(accumulate)); \
    } else if constexpr (kOperand == WgmmaOperand::kBf16) {                                       \
      ATTNJIT_WGMMA(N, C, "k16.f32.bf16.bf16", A, B, P, "1, 1, 0, 0", "l"(a), "l"(b),             \
                    "r"(accumulate));                                                             \
    } else {                                                                                      \
      ATTNJIT_WGMMA(N, C, "k16.f32.f16.f16", A, B, P, "1, 1, 0, 0", "l"(a), "l"(b),               \
                    "r"(accumulate));                                                             \
    }                                                                                             \
  }

#define ATTNJIT_WGMMA_RS(N, C, A0, A1, A2, A3, B, P)                                             \
  template <WgmmaOperand kOperand>                                                               \
  ATTNJIT_DEVICE static void rs(float(&d)[C], u32 a0, u32 a1, u32 a2, u32 a3, u64 b,             \
                                int accumulate) {                                                \
    if constexpr (kOperand == WgmmaOperand::kE4m3) {                                             \
      ATTNJIT_WGMMA(N, C, "k32.f32.e4m3.e4m3", "{" A0 "," A1 "," A2 "," A3 "}", B, P, "1, 1",    \
                    "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));                \
    } else if constexpr (kOperand == WgmmaOperand::kBf16) {                                      \
      ATTNJIT_WGMMA(N, C, "k16.f32.bf16.bf16", "{" A0 "," A1 "," A2 "," A3 "}", B, P, "1, 1, 1", \
                    "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));                \
    } else {                                                                                     \
      ATTNJIT_WGMMA(N, C, "k16.f32.f16.f16", "{" A0 "," A1 "," A2 "," A3 "}", B, P, "1, 1, 1",   \
                    "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));                \
    }                                                                                            \
  }

template <>
struct Wgmma<32> {
  ATTNJIT_WGMMA_RS(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
};
template <>
struct Wgmma<64> {
  ATTNJIT_WGMMA_SS(64, 32, "%32", "%33", "%34")
  ATTNJIT_WGMMA_RS(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
};
template <>
struct Wgmma<80> {
  ATTNJIT_WGMMA_SS(80, 40, "%40", "%41", "%42")
};
template <>
struct Wgmma<96> {
  ATTNJIT_WGMMA_SS(96, 48, "%48", "%49", "%50")
  ATTNJIT_WGMMA_RS(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
};
template <>
struct Wgmma<112> {
  ATTNJIT_WGMMA_SS(112, 56, "%56", "%57", "%58")
};
template <>
struct Wgmma<128> {
  ATTNJIT_WGMMA_SS(128, 64, "%64", "%65", "%66")
  ATTNJIT_WGMMA_RS(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
};
template <>
struct Wgmma<144> {
  ATTNJIT_WGMMA_SS(144, 72, "%72", "%73", "%74")
};
template <>
struct Wgmma<160> {
  ATTNJIT_WGMMA_SS(160, 80, "%80", "%81", "%82")
};
template <>
struct Wgmma<176> {
  ATTNJIT_WGMMA_SS(176, 88, "%88", "%89", "%90")
};
template <>
struct Wgmma<192> {
  ATTNJIT_WGMMA_SS(192, 96, "%96", "%97", "%98")
  ATTNJIT_WGMMA_RS(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
};
template <>
struct Wgmma<224> {
  ATTNJIT_WGMMA_SS(224, 112, "%112", "%113", "%114")
};
template <>
struct Wgmma<256> {
  ATTNJIT_WGMMA_RS(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")
};

}  // namespace attnjit::clock_bench

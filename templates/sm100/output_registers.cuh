// SPDX-License-Identifier: Apache-2.0
// 16 columns of a row of O, and the eight words of 16-bit O that they are packed into: PTX
// registers with names of their own, out0 to out15 and packed0 to packed7.
//
// NOTE: for compile time, as those of scores (sm100/score_registers.cuh).
#pragma once

#include "common/ptx.cuh"

namespace attnjit::sm100 {

// clang-format off

#define ATTNJIT_ALL16(DO)                                                          \
  DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) \
  DO(13) DO(14) DO(15)
#define ATTNJIT_LOAD16(r)                                                                      \
  "tcgen05.ld.sync.aligned.32x32b.x16.b32 {" #r "0," #r "1," #r "2," #r "3," #r "4," #r "5,"   \
  #r "6," #r "7," #r "8," #r "9," #r "10," #r "11," #r "12," #r "13," #r "14," #r "15}, [%0];\n\t"
#define ATTNJIT_WAIT "tcgen05.wait::ld.sync.aligned;\n\t"
#define ATTNJIT_ZERO(i) "mov.f32 out" #i ", 0f00000000;\n\t"
#define ATTNJIT_MUL(i) "mul.f32 out" #i ", out" #i ", %1;\n\t"
#define ATTNJIT_FMA(i) "fma.rn.f32 out" #i ", other" #i ", %1, out" #i ";\n\t"

// Two columns, multiplied and packed by CVT, whose first source is the upper half.
#define ATTNJIT_PACK2(cvt, word, low, high)                              \
  "mov.b64 x, {out" #low ", out" #high "};\n\tmul.rn.f32x2 x, x, f;\n\t" \
  "mov.b64 {a, b}, x;\n\t" cvt " packed" #word ", b, a;\n\t"
#define ATTNJIT_PACK16(cvt)                                                                   \
  asm volatile(ATTNJIT_WAIT "{\n.reg .b64 f, x;\n.reg .f32 a, b;\n\tmov.b64 f, {%0, %0};\n\t" \
               ATTNJIT_PACK2(cvt, 0, 0, 1) ATTNJIT_PACK2(cvt, 1, 2, 3)                        \
               ATTNJIT_PACK2(cvt, 2, 4, 5) ATTNJIT_PACK2(cvt, 3, 6, 7)                        \
               ATTNJIT_PACK2(cvt, 4, 8, 9) ATTNJIT_PACK2(cvt, 5, 10, 11)                      \
               ATTNJIT_PACK2(cvt, 6, 12, 13) ATTNJIT_PACK2(cvt, 7, 14, 15) "}"                \
               ::"f"(scale) : "memory")

struct OutputRegisters {
  /// Names them: once in a kernel, before all else.
  ATTNJIT_DEVICE static void name() {
    asm volatile(".reg .f32 out<16>;\n\t.reg .b32 packed<8>;");
  }

  ATTNJIT_DEVICE static void zero() { asm volatile(ATTNJIT_ALL16(ATTNJIT_ZERO)); }
  /// Loads 16 columns, for pack() to wait for.
  ATTNJIT_DEVICE static void load(u32 address) {
    asm volatile(ATTNJIT_LOAD16(out) ::"r"(address));
  }
  /// Loads them, times a weight.
  ATTNJIT_DEVICE static void take(u32 address, float weight) {
    asm volatile(ATTNJIT_LOAD16(out) ATTNJIT_WAIT ATTNJIT_ALL16(ATTNJIT_MUL)
                 ::"r"(address), "f"(weight) : "memory");
  }
  /// Adds those of another O, times a weight.
  ATTNJIT_DEVICE static void add(u32 address, float weight) {
    asm volatile("{\n.reg .f32 other<16>;\n\t" ATTNJIT_LOAD16(other) ATTNJIT_WAIT
                 ATTNJIT_ALL16(ATTNJIT_FMA) "}" ::"r"(address), "f"(weight) : "memory");
  }

  /// Packs the columns times `scale`, when their load has brought them.
  template <bool kBf16>
  ATTNJIT_DEVICE static void pack(float scale) {
    if constexpr (kBf16) {
      ATTNJIT_PACK16("cvt.rn.bf16x2.f32");
    } else {
      ATTNJIT_PACK16("cvt.rn.f16x2.f32");
    }
  }
  /// Writes the words to shared memory, 16 bytes each.
  ATTNJIT_DEVICE static void store(u32 first, u32 second) {
    asm volatile(
        "st.shared.v4.b32 [%0], {packed0, packed1, packed2, packed3};\n\t"
        "st.shared.v4.b32 [%1], {packed4, packed5, packed6, packed7};"
        ::"r"(first), "r"(second) : "memory");
  }
  /// Writes as many of the words to global memory as O has columns there, `units` of eight.
  ATTNJIT_DEVICE static void store_global(unsigned char* address, int units) {
    asm volatile(
        "{\n.reg .pred p;\n\tsetp.gt.s32 p, %1, 1;\n\t"
        "st.global.v4.b32 [%0], {packed0, packed1, packed2, packed3};\n\t"
        "@p st.global.v4.b32 [%0+16], {packed4, packed5, packed6, packed7};\n}"
        ::"l"(address), "r"(units) : "memory");
  }
  /// The same of the columns, in f32.
  ATTNJIT_DEVICE static void store_columns(float* address, int units) {
    asm volatile(
        "{\n.reg .pred p;\n\tsetp.gt.s32 p, %1, 1;\n\t"
        "st.global.v4.f32 [%0], {out0, out1, out2, out3};\n\t"
        "st.global.v4.f32 [%0+16], {out4, out5, out6, out7};\n\t"
        "@p st.global.v4.f32 [%0+32], {out8, out9, out10, out11};\n\t"
        "@p st.global.v4.f32 [%0+48], {out12, out13, out14, out15};\n}"
        ::"l"(address), "r"(units) : "memory");
  }
};

// clang-format on

#undef ATTNJIT_ALL16
#undef ATTNJIT_LOAD16
#undef ATTNJIT_WAIT
#undef ATTNJIT_ZERO
#undef ATTNJIT_MUL
#undef ATTNJIT_FMA
#undef ATTNJIT_PACK2
#undef ATTNJIT_PACK16

}  // namespace attnjit::sm100

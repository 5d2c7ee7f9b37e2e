// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix multiply (wgmma, PTX ISA 9.7.15) with f32 accumulators: m64nNk16 of bf16 or fp16
// operands and m64nNk32 of e4m3 ones, A from shared memory or registers, B from shared memory.
//
// Register i of an accumulator, lane l of warp w in the warpgroup: row 16w + l/4 + 8*((i/2)%2),
// column 8*(i/4) + 2*(l%4) + i%2 (9.7.15.5). Two neighbouring 8-column groups, packed in
// order, are the A fragment of one k16 step, so P needs no shuffle. Of e4m3, register j of A has
// row 16w + l/4 + 8*(j%2), columns 16*(j/2) + 4*(l%4) and the next three.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// wgmma.fence (9.7.15): before the first wgmma that reads registers written by other code.
ATTNJIT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// wgmma.commit_group (9.7.15).
ATTNJIT_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// wgmma.wait_group (9.7.15): at most kPending of the latest groups still run.
template <int kPending>
ATTNJIT_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of an accumulator over the waits and fences around it: they
/// do not name the registers that they are about. Emits nothing.
template <int kCount>
ATTNJIT_DEVICE void pin_registers(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <int kCount>
ATTNJIT_DEVICE void pin_registers(u32 (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

/// A matrix descriptor (9.7.15.5.1.2.2) for a tile with the 128-byte swizzle, 1024-byte aligned.
/// K-major: rows of 128 bytes, kLeadingBytes unused. MN-major: kLeadingBytes from one 64-element
/// column block to the next. Advancing the start adds bytes/16. kLayout: the swizzle and the
/// stride.
template <int kLeadingBytes, u64 kLayout = (u64{1} << 62) | (u64{1024 / 16} << 32)>
ATTNJIT_DEVICE u64 matrix_descriptor(u32 address) {
  static_assert(kLeadingBytes % 16 == 0 && kLeadingBytes / 16 < (1 << 14),
                "a leading dimension is 14 bits of 16-byte units");
  return kLayout | (u64{kLeadingBytes / 16} << 16) | ((address & 0x3ffff) >> 4);
}

/// A matrix descriptor for K-major rows without a swizzle: eight rows of 16 bytes lie one behind
/// another, the next eight after them, and the next 16 bytes of all of them kLeadingBytes on.
template <int kLeadingBytes>
ATTNJIT_DEVICE u64 plain_matrix_descriptor(u32 address) {
  return matrix_descriptor<kLeadingBytes, (u64{128 / 16} << 32)>(address);
}

/// What the elements of A and B are.
enum class WgmmaOperand { kFp16, kBf16, kE4m3 };

// The statement MMA(N, C, TYPE, REST) of the type that the operands have. MAJOR: what follows the
// signs of 16-bit ones.
#define ATTNJIT_BY_OPERAND(MMA, N, C, MAJOR)              \
  if constexpr (kOperand == WgmmaOperand::kE4m3) {        \
    MMA(N, C, "k32.f32.e4m3.e4m3", "1, 1");               \
  } else if constexpr (kOperand == WgmmaOperand::kBf16) { \
    MMA(N, C, "k16.f32.bf16.bf16", "1, 1, " MAJOR);       \
  } else {                                                \
    MMA(N, C, "k16.f32.f16.f16", "1, 1, " MAJOR);         \
  }

#define ATTNJIT_WGMMA_N8(N, C, TYPE, REST)                                                      \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n" #N TYPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, " REST \
      ";\n}"                                                                                    \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate))

/// D (+)= A * B of 8 columns, A from registers. `accumulate` 0: D = A * B.
template <WgmmaOperand kOperand>
ATTNJIT_DEVICE void wgmma_n8(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int accumulate) {
  ATTNJIT_BY_OPERAND(ATTNJIT_WGMMA_N8, 8, 4, "1")
}

#undef ATTNJIT_WGMMA_N8

}  // namespace attnjit

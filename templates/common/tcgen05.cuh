// SPDX-License-Identifier: Apache-2.0
// Tensor memory and fifth-generation tensor-core instructions (tcgen05, PTX ISA 9.7.16), of one CTA
// (cta_group::1) or with kPair of a pair of CTAs (cta_group::2), 16-bit or e4m3 operands, f32
// accumulators. One instruction each, named after it.
//
// Of a pair one thread, of the CTA of rank 0, issues products and commits for both. A shared-memory
// descriptor and a tensor-memory address then mean the same place in each: D has the upper half of
// its rows in the first CTA and the lower in the second, as A has; B its columns likewise.
//
// A tensor-memory address has the lane in its upper half and the column in its lower. A warp
// reaches the 32 lanes of its rank in its warpgroup (9.7.16.8.1). Everything here but alloc,
// dealloc, fence, wait and commit is asynchronous (9.7.16.6.2).
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// The N of an instruction's cta_group::N.
template <bool kPair>
inline constexpr int kCtaGroup = kPair ? 2 : 1;

// ---- Allocation (9.7.16.7.1) ------------------------------------------------------------------

/// tcgen05.alloc: a converged warp; writes the address of kColumns columns to shared memory. Of a
/// pair a warp of each CTA.
template <int kColumns, bool kPair = false>
ATTNJIT_DEVICE void tcgen05_alloc(u32 address_slot) {
  static_assert(kColumns >= 32 && kColumns <= 512 && (kColumns & (kColumns - 1)) == 0,
                "tensor memory is allocated in powers of two from 32 to 512 columns");
  asm volatile(
      "tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(address_slot),
      "n"(kColumns), "n"(kCtaGroup<kPair>)
      : "memory");
}

/// tcgen05.relinquish_alloc_permit: a converged warp; the CTA allocates no more.
template <bool kPair = false>
ATTNJIT_DEVICE void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtaGroup<kPair>)
               : "memory");
}

/// tcgen05.dealloc: a converged warp. Of a pair a warp of each CTA.
template <int kColumns, bool kPair = false>
ATTNJIT_DEVICE void tcgen05_dealloc(u32 address) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address),
               "n"(kColumns), "n"(kCtaGroup<kPair>)
               : "memory");
}

// ---- Order (9.7.16.6, 9.7.16.11, 9.7.16.12) ---------------------------------------------------

/// tcgen05.fence::before_thread_sync: this thread's earlier asynchronous operations come before
/// what follows its next synchronisation.
ATTNJIT_DEVICE void tcgen05_fence_before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

/// tcgen05.fence::after_thread_sync: this thread's later asynchronous operations come after its
/// latest synchronisation.
ATTNJIT_DEVICE void tcgen05_fence_after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/// tcgen05.commit: arrives once at the mbarrier of each CTA of a cluster of two that lies there,
/// when all earlier products of this thread are done. Implies fence::before_thread_sync.
template <bool kPair = false>
ATTNJIT_DEVICE void tcgen05_commit_to_both(u32 barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
      "[%0], %1;" ::"r"(barrier),
      "h"(static_cast<unsigned short>(3)), "n"(kCtaGroup<kPair>)
      : "memory");
}

/// The same of a CTA's products at its own barrier; of a pair's at both CTAs'.
template <bool kPair = false>
ATTNJIT_DEVICE void tcgen05_commit(u32 barrier) {
  if constexpr (kPair) {
    tcgen05_commit_to_both<true>(barrier);
  } else {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
        : "memory");
  }
}

/// tcgen05.wait::st: this thread's stores have reached tensor memory.
ATTNJIT_DEVICE void tcgen05_wait_st() {
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

// ---- Loads and stores (9.7.16.8.3, 9.7.16.8.4, 9.7.16.8.5) -------------------------------------
// Shape 32x32b: lane i of the warp, register r: lane i of the warp's quarter, column r.
// Shape 16x32bx2: lane i % 16 from the address on, column r, and for lanes i from 16 on column
// kSplit + r.

#define ATTNJIT_OUT8(v, b)                                                              \
  "=f"(v[(b)]), "=f"(v[(b) + 1]), "=f"(v[(b) + 2]), "=f"(v[(b) + 3]), "=f"(v[(b) + 4]), \
      "=f"(v[(b) + 5]), "=f"(v[(b) + 6]), "=f"(v[(b) + 7])
#define ATTNJIT_INOUT8(v, b)                                                            \
  "+f"(v[(b)]), "+f"(v[(b) + 1]), "+f"(v[(b) + 2]), "+f"(v[(b) + 3]), "+f"(v[(b) + 4]), \
      "+f"(v[(b) + 5]), "+f"(v[(b) + 6]), "+f"(v[(b) + 7])
#define ATTNJIT_IN8(c, v, b)                                                            \
  c(v[(b)]), c(v[(b) + 1]), c(v[(b) + 2]), c(v[(b) + 3]), c(v[(b) + 4]), c(v[(b) + 5]), \
      c(v[(b) + 6]), c(v[(b) + 7])

/// tcgen05.ld.x32 into values[begin..begin+31], which are defined after tcgen05_wait_ld_32.
template <int kCount>
ATTNJIT_DEVICE void tcgen05_ld_32(float (&values)[kCount], int begin, u32 address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,"
      "%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, [%32];"
      : ATTNJIT_OUT8(values, begin), ATTNJIT_OUT8(values, begin + 8),
        ATTNJIT_OUT8(values, begin + 16), ATTNJIT_OUT8(values, begin + 24)
      : "r"(address));
}

/// tcgen05.ld.16x32bx2.x32 into values[0..31], which are defined after tcgen05_wait_ld_32.
template <int kSplit>
ATTNJIT_DEVICE void tcgen05_ld_half_32(float (&values)[32], u32 address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.16x32bx2.x32.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,"
      "%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, [%32], %33;"
      : ATTNJIT_OUT8(values, 0), ATTNJIT_OUT8(values, 8), ATTNJIT_OUT8(values, 16),
        ATTNJIT_OUT8(values, 24)
      : "r"(address), "n"(kSplit));
}

/// tcgen05.ld.x16 into values[begin..begin+15], which are defined after tcgen05_wait_ld_16.
template <int kCount>
ATTNJIT_DEVICE void tcgen05_ld_16(float (&values)[kCount], int begin, u32 address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,"
      "%15}, [%16];"
      : ATTNJIT_OUT8(values, begin), ATTNJIT_OUT8(values, begin + 8)
      : "r"(address));
}

/// tcgen05.wait::ld: this thread's loads are done. NOTE: it names the registers it is about, so
/// that the compiler moves no use of them over it.
template <int kCount>
ATTNJIT_DEVICE void tcgen05_wait_ld_32(float (&values)[kCount], int begin) {
  asm volatile("tcgen05.wait::ld.sync.aligned;"
               : ATTNJIT_INOUT8(values, begin), ATTNJIT_INOUT8(values, begin + 8),
                 ATTNJIT_INOUT8(values, begin + 16), ATTNJIT_INOUT8(values, begin + 24)::"memory");
}

template <int kCount>
ATTNJIT_DEVICE void tcgen05_wait_ld_16(float (&values)[kCount], int begin) {
  asm volatile("tcgen05.wait::ld.sync.aligned;"
               : ATTNJIT_INOUT8(values, begin), ATTNJIT_INOUT8(values, begin + 8)::"memory");
}

/// tcgen05.st.x16 of 32-bit words.
ATTNJIT_DEVICE void tcgen05_st_16(u32 address, const u32 (&words)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,"
      "%14,%15,%16};" ::"r"(address),
      ATTNJIT_IN8("r", words, 0), ATTNJIT_IN8("r", words, 8)
      : "memory");
}

/// tcgen05.st.16x32bx2.x16 of 32-bit words.
template <int kSplit>
ATTNJIT_DEVICE void tcgen05_st_half_16(u32 address, const u32 (&words)[16]) {
  asm volatile(
      "tcgen05.st.sync.aligned.16x32bx2.x16.b32 [%0], %1, {%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,"
      "%13,%14,%15,%16,%17};" ::"r"(address),
      "n"(kSplit), ATTNJIT_IN8("r", words, 0), ATTNJIT_IN8("r", words, 8)
      : "memory");
}

/// tcgen05.st.x8 of 32-bit words.
ATTNJIT_DEVICE void tcgen05_st_8(u32 address, const u32 (&words)[8]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8};" ::"r"(address),
      ATTNJIT_IN8("r", words, 0)
      : "memory");
}

/// tcgen05.st.x16 of values[begin..begin+15].
template <int kCount>
ATTNJIT_DEVICE void tcgen05_st_16(u32 address, const float (&values)[kCount], int begin) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,"
      "%14,%15,%16};" ::"r"(address),
      ATTNJIT_IN8("f", values, begin), ATTNJIT_IN8("f", values, begin + 8)
      : "memory");
}

#undef ATTNJIT_OUT8
#undef ATTNJIT_INOUT8
#undef ATTNJIT_IN8

// ---- Copies from shared memory (9.7.16.9) ------------------------------------------------------

/// tcgen05.cp.128x256b: 32 bytes of each of 128 rows, a row to a lane and 8 columns; one thread.
ATTNJIT_DEVICE void tcgen05_cp_128x256b(u32 address, u64 source) {
  asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(address), "l"(source) : "memory");
}

// ---- Products (9.7.16.10) ---------------------------------------------------------------------

/// What A and B are: fp16 and bf16 are kind::f16's, e4m3 is kind::f8f6f4's.
enum class MmaOperand { kFp16, kBf16, kE4m3 };
template <bool kE4m3>
struct MmaKind {
  static constexpr const char text[] = "f16";
};
template <>
struct MmaKind<true> {
  static constexpr const char text[] = "f8f6f4";
};
// Both numbers of a product's name, as a statement's operands.
#define ATTNJIT_MMA_NAME "n"(kCtaGroup<kPair>), "C"(MmaKind<kOperand == MmaOperand::kE4m3>::text)

/// The instruction descriptor of kind::f16 and kind::f8f6f4 (9.7.16.4.2): f32 result, M rows, N
/// columns; A is K-major, B K-major or MN-major. e4m3 has fp16's code, in the other kind.
template <MmaOperand kOperand, int M, int N, bool kBMnMajor>
constexpr u32 mma_instruction_descriptor() {
  constexpr u32 kCode = kOperand == MmaOperand::kBf16 ? 1 : 0;
  static_assert((M == 64 || M == 128 || M == 256) && N % 16 == 0 && N >= 16 && N <= 256,
                "a product has 64 or 128 rows, of a pair 256, and 16 to 256 columns, a multiple of "
                "16");
  return (1u << 4) | (kCode << 7) | (kCode << 10) | (u32{kBMnMajor} << 16) | (u32{N / 8} << 17) |
         (u32{M / 16} << 24);
}

/// A shared-memory descriptor (9.7.16.4.1) of a tile whose rows are a swizzle of kRowBytes wide and
/// that begins where the swizzle's pattern does, at a multiple of eight rows. K-major: the leading
/// dimension is unused. MN-major: kLeadingBytes from one block of columns to the next. Only the low
/// word varies: it advances by bytes / 16.
template <int kLeadingBytes, int kRowBytes = 128>
struct SmemDescriptor {
  static_assert(kRowBytes == 128 || kRowBytes == 64, "rows of the 128-byte or the 64-byte swizzle");
  static_assert(kLeadingBytes % 16 == 0 && kLeadingBytes / 16 < (1 << 14),
                "a leading dimension is 14 bits of 16-byte units");
  static constexpr u32 kSwizzle = kRowBytes == 128 ? 2 : 4;
  static constexpr u32 kHigh = (kSwizzle << 29) | (1u << 14) | (8 * kRowBytes / 16);
  u32 low;

  ATTNJIT_DEVICE explicit SmemDescriptor(u32 address)
      : low(((address & 0x3ffff) >> 4) | (u32{kLeadingBytes / 16} << 16)) {}

  ATTNJIT_DEVICE u32 low_at(int bytes) const { return low + static_cast<u32>(bytes / 16); }
  ATTNJIT_DEVICE u64 at(int bytes) const { return (u64{kHigh} << 32) | low_at(bytes); }
};

/// tcgen05.mma (9.7.16.10.9.1), kind::f8f6f4 for e4m3 and kind::f16 elsewhere: D (+)= A B over 32
/// bytes of A's and B's columns, A and B in shared memory; one thread.
template <MmaOperand kOperand, bool kPair = false>
ATTNJIT_DEVICE void tcgen05_mma_ss(u32 d, u64 a, u64 b, u32 instruction, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::%5.kind::%6 [%0], %1, %2, %3, p;\n}" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction), "r"(accumulate), ATTNJIT_MMA_NAME
      : "memory");
}

/// The same with A in tensor memory, two or four elements a column: 8 columns are 32 bytes.
template <MmaOperand kOperand, bool kPair = false>
ATTNJIT_DEVICE void tcgen05_mma_ts(u32 d, u32 a, u64 b, u32 instruction, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::%5.kind::%6 [%0], [%1], %2, %3, p;\n}" ::"r"(d),
      "r"(a), "l"(b), "r"(instruction), "r"(accumulate), ATTNJIT_MMA_NAME
      : "memory");
}

// Two products one behind the other, whose A are a_0 and a_1.
#define ATTNJIT_MMA2(make_a_0, a_0, make_a_1, a_1)                                             \
  asm volatile(                                                                                \
      "{\n.reg .pred p;\n.reg .b64 a, b;\n.reg .b32 i, j;\n\t"                                 \
      "setp.ne.b32 p, %4, 0;\n\t" make_a_0                                                     \
      "mov.b64 b, {%2, %5};\n\t"                                                               \
      "tcgen05.mma.cta_group::%8.kind::%9 [%0], " a_0                                          \
      ", b, %3, p;\n\t"                                                                        \
      "setp.eq.b32 p, 0, 0;\n\t" make_a_1                                                      \
      "add.u32 j, %2, %7;\n\tmov.b64 b, {j, %5};\n\t"                                          \
      "tcgen05.mma.cta_group::%8.kind::%9 [%0], " a_1 ", b, %3, p;\n}" ::"r"(d),               \
      "r"(a), "r"(b), "r"(instruction), "r"(accumulate), "n"(kHigh), "n"(kStepA), "n"(kStepB), \
      ATTNJIT_MMA_NAME                                                                         \
      : "memory")

/// Two products of tcgen05_mma_ss, in one statement for compile time. `a` and `b`: the low words of
/// the first one's descriptors, whose high word is kHigh; the second's are kStepA and kStepB on,
/// and its product is added.
template <MmaOperand kOperand, bool kPair, u32 kHigh, int kStepA, int kStepB>
ATTNJIT_DEVICE void tcgen05_mma_ss_twice(u32 d, u32 a, u32 b, u32 instruction, int accumulate) {
  ATTNJIT_MMA2("mov.b64 a, {%1, %5};\n\t", "a", "add.u32 i, %1, %6;\n\tmov.b64 a, {i, %5};\n\t",
               "a");
}

/// The same with A in tensor memory, at `a` and kStepA columns on.
template <MmaOperand kOperand, bool kPair, u32 kHigh, int kStepA, int kStepB>
ATTNJIT_DEVICE void tcgen05_mma_ts_twice(u32 d, u32 a, u32 b, u32 instruction, int accumulate) {
  ATTNJIT_MMA2("", "[%1]", "add.u32 i, %1, %6;\n\t", "[i]");
}

#undef ATTNJIT_MMA2
#undef ATTNJIT_MMA_NAME

}  // namespace attnjit

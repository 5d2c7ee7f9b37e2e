// SPDX-License-Identifier: Apache-2.0
// Wrappers of the sm_100a instructions that the emulator's kernels use; each names its section of
// PTX ISA 9.1.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;

struct alignas(64) TensorMap {
  char bytes[128];
};

__device__ inline u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}
__device__ inline u32 warp_index() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }
__device__ inline u32 cluster_rank() {
  u32 r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
/// 9.7.13.14
__device__ inline bool elected() {
  u32 p;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, -1;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(p));
  return p != 0;
}

// mbarriers, 9.7.13.15.
__device__ inline void barrier_init(u64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count)
               : "memory");
}
__device__ inline void barrier_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_expect(u64* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}
__device__ inline void barrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ inline void barrier_wait(u64* b, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\nWAIT:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n @p bra "
      "DONE;\n bra "
      "WAIT;\nDONE:\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
/// 9.7.13.3
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}

// Tensor copies, 9.7.9.27.1.
__device__ inline void load_2d(u32 to, const TensorMap* map, int x, int y, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void load_2d_pair(u32 to, const TensorMap* map, int x, int y, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void load_3d(u32 to, const TensorMap* map, int x, int y, int z, u64* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

// Tensor memory, 9.7.16.7 and 9.7.16.8.
template <int kGroup>
__device__ inline void tensor_alloc(u32* to, u32 columns) {
  if constexpr (kGroup == 1) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(to)),
                 "r"(columns)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
  } else {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(to)),
                 "r"(columns)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
  }
}
template <int kGroup>
__device__ inline void tensor_free(u32 address, u32 columns) {
  if constexpr (kGroup == 1) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "r"(columns)
                 : "memory");
  } else {
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address),
                 "r"(columns)
                 : "memory");
  }
}
__device__ inline void fence_before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ inline void fence_after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
__device__ inline void wait_load() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ inline void wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

#define R8(v, i)                                                                              \
  "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3]), "=r"(v[i + 4]), "=r"(v[i + 5]), \
      "=r"(v[i + 6]), "=r"(v[i + 7])
#define W8(v, i)                                                                        \
  "r"(v[i]), "r"(v[i + 1]), "r"(v[i + 2]), "r"(v[i + 3]), "r"(v[i + 4]), "r"(v[i + 5]), \
      "r"(v[i + 6]), "r"(v[i + 7])

/// 32 columns of the warp's 32 lanes.
__device__ inline void tensor_load(u32 address, u32 (&v)[32]) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
      : R8(v, 0), R8(v, 8), R8(v, 16), R8(v, 24)
      : "r"(address));
}
__device__ inline void tensor_store(u32 address, const u32 (&v)[32]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, "
      "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31};" ::W8(
          v, 0),
      W8(v, 8), W8(v, 16), W8(v, 24), "r"(address)
      : "memory");
}

/// 9.7.16.4.1: 128-byte swizzle; offsets in bytes.
__device__ inline u64 matrix_descriptor(u32 start, u32 leading, u32 stride) {
  return static_cast<u64>((start & 0x3FFFF) >> 4) | static_cast<u64>(leading >> 4) << 16 |
         static_cast<u64>(stride >> 4) << 32 | u64{1} << 46 | u64{2} << 61;
}

// Products, 9.7.16.10.9.1.
template <int kGroup, bool kFp8>
__device__ inline void multiply(u32 d, u64 a, u64 b, u32 descriptor, bool accumulate) {
#define MULTIPLY(GROUP, KIND)                                                              \
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %4, 0;\n tcgen05.mma.cta_group::" GROUP \
               ".kind::" KIND " [%0], %1, %2, %3, p;\n}" ::"r"(d),                         \
               "l"(a), "l"(b), "r"(descriptor), "r"(static_cast<u32>(accumulate))          \
               : "memory")
  if constexpr (kGroup == 1 && kFp8) MULTIPLY("1", "f8f6f4");
  if constexpr (kGroup == 1 && !kFp8) MULTIPLY("1", "f16");
  if constexpr (kGroup == 2 && kFp8) MULTIPLY("2", "f8f6f4");
  if constexpr (kGroup == 2 && !kFp8) MULTIPLY("2", "f16");
#undef MULTIPLY
}
__device__ inline void multiply_tensor(u32 d, u32 a, u64 b, u32 descriptor, bool accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.u32 p, %4, 0;\n tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], "
      "%2, %3, p;\n}" ::"r"(d),
      "r"(a), "l"(b), "r"(descriptor), "r"(static_cast<u32>(accumulate))
      : "memory");
}
/// 9.7.16.12.1
__device__ inline void commit(u64* barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}
__device__ inline void commit_pair(u64* barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
      "[%0], %1;" ::"r"(shared_address(barrier)),
      "h"(static_cast<unsigned short>(3))
      : "memory");
}

// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products of the shapes and operand places that the kernels use.
#pragma once

#include "device.cuh"
#include "wgmma_shapes.cuh"

namespace attnjit::clock_bench {

constexpr int kProductBytes = 8192 + 4 * 8192;

/// m64nNk16 of bf16: SS has both operands in shared memory (K-major), as S = Q K^T has; RS has A in
/// registers and B MN-major, as O += P V has. Of e4m3, whose B is always K-major, m64nNk32.
template <int N, bool kSs, WgmmaOperand kOperand = WgmmaOperand::kBf16>
struct Products {
  float d[N / 2] = {};
  u32 a[4];
  u64 a_descriptor, b_descriptor;

  /// `base`: N * 128 bytes and 8 KiB before them, of numbers that are no NaN.
  ATTNJIT_DEVICE explicit Products(u32 base)
      : a_descriptor(matrix_descriptor<16>(base)),
        b_descriptor(kSs || kOperand == WgmmaOperand::kE4m3
                         ? matrix_descriptor<16>(base + 8192)
                         : matrix_descriptor<8192>(base + 8192)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = load_shared_word(base + 512 * i + 4 * threadIdx.x);
  }

  /// One instruction; `accumulate` 0 leaves out what d was.
  ATTNJIT_DEVICE void issue(int accumulate = 1) {
    if constexpr (kSs) {
      Wgmma<N>::template ss<kOperand>(d, a_descriptor, b_descriptor, accumulate);
    } else {
      Wgmma<N>::template rs<kOperand>(d, a[0], a[1], a[2], a[3], b_descriptor, accumulate);
    }
  }

  /// A group of kCount, which is committed. The first accumulates where `first` is 1, all others
  /// do.
  template <int kCount>
  ATTNJIT_DEVICE void issue_group(int first = 1) {
    pin_registers(d);
    pin_registers(a);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kCount; ++i) issue(i > 0 ? 1 : first);
    wgmma_commit();
  }

  /// `bursts` groups of kBurst, with kPending groups under way while it goes on.
  template <int kBurst, int kPending>
  ATTNJIT_DEVICE void issue_bursts(int bursts) {
#pragma unroll 1
    for (int burst = 0; burst < bursts; ++burst) {
      issue_group<kBurst>();
      wgmma_wait<kPending>();
    }
    wgmma_wait<0>();
  }

  ATTNJIT_DEVICE void keep_all(u32* out) {
    pin_registers(d);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) keep(out, d[i]);
  }
};

constexpr int kProductShared = 1024 + kProductBytes;

/// Numbers for products, and for what lies `beside` them; where they begin.
ATTNJIT_DEVICE u32 make_operands(int beside = 0) {
  const u32 base = shared_base();
  fill_shared(base, kProductBytes + beside);
  fence_proxy_async_shared();
  __syncthreads();
  return base;
}

}  // namespace attnjit::clock_bench

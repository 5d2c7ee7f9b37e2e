// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products of the shapes and operand places that the kernels use.
#pragma once

#include "common/wgmma.cuh"
#include "device.cuh"

namespace attnjit::clock_bench {

/// m64nNk16 of bf16: SS has both operands in shared memory (K-major), as S = Q K^T has; RS has A in
/// registers and B MN-major, as O += P V has.
template <int N, bool kSs>
struct Products {
  float d[N / 2] = {};
  u32 a[4];
  u64 a_descriptor, b_descriptor;

  /// `base`: N * 128 bytes and 8 KiB before them, of numbers that are no NaN.
  ATTNJIT_DEVICE explicit Products(u32 base)
      : a_descriptor(matrix_descriptor<16>(base)),
        b_descriptor(kSs ? matrix_descriptor<16>(base + 8192)
                         : matrix_descriptor<8192>(base + 8192)) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = load_shared_word(base + 512 * i + 4 * threadIdx.x);
  }

  /// One instruction; `accumulate` 0 leaves out what d was.
  ATTNJIT_DEVICE void issue(int accumulate = 1) {
    if constexpr (kSs) {
      Wgmma<N>::template ss<WgmmaOperand::kBf16>(d, a_descriptor, b_descriptor, accumulate);
    } else {
      Wgmma<N>::template rs<WgmmaOperand::kBf16>(d, a[0], a[1], a[2], a[3], b_descriptor,
                                                 accumulate);
    }
  }

  ATTNJIT_DEVICE void keep_all(u32* out) {
    pin_registers(d);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) keep(out, d[i]);
  }
};

constexpr int kProductBytes = 8192 + 4 * 8192;
constexpr int kProductShared = 1024 + kProductBytes;

}  // namespace attnjit::clock_bench

// SPDX-License-Identifier: Apache-2.0
// What warpgroups do beside products, again and again: run() is a piece of it.
#pragma once

#include "common/wgmma.cuh"
#include "device.cuh"
#include "sm90/softmax.cuh"

namespace attnjit::clock_bench {

struct SoftmaxConfig {
  static constexpr bool kRescaleByRow = false;
  static constexpr float kRescaleThreshold = 8.0f;
  static constexpr int kPBias = 0;
  static constexpr int kExp2FmaPairs = 0;
};

struct FmaWork {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ATTNJIT_DEVICE void run(u32) {
#pragma unroll
    for (int i = 0; i < 256; ++i) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i % 8]));
  }
  ATTNJIT_DEVICE float result() const {
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
};

struct MaxWork {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y = 1.5f;
  ATTNJIT_DEVICE void run(u32) {
#pragma unroll
    for (int i = 0; i < 128; ++i)
      asm volatile("max.f32 %0, %0, %1; min.f32 %0, %0, %2;"
                   : "+f"(x[i % 8])
                   : "f"(y), "f"(x[(i + 1) % 8]));
  }
  ATTNJIT_DEVICE float result() const {
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
};

struct Ex2Work {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ATTNJIT_DEVICE void run(u32) {
#pragma unroll
    for (int i = 0; i < 64; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i % 8]));
  }
  ATTNJIT_DEVICE float result() const {
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
};

struct PackWork {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ATTNJIT_DEVICE void run(u32) {
#pragma unroll
    for (int i = 0; i < 128; ++i)
      x[i % 8] = __uint_as_float(pack_pair<true>(x[i % 8], x[(i + 1) % 8]));
    pin_registers(x);
  }
  ATTNJIT_DEVICE float result() const {
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
};

/// A tile's softmax of a warpgroup: 64 rows of 128 scores.
struct SoftmaxWork {
  float s[64];
  u32 p[32];
  sm90::OnlineSoftmax<SoftmaxConfig> softmax{.log2_scale = {{0.09f}}};
  ATTNJIT_DEVICE SoftmaxWork() {
    softmax.maximum[0] = softmax.maximum[1] = 8.0f;
#pragma unroll
    for (int i = 0; i < 64; ++i) s[i] = 0.01f * static_cast<float>(i ^ (threadIdx.x & 31));
  }
  ATTNJIT_DEVICE void run(u32) {
    float correction[2] = {1, 1};
    pin_registers(s);
    softmax.step(s, correction);
    pack_pairs<true>(p, s);
    pin_registers(p);
  }
  ATTNJIT_DEVICE float result() const { return softmax.sum[0] + softmax.sum[1]; }
};

struct LoadWork {
  u32 sum = 0;
  ATTNJIT_DEVICE void run(u32 mine) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      u32 a, b, c, d;
      load_shared_v4(mine + 2048 * (i % 4), a, b, c, d);
      sum += a ^ b ^ c ^ d;
    }
  }
  ATTNJIT_DEVICE float result() const { return __uint_as_float(sum); }
};

struct StoreWork {
  ATTNJIT_DEVICE void run(u32 mine) {
#pragma unroll
    for (int i = 0; i < 32; ++i) stmatrix_x4(mine + 2048 * (i % 4), i, i, i, i);
  }
  ATTNJIT_DEVICE float result() const { return 0.0f; }
};

}  // namespace attnjit::clock_bench

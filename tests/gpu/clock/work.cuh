// SPDX-License-Identifier: Apache-2.0
// What warpgroups do beside products, again and again: run() is a piece of it.
#pragma once

#include "common/wgmma.cuh"
#include "device.cuh"
#include "sm90/softmax.cuh"

namespace attnjit::clock_bench {

template <int kPolynomials>
struct SoftmaxConfig {
  static constexpr bool kE4m3 = false;
  static constexpr bool kSumsByProduct = false;
  static constexpr bool kRescaleByRow = false;
  static constexpr float kRescaleThreshold = 8.0f;
  static constexpr int kPBias = 0;
  static constexpr int kExp2FmaPairs = kPolynomials;
};

/// Eight chains of kCount instructions in all.
template <class Instruction, int kCount>
struct ChainWork {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ATTNJIT_DEVICE void run(u32) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) Instruction::apply(x[i % 8], x[(i + 1) % 8]);
    pin_registers(x);
  }
  ATTNJIT_DEVICE float result() const {
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
  }
};

struct FmaOfChain {
  ATTNJIT_DEVICE static void apply(float& x, float) {
    asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
  }
};
struct MaxOfChain {
  ATTNJIT_DEVICE static void apply(float& x, float next) {
    asm volatile("max.f32 %0, %0, %1; min.f32 %0, %0, %2;" : "+f"(x) : "f"(1.5f), "f"(next));
  }
};
struct Ex2OfChain {
  ATTNJIT_DEVICE static void apply(float& x, float) {
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  }
};
struct PackOfChain {
  ATTNJIT_DEVICE static void apply(float& x, float next) {
    x = __uint_as_float(pack_pair<true>(x, next));
  }
};
struct FmaWork : ChainWork<FmaOfChain, 256> {};
struct MaxWork : ChainWork<MaxOfChain, 128> {};
struct Ex2Work : ChainWork<Ex2OfChain, 64> {};
struct PackWork : ChainWork<PackOfChain, 128> {};

/// A tile's softmax of a warpgroup: 64 rows of 128 scores.
struct SoftmaxWork {
  float s[64];
  u32 p[32];
  sm90::OnlineSoftmax<SoftmaxConfig<0>> softmax{.log2_scale = {{0.09f}}};
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

// SPDX-License-Identifier: Apache-2.0
// A consumer's O: its registers, and its way to global memory, straight from them, so that Q's
// memory is free for the next work tile before this one ends.
#pragma once

#include "sm90/named_registers.cuh"
#include "sm90_mla/layout.cuh"

namespace attnjit::sm90_mla {

/// A consumer's half of O: 64 rows of its blocks of columns, in PTX registers with names
/// (sm90/named_registers.cuh says why), a set for each product with V.
template <class Config>
struct Output {
  using Layout = LayoutOf<Config>;
  static constexpr int kBlocks = Layout::kHalfBlocks;
  /// Blocks of V in a product. NOTE: two are faster than one, and than four, which are released
  /// together.
  static constexpr int kWide = kBlocks % 2 == 0 ? 2 : 1;
  static constexpr int kProducts = kBlocks / kWide;
  static constexpr int kProductRegisters = 32 * kWide;
  template <int kProduct>
  using Registers = sm90::OutputRegisters<kProductRegisters, kProductRegisters, kProduct>;

  /// Names the registers: once in a kernel, before anything else of this struct.
  template <int kProduct = 0>
  ATTNJIT_DEVICE static void name() {
    asm volatile(".reg .f32 o%0_<%1>;" ::"n"(kProduct), "n"(kProductRegisters) : "memory");
    if constexpr (kProduct + 1 < kProducts) name<kProduct + 1>();
  }
  template <int kProduct = 0>
  ATTNJIT_DEVICE static void zero() {
    Registers<kProduct>::zero();
    if constexpr (kProduct + 1 < kProducts) zero<kProduct + 1>();
  }
  /// Multiplies each of the thread's two rows.
  template <int kProduct = 0>
  ATTNJIT_DEVICE static void scale(const float (&factor)[2]) {
    Registers<kProduct>::scale(factor);
    if constexpr (kProduct + 1 < kProducts) scale<kProduct + 1>(factor);
  }
  /// Issues the products of P with V, a group each. `v(block)`: the descriptor of a block.
  template <int kProduct = 0, class Descriptor>
  ATTNJIT_DEVICE static void multiply(const u32 (&p)[Config::kTileN / 4], const Descriptor& v) {
    const u64 block = v(kProduct * kWide);
#pragma unroll
    for (int step = 0; step < kBlockColumns / kStepColumns; ++step) {
      sm90::OutputWgmma<kBlockColumns * kWide>::template rs<Layout::kOperand, kProduct>(
          p[4 * step], p[4 * step + 1], p[4 * step + 2], p[4 * step + 3],
          block + step * (kStepColumns * kBlockRowBytes) / 16);
    }
    wgmma_commit();
    if constexpr (kProduct + 1 < kProducts) multiply<kProduct + 1>(p, v);
  }
  /// Gives the numbers of blocks of columns of which wanted(block) is true, eight at a time, to
  /// use(block, first of the eight, numbers).
  template <int kBlock = 0, class Wanted, class Use>
  ATTNJIT_DEVICE static void read(const Wanted& wanted, const Use& use) {
    constexpr int kFrom = kBlock % kWide * 32;
    if (wanted(kBlock)) {
      Registers<kBlock / kWide>::template read<kFrom, kFrom + 32>(
          [&](int first, const float(&o)[8]) { use(kBlock, first - kFrom, o); });
    }
    if constexpr (kBlock + 1 < kBlocks) read<kBlock + 1>(wanted, use);
  }
  /// The same, times the rows' factors.
  template <int kBlock = 0, class Wanted, class Use>
  ATTNJIT_DEVICE static void read_scaled(const float (&factor)[2], const Wanted& wanted,
                                         const Use& use) {
    constexpr int kFrom = kBlock % kWide * 32;
    if (wanted(kBlock)) {
      Registers<kBlock / kWide>::template read_scaled<kFrom, kFrom + 32>(
          factor, [&](int first, const float(&o)[8]) { use(kBlock, first - kFrom, o); });
    }
    if constexpr (kBlock + 1 < kBlocks) read_scaled<kBlock + 1>(factor, wanted, use);
  }
  /// The same as pairs of 16 bits, four of each eight numbers: of the rows by turns.
  template <int kBlock = 0, class Wanted, class Use>
  ATTNJIT_DEVICE static void pack(const float (&factor)[2], const Wanted& wanted, const Use& use) {
    constexpr int kFrom = kBlock % kWide * 32;
    if (wanted(kBlock)) {
      Registers<kBlock / kWide>::template pack<Config::kOutputBf16, kFrom, kFrom + 32>(
          factor, [&](int first, const u32(&pairs)[4]) { use(kBlock, first - kFrom, pairs); });
    }
    if constexpr (kBlock + 1 < kBlocks) pack<kBlock + 1>(factor, wanted, use);
  }
  /// Adds to blocks of columns, eight numbers at a time, what load(block, first of the eight,
  /// numbers) gives, times the rows' factors. Of other blocks it gives false.
  template <int kBlock = 0, int kFrom = 0, class Load>
  ATTNJIT_DEVICE static void add(const float (&factor)[2], const Load& load) {
    float v[8];
    if (load(kBlock, kFrom, v)) {
      Registers<kBlock / kWide>::template add<kBlock % kWide * 32 + kFrom>(v, factor);
    }
    constexpr int kNext = kFrom + 8;
    if constexpr (kNext < 32) {
      add<kBlock, kNext>(factor, load);
    } else if constexpr (kBlock + 1 < kBlocks) {
      add<kBlock + 1>(factor, load);
    }
  }
};

/// Which of the names S has.
constexpr int kScoreSet = 0;

/// Names the registers of O and S: once in a kernel, before anything else of these.
template <class Config>
ATTNJIT_DEVICE void name_accumulators() {
  Output<Config>::name();
  asm volatile(".reg .f32 s%0_<%1>;" ::"n"(kScoreSet), "n"(Config::kTileN / 2) : "memory");
}

/// Deals words out over a quad: of words 0 to 3 of each lane, lane i gets word i of every lane, in
/// their order.
ATTNJIT_DEVICE void transpose_quad(u32 (&words)[4], int lane) {
  const bool odd = (lane & 1) != 0;
  const bool upper = (lane & 2) != 0;
  const auto trade = [](u32& first, u32& second, bool swap, int lanes) {
    // A lane keeps one of the two and gives the other.
    const u32 kept = swap ? second : first;
    const u32 got = __shfl_xor_sync(0xffffffffu, swap ? first : second, lanes);
    first = swap ? got : kept;
    second = swap ? kept : got;
  };
  trade(words[0], words[1], odd, 1);
  trade(words[2], words[3], odd, 1);
  trade(words[0], words[2], upper, 2);
  trade(words[1], words[3], upper, 2);
}

/// Writes 32 columns of a row, of which each lane of a quad has four pairs: eight of them to
/// `address`, which is the lane's.
ATTNJIT_DEVICE void store_columns(u32 (&pairs)[4], unsigned char* address, bool real, int lane) {
  transpose_quad(pairs, lane);
  store_global_v4_if(real, address, pairs[0], pairs[1], pairs[2], pairs[3]);
}

/// Writes 16 columns of a row of the O of a partition, which is f32, in the order in which a quad
/// has them (column_pair_of_quads): four to `address`, which is the lane's. `o`: of both rows.
ATTNJIT_DEVICE void store_partial_columns(const float (&o)[8], int half, float* address) {
  const int i = 2 * half;
  store_global_v4(address, __float_as_uint(o[i]), __float_as_uint(o[i + 1]),
                  __float_as_uint(o[i + 4]), __float_as_uint(o[i + 5]));
}

}  // namespace attnjit::sm90_mla

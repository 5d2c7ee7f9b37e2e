// SPDX-License-Identifier: Apache-2.0
// Shared memory, tensor memory and roles of the sm_100a kernel of absorbed MLA and head_dim above
// 256: what Config must say, and what follows.
#pragma once

#include "common/ring.cuh"
#include "common/tcgen05.cuh"
#include "mla/layout.cuh"

namespace attnjit::sm100_mla {

/// Warps by rank in the CTA: of the producer one, one for K and one for V (mla::kVLoadWarp), or
/// four that copy rows; the softmax; a warp for each of the two products. The last two of the last
/// warpgroup have no job.
constexpr int kSoftmaxWarp = 4;
constexpr int kScoresWarp = 8;
constexpr int kOutputWarp = 9;
constexpr int kThreads = 384;

/// Rows of a product, and those of a softmax warp.
constexpr int kRows = kConsumerRows;
constexpr int kWarpRows = 16;
/// Columns of S of a thread: two have a row.
constexpr int kThreadKeys = 32;
/// What one product contracts: 32 bytes of a row.
constexpr int kStepColumns = 16;

/// S and P have two buffers each, which the KV tiles take by turns.
constexpr int kBuffers = 2;

/// Named barrier: the softmax warps have read the last of tensor memory; 0 is the CTA's.
constexpr int kTeardownBarrier = 1;
/// The four softmax warps, which arrive, and the warp that frees tensor memory.
constexpr int kTeardownThreads = 128 + 32;

template <class Config>
struct LayoutOf : mla::TilesOf<Config> {
  using Tiles = mla::TilesOf<Config>;

  static constexpr MmaOperand kOperand = Config::kBf16 ? MmaOperand::kBf16 : MmaOperand::kFp16;
  /// Columns of a half of O.
  static constexpr int kHalfColumns = Tiles::kHalfBlocks * kBlockColumns;

  static_assert(Config::kThreads == kThreads, "every warp has its job");
  static_assert(Config::kCluster == 1 || (Config::kCluster == 2 && !Config::kRowCopies),
                "two CTAs load blocks for each other by TMA");
  static_assert(Config::kStages == Config::kSlots && (Config::kStages >= 2 || Config::kSeparateV),
                "a tile is loaded while another is multiplied, or K while V is");
  static_assert(Config::kTmemS >= Config::kTmemO + kHalfColumns &&
                    Config::kTmemP >= Config::kTmemS + kBuffers * Config::kTileN &&
                    Config::kTmemColumns >= Config::kTmemP + kBuffers * Config::kTileN / 2,
                "O, S and P fit the allocated columns");
  static_assert(Config::kTmemAddressOffset >= Config::kWorkOffset + Config::kWorkBytes &&
                    Config::kBarrierOffset >= Config::kTmemAddressOffset + 4,
                "the address of tensor memory lies behind what is published");
  static_assert(Config::kBarriers == Tiles::kTileBarriers + 4 * kBuffers,
                "the plan has every barrier that the kernel names");
};

/// Addresses in the shared window.
template <class Config>
struct Smem : mla::TileMemory<Config> {
  using mla::TileMemory<Config>::TileMemory;
  using mla::TileMemory<Config>::barrier;
  using mla::TileMemory<Config>::base;

  ATTNJIT_DEVICE u32 tmem_address() const { return base + Config::kTmemAddressOffset; }

  /// S of a KV tile is in tensor memory; has been read.
  ATTNJIT_DEVICE u32 s_full(int buffer) const { return barrier(Config::kBarSFull + buffer); }
  ATTNJIT_DEVICE u32 s_empty(int buffer) const { return barrier(Config::kBarSEmpty + buffer); }
  /// P of a KV tile is in tensor memory, and O may be added to.
  ATTNJIT_DEVICE u32 p_full(int buffer) const { return barrier(Config::kBarPFull + buffer); }
  /// The product with V of a KV tile is done, and those before it.
  ATTNJIT_DEVICE u32 o_full(int buffer) const { return barrier(Config::kBarOFull + buffer); }
};

/// Addresses in tensor memory. A product of 64 rows has 16 of them in each quarter of the lanes: in
/// its lower half, or in its upper one. So O's halves lie one beneath the other, and with each of
/// them a copy of P.
template <class Config>
struct Tmem {
  u32 base;

  ATTNJIT_DEVICE static u32 half_lanes(int half) { return static_cast<u32>(half) << 20; }
  /// The quarter that a softmax warp reaches, by its rank among the four.
  ATTNJIT_DEVICE static u32 quarter(int warp) { return static_cast<u32>(warp) << 21; }

  ATTNJIT_DEVICE u32 o(int half) const {
    return base + static_cast<u32>(Config::kTmemO) + half_lanes(half);
  }
  ATTNJIT_DEVICE u32 s(int buffer) const {
    return base + static_cast<u32>(Config::kTmemS + buffer * Config::kTileN);
  }
  ATTNJIT_DEVICE u32 p(int buffer, int half) const {
    return base + static_cast<u32>(Config::kTmemP + buffer * Config::kTileN / 2) + half_lanes(half);
  }
};

}  // namespace attnjit::sm100_mla

// SPDX-License-Identifier: Apache-2.0
// K and V of e4m3 on their way to the 16-bit tiles that wgmma multiplies.
#pragma once

#include "common/eight_bits.cuh"
#include "sm90/key_scales.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// One of the warps that upcast K (kIsK), or V, by 16 of a tile's columns: each takes every
/// kWarps-th 16, and another first one of each tile where some have more. A lane has every 32nd
/// key.
///
/// NOTE: the swizzles of rows and of tiles both put 16 bytes of eight neighbouring keys into eight
/// different places of 128 bytes: what eight lanes read or write lies in different banks.
template <class Config, class Arguments, bool kIsK>
struct Upcaster {
  using Layout = LayoutOf<Config>;
  using Rows = RawTilesOf<Config, kIsK>;
  using Tiles = TilesOf<Config, kIsK>;
  static constexpr int kWarps = kIsK ? Config::kKRewriters : Config::kVRewriters;
  /// Of 16 columns. P V multiplies whole times 32.
  static constexpr int kUnits = (kIsK ? Config::kQkDepth : Layout::kPvColumns) / 16;
  static constexpr bool kTakesTurns = kUnits % kWarps != 0;
  static constexpr bool kBf16 =
      (kIsK ? Layout::kOperand : Layout::kPvOperand) == WgmmaOperand::kBf16;
  static constexpr int kLanes = 32;
  static constexpr int kSteps = Config::kTileN / kLanes;  // of keys
  static constexpr int kRowBytes = Config::kKvRowBytes;
  static constexpr int kRowUnits = kRowBytes / 16;  // in a row of a block
  static constexpr int kWideUnits = kBlockColumns / 16;

  /// 16 bytes of a key.
  struct Narrow {
    u32 words[4];
  };

  const Smem<Config>& smem;
  const Arguments& arguments;
  int warp;  ///< among those that upcast the same
  int lane;

  ATTNJIT_DEVICE static Narrow load(u32 from, int step) {
    Narrow narrow;
    load_shared_v4(from + step * (kLanes * kRowBytes), narrow.words);
    return narrow;
  }

  /// Where 16 columns of the lane's first key lie in its row, and in that of a tile.
  ATTNJIT_DEVICE u32 narrow_place(u32 rows, u32 unit) const {
    const u32 pattern = kRowBytes == 128 ? lane % 8 : lane / 2 % 4;
    return rows + lane * kRowBytes + unit / kRowUnits * Layout::kCopiedBlockBytes +
           ((unit % kRowUnits ^ pattern) << 4);
  }
  ATTNJIT_DEVICE u32 wide_place(u32 tile, u32 unit) const {
    return tile + lane * kBlockRowBytes + unit / kWideUnits * Layout::kKvBlockBytes +
           ((unit % kWideUnits * 2 ^ lane % 8) << 4);
  }

  /// Makes a tile of a tile's rows, from 16 columns on. The next bytes are on their way while those
  /// before them are upcast: more at a time take registers that there are not.
  ATTNJIT_DEVICE void upcast(u32 rows, u32 tile, u32 first) const {
    if (first >= kUnits) return;
    u32 from = narrow_place(rows, first);
    Narrow next = load(from, 0);
#pragma unroll 1
    for (u32 unit = first; unit < kUnits; unit += kWarps) {
      const u32 to = wide_place(tile, unit);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const Narrow narrow = next;
        if (step + 1 < kSteps) {
          next = load(from, step + 1);
        } else if (unit + kWarps < kUnits) {
          from = narrow_place(rows, unit + kWarps);
          next = load(from, 0);
        }
        store_upcast<kBf16>(to, step * (kLanes * kBlockRowBytes), narrow.words);
      }
    }
  }

  /// Zeroes what it upcast of the keys from `keys` on: they are multiplied with P = 0, and what
  /// lies there may be NaN.
  ATTNJIT_DEVICE void zero_keys(u32 tile, u32 first, int keys) const {
#pragma unroll 1
    for (u32 unit = first; unit < kUnits; unit += kWarps) {
      const u32 to = wide_place(tile, unit);
#pragma unroll 1
      for (int step = 0; step < kSteps; ++step) {
        if (step * kLanes + lane < keys) continue;
        store_shared_v4(to + step * (kLanes * kBlockRowBytes), 0, 0, 0, 0);
        store_shared_v4((to ^ 16) + step * (kLanes * kBlockRowBytes), 0, 0, 0, 0);
      }
    }
  }

  /// All the tiles that the producer loads.
  ATTNJIT_DEVICE void run() const {
    Ring from, to;
    u32 first = warp;
    KeyScalesLoad<Config, Arguments, !kIsK && keys_have_scales<Config>()> key_scales(
        smem, arguments, warp, lane);
    while (true) {
      smem.wait(Rows::full(smem, from.stage), from.parity);
      const int keys = static_cast<int>(load_shared_word(Rows::word(smem, from.stage)));
      if (keys == 0) break;
      key_scales.load(from.stage);
      smem.wait(Tiles::empty(smem, to.stage), to.parity ^ 1);
      const u32 tile = Tiles::data(smem, to.stage);
      upcast(Rows::data(smem, from.stage), tile, first);
      if (!kIsK && Layout::kKvLens && keys < Config::kTileN) zero_keys(tile, first, keys);
      if constexpr (kTakesTurns) first = first == 0 ? kWarps - 1 : first - 1;
      // NOTE: wgmma reads the tile, and TMA writes the rows again, through the async proxy.
      fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(Tiles::full(smem, to.stage));
        mbarrier_arrive(Rows::empty(smem, from.stage));
      }
      from.advance(Rows::kStages);
      to.advance(Tiles::kStages);
    }
  }
};

}  // namespace attnjit::sm90

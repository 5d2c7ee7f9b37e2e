// SPDX-License-Identifier: Apache-2.0
// K and V of e4m3 on their way to the 16-bit tiles that wgmma multiplies with a Q of that type.
#pragma once

#include "common/eight_bits.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// One of the warps that widen K and V, in the order in which they come, by 16 of a tile's columns:
/// each takes every kRewriters-th 16, another first one of each tile. A lane has every 32nd key.
///
/// NOTE: the swizzles of rows and of tiles both put 16 bytes of eight neighbouring keys into eight
/// different places of 128 bytes: what eight lanes read or write lies in different banks.
template <class Config>
struct Widener {
  using Layout = LayoutOf<Config>;
  static constexpr int kLanes = 32;
  static constexpr int kSteps = Config::kTileN / kLanes;  // of keys
  static constexpr int kTogether = 2;                     // that are on their way at a time
  static constexpr int kRowBytes = Config::kKvRowBytes;
  static constexpr int kRowUnits = kRowBytes / 16;  // of 16 columns, in a row of a block
  static constexpr int kWideUnits = kBlockColumns / 16;

  const Smem<Config>& smem;
  int warp;  ///< among those that widen
  int lane;

  /// Makes a tile of a tile's rows, of `units` times 16 columns, from the `first` on. Rows from
  /// `keys` on become zeros: those of V are multiplied with P = 0, and what lies there may be NaN.
  ATTNJIT_DEVICE void widen(u32 rows, u32 tile, int first, int units, int keys) const {
    const int pattern = kRowBytes == 128 ? lane % 8 : lane / 2 % 4;
    const u32 own_row = rows + lane * kRowBytes;
    const u32 own_tile_row = tile + lane * kBlockRowBytes;
#pragma unroll 1
    for (int unit = first; unit < units; unit += kRewriters) {
      const u32 from = own_row + unit / kRowUnits * Layout::kCopiedBlockBytes +
                       ((unit % kRowUnits ^ pattern) << 4);
      const u32 to = own_tile_row + unit / kWideUnits * Layout::kKvBlockBytes +
                     ((unit % kWideUnits * 2 ^ lane % 8) << 4);
#pragma unroll
      for (int begin = 0; begin < kSteps; begin += kTogether) {
        u32 narrow[kTogether][4];
#pragma unroll
        for (int i = 0; i < min(kTogether, kSteps - begin); ++i) {
          load_shared_v4(from + (begin + i) * (kLanes * kRowBytes), narrow[i][0], narrow[i][1],
                         narrow[i][2], narrow[i][3]);
        }
#pragma unroll
        for (int i = 0; i < min(kTogether, kSteps - begin); ++i) {
          const u32 offset = (begin + i) * (kLanes * kBlockRowBytes);
          if constexpr (Layout::kKvLens) {
            const bool past_end = (begin + i) * kLanes + lane >= keys;
#pragma unroll
            for (u32& four : narrow[i]) four = past_end ? 0 : four;
          }
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            u32 wide[4];
            widen_e4m3<Config::kBf16>(narrow[i][2 * half], wide[0], wide[1]);
            widen_e4m3<Config::kBf16>(narrow[i][2 * half + 1], wide[2], wide[3]);
            // Of neighbours of 16 bytes the lower has an even number.
            store_shared_v4((to ^ half << 4) + offset, wide[0], wide[1], wide[2], wide[3]);
          }
        }
      }
    }
  }

  /// All the tiles that the producer loads.
  ATTNJIT_DEVICE void run() const {
    Ring from, k, v;
    int first = warp;
    while (true) {
      smem.wait(smem.rows_full(from.stage), from.parity);
      const u32 word = load_shared_word(smem.row_word(from.stage));
      if (word == 0) break;
      // NOTE: selects, and not branches: one copy of the code serves K and V.
      const bool is_k = (word & kIsTileOfK) != 0;
      Ring to = is_k ? k : v;
      const u32 full = is_k ? smem.k_full(to.stage) : smem.v_full(to.stage);
      smem.wait(is_k ? smem.k_empty(to.stage) : smem.v_empty(to.stage), to.parity ^ 1);
      // P V multiplies whole times 32 columns.
      widen(smem.rows(from.stage), is_k ? smem.k(to.stage) : smem.v(to.stage), first,
            (is_k ? Config::kQkDepth : Layout::kPvColumns) / 16,
            static_cast<int>(word & kTileKeys));
      first = first == 0 ? kRewriters - 1 : first - 1;
      // NOTE: wgmma reads the tile, and TMA writes the rows again, through the async proxy.
      fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(full);
        mbarrier_arrive(smem.rows_empty(from.stage));
      }
      from.advance(Config::kRowStages);
      to.advance(is_k ? Config::kStages : Config::kVStages);
      (is_k ? k : v) = to;
    }
  }
};

}  // namespace attnjit::sm90

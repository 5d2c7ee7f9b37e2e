// SPDX-License-Identifier: Apache-2.0
// V of e4m3 on its way from rows of keys to the columns that wgmma multiplies: of 8-bit operands it
// takes K-major ones only (PTX ISA 9.7.15.5.1).
//
// Within 16 keys the columns have the order in which a thread holds P (sm90/products.cuh): byte
// 4q + j is of key 2q + j%2 + 8*(j/2). Source of that order, and of doing it with ldmatrix and
// stmatrix: Shah et al., "FlashAttention-3", 2024.
#pragma once

#include "sm90/key_scales.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// One of the warps that transpose V: each takes as many steps of 32 keys as the others, or every
/// kVRewriters-th 16 columns.
///
/// ldmatrix.trans sees two neighbouring columns of a key as one element: of 8 keys and 16 columns
/// lane 4u + q gets columns 2u and 2u + 1 of keys 2q and 2q + 1. With those of the next 8 keys,
/// prmt makes of them a word of column 2u and one of column 2u + 1, which stmatrix writes as bytes
/// 4q to 4q + 3 of its row u. NOTE: its lower rows are even columns and its upper ones odd, or the
/// other way round: so the eight rows lie in different banks, and the columns in their own order.
template <class Config, class Arguments>
struct Transposer {
  using Layout = LayoutOf<Config>;
  static constexpr int kUnits = Layout::kPvColumns / 16;
  static constexpr int kSteps = Config::kTileN / kStepBytes;  // of 32 keys
  /// Whether the warps share a tile's steps, or its columns. NOTE: with fewer registers steps gain
  /// nothing, and spill more.
  static constexpr bool kBySteps = kSteps % Config::kVRewriters == 0 && !rematerializes<Config>();
  /// Pieces of a step and 16 columns that are on their way at a time: each is four registers. They
  /// are of one step, or of one 16 columns.
  static constexpr int kStepUnits = kUnits % 4 == 0 ? 4 : 2;
  static_assert(kUnits % kStepUnits == 0, "the pieces of a step lie in one block");
  static constexpr int kUnitSteps = kSteps <= 4 ? kSteps : ceil_div(kSteps, 2);

  /// From one step, and from one 16 columns, to the next, of rows and of columns.
  static constexpr int kFromStep = kStepBytes * kBlockRowBytes;
  static constexpr int kToStep = 2 * Layout::kVChunkBytes;
  static constexpr int kToUnit = 16 * 16;

  const Smem<Config>& smem;
  const Arguments& arguments;
  int warp;  ///< among the transposers
  int lane;

  ATTNJIT_DEVICE bool is_own(int step, int unit) const {
    return (kBySteps ? step : unit) % Config::kVRewriters == warp;
  }
  /// Where 16 columns of a key lie in its row. NOTE: the 128-byte swizzle.
  ATTNJIT_DEVICE static u32 chunk_of(u32 row, int key, int unit) {
    return row + unit / 8 * Layout::kKvBlockBytes + ((unit % 8 ^ key % 8) << 4);
  }

  /// Zeroes the warp's pieces of the keys from `keys` on. They are multiplied with P = 0, and what
  /// lies there may be NaN.
  ATTNJIT_DEVICE void zero_rows(u32 rows, int keys) const {
#pragma unroll 1
    for (int key = keys + lane; key < Config::kTileN; key += 32) {
#pragma unroll 1
      for (int unit = 0; unit < kUnits; ++unit) {
        if (!is_own(key / kStepBytes, unit)) continue;
        store_shared_v4(chunk_of(rows + key * kBlockRowBytes, key, unit), 0, 0, 0, 0);
      }
    }
    __syncwarp();
  }

  /// Transposes pieces: the i-th lies at from(i), and goes `apart` bytes behind the one before.
  template <int kMost, class From>
  ATTNJIT_DEVICE void pieces(int count, const From& from, u32 to, int apart) const {
    const u32 first = lane < 16 ? 0x6420 : 0x7531;
    const u32 second = first ^ 0x1111;
    u32 keys[kMost][4];  // of each 8
#pragma unroll
    for (int i = 0; i < min(kMost, count); ++i) ldmatrix_x4_transposed(from(i), keys[i]);
#pragma unroll
    for (int i = 0; i < min(kMost, count); ++i) {
      stmatrix_x4(to + i * apart, permute_bytes(keys[i][0], keys[i][1], first),
                  permute_bytes(keys[i][0], keys[i][1], second),
                  permute_bytes(keys[i][2], keys[i][3], first),
                  permute_bytes(keys[i][2], keys[i][3], second));
    }
  }

  /// Makes a tile's columns of its rows.
  ATTNJIT_DEVICE void transpose(u32 rows, u32 columns) const {
    // ldmatrix: lane 8m + r tells where row r of matrix m lies: of 32 keys the m-th 8.
    const u32 lane_row = rows + lane * kBlockRowBytes;
    // stmatrix: matrices 0 and 1 are the first 16 keys', 1 and 3 have odd columns first.
    const int row = lane % 8, matrix = lane / 8;
    const int column = 2 * row + (row / 4 ^ matrix % 2);
    const u32 lane_column = columns + matrix / 2 * Layout::kVChunkBytes + column * 16;
    if constexpr (kBySteps) {
#pragma unroll
      for (int turn = 0; turn < kSteps / Config::kVRewriters; ++turn) {
        const int step = warp + turn * Config::kVRewriters;
#pragma unroll 1
        for (int unit = 0; unit < kUnits; unit += kStepUnits) {
          // NOTE: these lie in one block, where the swizzle flips the bits of the unit.
          const u32 from = chunk_of(lane_row + step * kFromStep, lane, unit);
          pieces<kStepUnits>(
              kStepUnits, [&](int i) { return from ^ i << 4; },
              lane_column + step * kToStep + unit * kToUnit, kToUnit);
        }
      }
    } else {
#pragma unroll 1
      for (int unit = warp; unit < kUnits; unit += Config::kVRewriters) {
        const u32 from = chunk_of(lane_row, lane, unit), to = lane_column + unit * kToUnit;
#pragma unroll
        for (int begin = 0; begin < kSteps; begin += kUnitSteps) {
          pieces<kUnitSteps>(
              kSteps - begin, [&](int i) { return from + (begin + i) * kFromStep; },
              to + begin * kToStep, kToStep);
        }
      }
    }
  }

  /// All the tiles that the producer loads.
  ATTNJIT_DEVICE void run() const {
    Ring from, to;
    KeyScalesLoad<Config, Arguments> key_scales(smem, arguments, warp, lane);
    while (true) {
      smem.wait(smem.raw_v_full(from.stage), from.parity);
      const int keys = static_cast<int>(load_shared_word(smem.raw_v_word(from.stage)));
      if (keys == 0) break;
      key_scales.load(from.stage);
      const u32 rows = smem.raw_v(from.stage);
      if (Layout::kKvLens && keys < Config::kTileN) zero_rows(rows, keys);
      smem.wait(smem.v_empty(to.stage), to.parity ^ 1);
      transpose(rows, smem.v(to.stage));
      // NOTE: wgmma reads the columns, and TMA writes the rows again, through the async proxy.
      fence_proxy_async_shared();
      __syncwarp();
      if (lane == 0) {
        mbarrier_arrive(smem.v_full(to.stage));
        mbarrier_arrive(smem.raw_v_empty(from.stage));
      }
      from.advance(Config::kRawStages);
      to.advance(Config::kVStages);
    }
  }
};

}  // namespace attnjit::sm90

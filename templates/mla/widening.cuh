// SPDX-License-Identifier: Apache-2.0
// Copies of K whose latent part is e4m3 in memory, in the format dsv32, and 16-bit in shared
// memory.
#pragma once

#include "common/eight_bits.cuh"
#include "mla/row_copies.cuh"

namespace attnjit::mla {

/// A row of the format dsv32: 512 e4m3, 4 f32 that 128 of them each are multiplied with, 64 bf16.
constexpr int kLatentBytes = 512;
constexpr int kScaledColumns = 128;
constexpr int kScalesOffset = kLatentBytes;
constexpr int kRopeOffset = kScalesOffset + 16;
constexpr int kRowBytes = kRopeOffset + 128;

/// One of the producer's four warps, with 16 rows of a tile. Four lanes have a row's part of a
/// block of columns, 16 e4m3 each: they load it to registers, multiply it in f32, and store it as
/// TMA would have put its 16 bits. Loads are two blocks ahead, of this tile or of the next, and the
/// rows of the next tile are fetched to L2 before. The rope's part is copied as rows of 16 bits
/// are.
///
/// NOTE: eight lanes that store together have two neighbouring rows, whose 16 bytes the swizzle
/// puts into different banks. More blocks ahead have no registers on sm_90a, where the consumers
/// need all but 56.
template <class Config, class Arguments>
struct WideningCopies {
  using Tiles = TilesOf<Config>;
  using Copies = RowCopies<Config, Arguments>;
  static constexpr int kOwnRows = 2;  // of a lane
  static constexpr int kAhead = 2;    // blocks
  static_assert(Config::kBf16 && Config::kOvDepth == kLatentBytes && Tiles::kRopeBlocks == 1 &&
                    Copies::kRows == 8 * kOwnRows && Tiles::kOvBlocks % kAhead == 0,
                "a warp's 16 rows are two of each four lanes");
  static_assert(kRowBytes == Config::kKeyRowBytes, "the plan has strides of such rows");

  Copies rows;
  const unsigned char* sources[kOwnRows] = {};  ///< of the tile that is loaded next; null: zeros
  u32 parts[kAhead][kOwnRows][4] = {};          ///< what the lane has loaded of a block
  float scales[kOwnRows] = {};                  ///< of the blocks, which share them

  ATTNJIT_DEVICE void begin(const WorkTile& tile) { rows.begin(tile); }
  ATTNJIT_DEVICE int place_of(int tile) const { return rows.place_of(tile); }

  /// Begins to load a work tile's first KV tile.
  ATTNJIT_DEVICE void fetch(int tile, int place) {
    aim(rows.offset_of(tile, place));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_part(parts[i], i);
    fetch_scales(0);
  }

  /// Copies a tile, whose first blocks are on their way, and begins to load the next one. `next`:
  /// where that has its row; -1 if there is none.
  ATTNJIT_DEVICE void load(int tile, int place, int next) {
    // NOTE: read again, so that what follows from it is not kept in registers over all tiles: it
    // would be spilled.
    rows.lane = lane_id();
    const auto& smem = rows.smem;
    const int stage = rows.ring.stage;
    const int parity = rows.ring.parity ^ 1;
    if (next >= 0 && rows.lane < Copies::kRows) {
      prefetch_l2(rows.arguments.k + rows.offset_of(tile - 1, next), kRowBytes);
    }
    rows.copy_block(rows.arguments.k, Tiles::kOvBlocks, kRopeOffset / 2,
                    rows.offset_of(tile, place), true, place);
#pragma unroll 1
    for (int begin = 0; begin < Tiles::kOvBlocks; begin += kAhead) {
      const bool last = begin + kAhead == Tiles::kOvBlocks;
      if (last) aim(rows.offset_of(tile - 1, next));
      const int ahead = last ? 0 : begin + kAhead;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        smem.wait(smem.kv_empty(stage, begin + i), parity);
        store_part(parts[i], smem.kv(stage, begin + i));
        arrive_warp(smem.kv_full(stage, begin + i));
        fetch_part(parts[i], ahead + i);
      }
      fetch_scales(ahead);
    }
    rows.ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void finish_tail() const {}

 private:
  /// `offset`: in K, of the row that the lane has found.
  ATTNJIT_DEVICE void aim(i64 offset) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const i64 own = __shfl_sync(0xffffffffu, offset, 8 * i + rows.lane / 4);
      sources[i] = own < 0 ? nullptr : rows.arguments.k + own;
    }
  }

  ATTNJIT_DEVICE void fetch_part(u32 (&to)[kOwnRows][4], int block) const {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      load_global_v4_or_zeros(sources[i] + block * kBlockColumns + rows.lane % 4 * 16,
                              sources[i] != nullptr, to[i]);
    }
  }
  ATTNJIT_DEVICE void fetch_scales(int block) {
    static_assert(kScaledColumns == kAhead * kBlockColumns, "the blocks ahead share their scales");
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const unsigned char* const from =
          sources[i] + kScalesOffset + block * kBlockColumns / kScaledColumns * 4;
      scales[i] = __uint_as_float(load_global_or_zero(from, sources[i] != nullptr));
    }
  }

  /// NOTE: one half of 16 e4m3 after the other, for registers.
  ATTNJIT_DEVICE void store_part(const u32 (&part)[kOwnRows][4], u32 to) const {
    const int lane = rows.lane;
    to += (rows.warp * Copies::kRows + lane / 4) * kBlockRowBytes;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 wide[4];
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          u32 pairs[2];
          widen_e4m3<false>(part[i][2 * half + word], pairs[0], pairs[1]);
#pragma unroll
          for (int pair = 0; pair < 2; ++pair) {
            const FloatPair value = unpack_pair<false>(pairs[pair]);
            wide[2 * word + pair] =
                pack_pair<Config::kBf16>(value.x * scales[i], value.y * scales[i]);
          }
        }
        const int chunk = 2 * (lane % 4) + half;
        store_shared_v4(to + 8 * i * kBlockRowBytes + ((chunk ^ lane / 4) << 4), wide[0], wide[1],
                        wide[2], wide[3]);
      }
    }
  }
};

}  // namespace attnjit::mla

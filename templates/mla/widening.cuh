// SPDX-License-Identifier: Apache-2.0
// Copies of K that is e4m3 in memory, in whole or in the format dsv32, and 16-bit in shared memory.
#pragma once

#include "common/eight_bits.cuh"
#include "mla/row_copies.cuh"

namespace attnjit::mla {

/// How a row of K that is widened lies in memory: e4m3 alone; or as in the format dsv32, 512 e4m3,
/// 4 f32 that 128 of them each are multiplied with, and 64 bf16.
template <class Config>
struct NarrowRow {
  using Tiles = TilesOf<Config>;
  static constexpr bool kScaled = Config::kWidenedBlocks < Tiles::kQkBlocks;
  static constexpr int kScaledColumns = 128;
  static constexpr int kScalesOffset = Config::kOvDepth;
  static constexpr int kRopeOffset = kScalesOffset + 16;
  static constexpr int kBytes = kScaled ? kRopeOffset + kBlockRowBytes : Config::kQkDepth;
  static_assert(!kScaled || (Config::kBf16 && Config::kOvDepth == 512 && Tiles::kRopeBlocks == 1),
                "a row of the format dsv32");
};

/// One of the producer's four warps, with 16 rows of a tile. Four lanes have a row's part of a
/// block of columns, 16 e4m3 each: they load it to registers and store it as TMA would have put its
/// 16 bits. Loads are two blocks ahead, of this tile or of the next, and the rows of the next tile
/// are fetched to L2 before. What is 16-bit of a row is copied as rows of 16 bits are.
///
/// NOTE: eight lanes that store together have two neighbouring rows, whose 16 bytes the swizzle
/// puts into different banks. More blocks ahead have no registers on sm_90a, where the consumers
/// need all but 56.
template <class Config, class Arguments>
struct WideningCopies {
  using Tiles = TilesOf<Config>;
  using Row = NarrowRow<Config>;
  using Copies = RowCopies<Config, Arguments>;
  static constexpr int kOwnRows = 2;  // of a lane
  static constexpr int kAhead = 2;    // blocks
  static constexpr int kBlocks = Config::kWidenedBlocks;
  static constexpr bool kOdd = kBlocks % kAhead != 0;
  static_assert(Copies::kRows == 8 * kOwnRows && kBlocks >= kAhead,
                "a warp's 16 rows are two of each four lanes");
  static_assert(Row::kBytes == Config::kKeyRowBytes, "the plan has strides of such rows");
  using Part = u32[kOwnRows][4];

  Copies rows;
  const unsigned char* sources[kOwnRows] = {};  ///< of the tile that is loaded next; null: zeros
  Part parts[kAhead] = {};                      ///< what the lane has loaded of a block
  float scales[kOwnRows] = {};                  ///< of the blocks, which share them
  bool swapped = false;  ///< the next tile's first block is in the second part, as of every second
                         ///< tile where blocks are odd

  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    rows.begin(tile);
    swapped = false;
  }
  ATTNJIT_DEVICE int place_of(int tile) const { return rows.place_of(tile); }

  /// Begins to load a work tile's first KV tile.
  ATTNJIT_DEVICE void fetch(int tile, int place) {
    aim(rows.offset_of(tile, place));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_part(parts[i], i);
    if constexpr (Row::kScaled) fetch_scales(0);
  }

  /// Copies a tile, whose first blocks are on their way, and begins to load the next one. `next`:
  /// where that has its row; -1 if there is none.
  ATTNJIT_DEVICE void load(int tile, int place, int next) {
    // NOTE: read again, so that what follows from it is not kept in registers over all tiles: it
    // would be spilled.
    rows.lane = lane_id();
    if (next >= 0 && rows.lane < Copies::kRows) {
      prefetch_l2(rows.arguments.k + rows.offset_of(tile - 1, next), Row::kBytes);
    }
    if constexpr (Row::kScaled) {
      typename Copies::Sources rope;
      rows.aim(rope, rows.arguments.k, rows.offset_of(tile, place));
      rows.copy_block(rope, Tiles::kOvBlocks, Row::kRopeOffset / 2, true, place);
    }
    const int first = kOdd && swapped ? 1 : 0;
    if (first == 1) widen_block<1>(0, tile, place, next);
#pragma unroll 2
    for (int i = first; i + 1 < kBlocks; i += kAhead) {
      widen_block<0>(i, tile, place, next);
      widen_block<1>(i + 1, tile, place, next);
      if constexpr (Row::kScaled) fetch_scales(ahead_of(i));
    }
    if (kOdd && first == 0) widen_block<0>(kBlocks - 1, tile, place, next);
    if constexpr (kOdd) swapped = !swapped;
    rows.ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void finish_tail() const {}

 private:
  /// The block that is the `i`-th to be widened: as they are multiplied.
  ATTNJIT_DEVICE static int block_at(int i) { return Row::kScaled ? i : Tiles::block_at(i); }

  ATTNJIT_DEVICE static int ahead_of(int i) {
    return i + kAhead < kBlocks ? i + kAhead : i + kAhead - kBlocks;
  }

  /// Stores the `i`-th block, which is in a part, and loads what comes next there.
  template <int kPart>
  ATTNJIT_DEVICE void widen_block(int i, int tile, int place, int next) {
    store_block(parts[kPart], i, place);
    if ((kOdd || kPart == 0) && i + kAhead == kBlocks) aim(rows.offset_of(tile - 1, next));
    fetch_part(parts[kPart], ahead_of(i));
  }

  /// `offset`: in K, of the row that the lane has found.
  ATTNJIT_DEVICE void aim(i64 offset) {
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const i64 own = __shfl_sync(0xffffffffu, offset, 8 * i + rows.lane / 4);
      sources[i] = own < 0 ? nullptr : rows.arguments.k + own;
    }
  }

  ATTNJIT_DEVICE void fetch_part(Part& to, int i) const {
#pragma unroll
    for (int row = 0; row < kOwnRows; ++row) {
      load_global_v4_or_zeros(sources[row] + block_at(i) * kBlockColumns + rows.lane % 4 * 16,
                              sources[row] != nullptr, to[row]);
    }
  }
  ATTNJIT_DEVICE void fetch_scales(int block) {
    static_assert(Row::kScaledColumns == kAhead * kBlockColumns,
                  "the blocks ahead share their scales");
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
      const unsigned char* const from =
          sources[i] + Row::kScalesOffset + block * kBlockColumns / Row::kScaledColumns * 4;
      scales[i] = __uint_as_float(load_global_or_zero(from, sources[i] != nullptr));
    }
  }

  /// Stores the `i`-th block when its place is free. `place`: of the lane's row.
  ATTNJIT_DEVICE void store_block(const Part& part, int i, int place) const {
    const auto& smem = rows.smem;
    const int stage = rows.ring.stage;
    const int block = block_at(i);
    smem.wait(smem.kv_empty(stage, block), rows.ring.parity ^ 1);
    if constexpr (Config::kTopk > 0 && !Row::kScaled) {
      if (i == 0) store_listed<Config>(smem, stage, rows.warp, rows.lane, place);
    }
    store_part(part, smem.kv(stage, block));
    // NOTE: not arrive_warp(): sm_90a's code would be another one, which no GPU has run.
    __syncwarp();
    if (elect_one()) mbarrier_arrive(smem.kv_full(stage, block));
  }

  /// NOTE: one half of 16 e4m3 after the other, for registers.
  ATTNJIT_DEVICE void store_part(const Part& part, u32 to) const {
    const int lane = rows.lane;
    to += (rows.warp * Copies::kRows + lane / 4) * kBlockRowBytes;
#pragma unroll
    for (int i = 0; i < kOwnRows; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 wide[4];
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          widen(part[i][2 * half + word], scales[i], wide[2 * word], wide[2 * word + 1]);
        }
        const int chunk = 2 * (lane % 4) + half;
        store_shared_v4(to + 8 * i * kBlockRowBytes + ((chunk ^ lane / 4) << 4), wide[0], wide[1],
                        wide[2], wide[3]);
      }
    }
  }

  /// Four e4m3 as two pairs, multiplied where the row has scales.
  ATTNJIT_DEVICE static void widen(u32 four, float scale, u32& low, u32& high) {
    if constexpr (!Row::kScaled) {
      widen_e4m3<Config::kBf16>(four, low, high);
    } else {
      u32 pairs[2];
      widen_e4m3<false>(four, pairs[0], pairs[1]);
      const FloatPair first = unpack_pair<false>(pairs[0]);
      const FloatPair second = unpack_pair<false>(pairs[1]);
      low = pack_pair<Config::kBf16>(first.x * scale, first.y * scale);
      high = pack_pair<Config::kBf16>(second.x * scale, second.y * scale);
    }
  }
};

}  // namespace attnjit::mla

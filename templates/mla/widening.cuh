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
/// Where two CTAs widen for each other (kWidensForPeer), each has every second pair of blocks, and
/// copies what it has stored to the other, whose barrier of the block waits for these bytes.
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
  static constexpr bool kForPeer = Tiles::kWidensForPeer;
  static constexpr int kTurn = kForPeer ? 2 * kAhead : kAhead;  ///< from pair to pair of blocks
  static_assert(Copies::kRows == 8 * kOwnRows && kBlocks >= kAhead,
                "a warp's 16 rows are two of each four lanes");
  static_assert(Row::kBytes == Config::kKeyRowBytes, "the plan has strides of such rows");
  using Part = u32[kOwnRows][4];

  Copies rows;
  const unsigned char* sources[kOwnRows] = {};  ///< of the tile that is loaded next; null: zeros
  Part parts[kAhead] = {};                      ///< what the lane has loaded of a block
  /// Of the blocks at hand, which share them; of a pair of CTAs of all that this one has of a tile.
  static constexpr int kScaledParts = kForPeer ? kBlocks / kTurn : 1;
  float scales[kScaledParts][kOwnRows] = {};
  bool swapped = false;  ///< the next tile's first block is in the second part, as of every second
                         ///< tile where blocks are odd

  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    rows.begin(tile);
    swapped = false;
  }
  ATTNJIT_DEVICE int place_of(int tile) const { return rows.place_of(tile); }
  ATTNJIT_DEVICE int word_of(int tile) const { return rows.word_of(tile); }
  ATTNJIT_DEVICE int place_of_word(int word) const { return rows.place_of_word(word); }
  ATTNJIT_DEVICE void fetch_words() const { rows.fetch_words(); }

  /// Fetches what this CTA of two will load of a tile's rows to L2: two lanes a row. NOTE: each 32
  /// bytes of them. Rows begin at multiples of 16.
  ATTNJIT_DEVICE void fetch_to_l2(int tile, int place) const {
    static_assert(Row::kScaled && kBlocks / kTurn == 2, "two runs of 128 bytes");
    constexpr int kSector = 32, kRun = kAhead * kBlockColumns;
    const int lane = lane_id();
    const i64 own = __shfl_sync(0xffffffffu, rows.offset_of(tile, place), lane / 2);
    if (own < 0) return;
    const unsigned char* const row = rows.arguments.k + own;
    const unsigned char* const run = row + kRun * (cluster_rank() + 2 * (lane % 2));
#pragma unroll
    for (int i = 0; i < kRun; i += kSector) prefetch_l2(run + i);
    prefetch_l2(run + kRun - 1);
    // The scales and the rope's part, which both CTAs load: a CTA the lower half, one the upper.
    const unsigned char* const rest = row + Row::kScalesOffset + kSector * (lane % 2);
    prefetch_l2(rest + 2 * kSector * cluster_rank());
    if (lane % 2 == cluster_rank()) prefetch_l2(row + Row::kBytes - 1);
  }

  /// Begins to load a work tile's first KV tile.
  ATTNJIT_DEVICE void fetch(int tile, int place) {
    aim(rows.offset_of(tile, place));
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch_part(parts[i], i);
    if constexpr (Row::kScaled) {
#pragma unroll
      for (int i = 0; i < kScaledParts; ++i) fetch_scales(kTurn * i);
    }
  }

  /// Copies a tile, whose first blocks are on their way, and begins to load the next one. `next`:
  /// where that has its row; -1 if there is none.
  ATTNJIT_DEVICE void load(int tile, int place, int next) {
    // NOTE: read again, so that what follows from it is not kept in registers over all tiles: it
    // would be spilled.
    rows.lane = lane_id();
    if (!kForPeer && next >= 0 && rows.lane < Copies::kRows) {
      prefetch_l2(rows.arguments.k + rows.offset_of(tile - 1, next), Row::kBytes);
    }
    if constexpr (Row::kScaled) {
      typename Copies::Sources rope;
      rows.aim(rope, rows.arguments.k, rows.offset_of(tile, place));
      rows.copy_block(rope, Tiles::kOvBlocks, Row::kRopeOffset / 2, true, place);
    }
    const int first = kOdd && swapped ? 1 : 0;
    if (first == 1) widen_block<1>(0, tile, place, next);
      // NOTE: two turns: with all four the producer spilled 12 bytes.
#pragma unroll 2
    for (int i = first; i + 1 < kBlocks; i += kTurn) {
      widen_block<0>(i, tile, place, next);
      widen_block<1>(i + 1, tile, place, next);
      // Of a pair of CTAs those of the next tile: as soon as this one's are done with.
      if constexpr (Row::kScaled && !kForPeer) fetch_scales(ahead_of(i));
      if constexpr (Row::kScaled && kForPeer) {
        if (is_last_pair(i)) fetch_scales(i);
      }
    }
    if (kOdd && first == 0) widen_block<0>(kBlocks - 1, tile, place, next);
    if constexpr (kOdd) swapped = !swapped;
    rows.ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void finish_tail() const {}

 private:
  /// The block that is the `i`-th to be widened: as they are multiplied. Of a pair of CTAs `i`
  /// counts from the first that is this one's.
  ATTNJIT_DEVICE static int block_at(int i) {
    if constexpr (kForPeer) return i + kAhead * cluster_rank();
    return Row::kScaled ? i : Tiles::block_at(i);
  }

  ATTNJIT_DEVICE static int ahead_of(int i) {
    return i + kTurn < kBlocks ? i + kTurn : i + kTurn - kBlocks;
  }
  /// Whether what comes two blocks after the `i`-th is the next tile's first block.
  ATTNJIT_DEVICE static bool is_last_pair(int i) {
    return kForPeer ? i + kTurn >= kBlocks : i + kAhead == kBlocks;
  }
  ATTNJIT_DEVICE static int scales_of(int i) { return kForPeer ? i / kTurn : 0; }

  /// Stores the `i`-th block, which is in a part, and loads what comes next there.
  template <int kPart>
  ATTNJIT_DEVICE void widen_block(int i, int tile, int place, int next) {
    store_block(parts[kPart], i, place);
    if ((kOdd || kPart == 0) && is_last_pair(i)) {
      aim(rows.offset_of(tile - 1, next));
      if constexpr (Row::kScaled && kForPeer) {
#pragma unroll
        for (int j = 0; j + kTurn < kBlocks; j += kTurn) fetch_scales(j);
      }
    }
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
  /// Those of the `i`-th block and of the next.
  ATTNJIT_DEVICE void fetch_scales(int i) {
    static_assert(Row::kScaledColumns == kAhead * kBlockColumns,
                  "the blocks ahead share their scales");
#pragma unroll
    for (int row = 0; row < kOwnRows; ++row) {
      const unsigned char* const from =
          sources[row] + Row::kScalesOffset + block_at(i) * kBlockColumns / Row::kScaledColumns * 4;
      scales[scales_of(i)][row] =
          __uint_as_float(load_global_or_zero(from, sources[row] != nullptr));
    }
  }

  /// Stores the `i`-th block when its place is free. `place`: of the lane's row.
  ATTNJIT_DEVICE void store_block(const Part& part, int i, int place) const {
    const auto& smem = rows.smem;
    const int stage = rows.ring.stage;
    const int block = block_at(i);
    if constexpr (kForPeer) {
      mbarrier_wait_relaxed_cluster(smem.kv_empty(stage, block), rows.ring.parity ^ 1);
      fence_acquire_shared();
    } else {
      smem.wait(smem.kv_empty(stage, block), rows.ring.parity ^ 1);
    }
    if constexpr (Config::kTopk > 0 && !Row::kScaled) {
      if (i == 0) store_listed<Config>(smem, stage, rows.warp, rows.lane, place);
    }
    store_part(part, i, smem.kv(stage, block));
    // What copies to the other CTA reads through the async proxy.
    if constexpr (kForPeer) fence_proxy_async_shared();
    // NOTE: not arrive_warp(): sm_90a's code would be another one, which no GPU has run.
    __syncwarp();
    if (elect_one()) {
      mbarrier_arrive(smem.kv_full(stage, block));
      if constexpr (kForPeer) give_to_peer(stage, block);
    }
  }

  /// Copies the warp's rows of a block to the other CTA. A thread.
  ATTNJIT_DEVICE void give_to_peer(int stage, int block) const {
    constexpr int kBytes = Copies::kRows * kBlockRowBytes;
    const auto& smem = rows.smem;
    const int peer = cluster_rank() ^ 1;
    const u32 own = smem.kv(stage, block) + rows.warp * kBytes;
    copy_to_peer(shared_address_in(own, peer), own, kBytes,
                 shared_address_in(smem.kv_full(stage, block), peer));
    // What the same warp of the other CTA has of the block beside. NOTE: now, and not before: that
    // block's phase before has ended when this one is handed back, which is after S.
    mbarrier_arrive_expect_tx(smem.kv_full(stage, block ^ kAhead), kBytes);
  }

  /// NOTE: one half of 16 e4m3 after the other, for registers.
  ATTNJIT_DEVICE void store_part(const Part& part, int i, u32 to) const {
    const int lane = rows.lane;
    to += (rows.warp * Copies::kRows + lane / 4) * kBlockRowBytes;
#pragma unroll
    for (int row = 0; row < kOwnRows; ++row) {
      const float scale = scales[scales_of(i)][row];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 wide[4];
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          widen(part[row][2 * half + word], scale, wide[2 * word], wide[2 * word + 1]);
        }
        const int chunk = 2 * (lane % 4) + half;
        store_shared_v4(to + 8 * row * kBlockRowBytes + ((chunk ^ lane / 4) << 4), wide[0], wide[1],
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

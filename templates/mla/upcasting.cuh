// SPDX-License-Identifier: Apache-2.0
// Copies of K that is e4m3 in memory, in whole or in the format dsv32, and 16-bit in shared memory.
#pragma once

#include "common/eight_bits.cuh"
#include "mla/row_copies.cuh"

namespace attnjit::mla {

/// How a row of K that is upcast lies in memory: e4m3 alone; or as in the format dsv32, 512 e4m3,
/// 4 f32 that 128 of them each are multiplied with, and 64 bf16.
template <class Config>
struct NarrowRow {
  using Tiles = TilesOf<Config>;
  static constexpr bool kScaled = Config::kUpcastBlocks < Tiles::kQkBlocks;
  static constexpr int kScaledColumns = 128;
  static constexpr int kScalesOffset = Config::kOvDepth;
  static constexpr int kRopeOffset = kScalesOffset + 16;
  static constexpr int kBytes = kScaled ? kRopeOffset + kBlockRowBytes : Config::kQkDepth;
  static_assert(!kScaled || (Config::kBf16 && Config::kOvDepth == 512 && Tiles::kRopeBlocks == 1),
                "a row of the format dsv32");
};

/// One of the producer's four warps, with 16 rows of a tile. What is e4m3 of them is copied to
/// shared memory by cp.async, eight lanes 128 bytes, and from there upcast: four lanes have a
/// row's part of a block of columns, 16 e4m3 each, and store it as TMA would have put its 16 bits.
/// What is 16-bit of a row is copied as rows of 16 bits are.
///
/// e4m3 land in the tile's own memory, which is all that there is. Blocks are upcast in an order
/// of which the last half is released first; each of that half holds the e4m3 of two blocks, in
/// the same order, and is written over when these are upcast, or are in registers. A tile is asked
/// for as soon as that half is free.
///
/// Where two CTAs upcast for each other (kUpcastsForPeer), each has every second pair of blocks,
/// and copies what it has stored to the other, whose barrier of the block waits for these bytes.
///
/// NOTE: eight lanes that load or store together have two neighbouring rows, whose 16 bytes lie in
/// different banks. A warp's rows are read and written by itself alone.
template <class Config, class Mask, class Arguments>
struct UpcastCopies {
  using Tiles = TilesOf<Config>;
  using Row = NarrowRow<Config>;
  using Copies = RowCopies<Config, Mask, Arguments>;
  static constexpr int kLaneRows = 2;  // of a lane
  static constexpr bool kForPeer = Tiles::kUpcastsForPeer;
  static constexpr int kPair = 2;                             ///< blocks whose e4m3 lie in one
  static constexpr int kTurn = kForPeer ? 2 * kPair : kPair;  ///< from pair to pair of blocks
  static constexpr int kBlocks = Config::kUpcastBlocks * kPair / kTurn;  ///< of this CTA
  static constexpr int kPairs = ceil_div(kBlocks, kPair);
  /// From the i-th block on e4m3 lie there. NOTE: the last block of an odd number is written over
  /// its own alone; of others what is written over is of earlier blocks, and of itself.
  static constexpr int kFirstRaw = kBlocks - kPairs;
  static constexpr int kRopeBlocks = Row::kScaled ? 0 : Tiles::kRopeBlocks;  ///< upcast, first
  /// This CTA has as many blocks of either half.
  static constexpr bool kHalves = kRopeBlocks == 0 && kBlocks % (2 * kPair) == 0;
  static_assert(Copies::kRows == 8 * kLaneRows, "a warp's 16 rows are two of each four lanes");
  static_assert(Row::kBytes == Config::kKeyRowBytes, "the plan has strides of such rows");
  /// NOTE: where the places of e4m3 are no constants, a lane that finds work by itself has no
  /// registers for two rows either, and would spill 32 to 104 bytes. Others took 4 to 6 % more time
  /// as a loop.
  static constexpr bool kUnrollRows = kHalves || deals_ranges<Config>() || Tiles::kOvBlocks <= 4 ||
                                      (Config::kTopk > 0 && !Config::kRagged);
  using Part = u32[kLaneRows][4];

  static constexpr int kScales = Row::kScaled ? kPairs : 1;
  /// All that a row has are loaded at once. NOTE: one by one their addresses would be spilled.
  static constexpr bool kLoadsScales = Row::kScaled && !kForPeer;
  static_assert(!kLoadsScales || (kHalves && kScales == 4), "16 bytes, of two halves");

  Copies rows;           ///< its ring: at the tile that is asked for next
  Ring ring = {};        ///< at the tile that is upcast next
  int cta = 0;           ///< of two
  int word = -1;         ///< what is read to find the lane's row of the tile that is asked for next
  int asked_place = -1;  ///< of the lane's row of that which was asked for last
  float scales[kScales] = {};  ///< of that row, in the order of pairs; kLoadsScales: of columns

  /// Asks for the first KV tile of a work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    rows.begin(tile);
    rows.fetch_words();
    rows.lane = lane_id();
    if constexpr (kForPeer) cta = cluster_rank();
    const int last = tile.tile_end - 1;
    word = rows.word_of(last);
    request(last);
  }

  /// Upcasts a tile, which is on its way, and asks for the next one as soon as its place is free.
  ATTNJIT_DEVICE void load(int tile) {
    // NOTE: read again, so that what follows from it is not kept in registers over all tiles: it
    // would be spilled.
    rows.lane = lane_id();
    await_copies();
    __syncwarp();
    const int place = asked_place;
    float own[kScales];
#pragma unroll
    for (int i = 0; i < kScales; ++i) {
      own[i] = scales[i];
      if constexpr (kLoadsScales) {
        if (Tiles::free_half(ring.stage) == 0) own[i] = scales[i ^ 2];
      }
    }
    bool asked = tile == rows.work.tile_begin;
#pragma unroll 1
    for (int pair = 0;; ++pair) {
      // NOTE: before the next tile's scales are loaded: a fence behind a wait waits for all that
      // the warp loads to registers.
      if (pair < kPairs) await_pair(pair);
      if (!asked && (pair == kPairs || is_free(rows.ring))) {
        request(tile - 1);
        asked = true;
      }
      if (pair == kPairs) break;
      upcast_pair(pair, own[0], place);
#pragma unroll
      for (int j = 0; j + 1 < kScales; ++j) own[j] = own[j + 1];
    }
    ring.advance(Config::kStages);
  }

 private:
  /// The block that is the `i`-th of this CTA to be upcast: those of the half that is released
  /// first are the last.
  ATTNJIT_DEVICE int block_at(const Ring& at, int i) const {
    const int half = Tiles::free_half(at.stage);
    if constexpr (kHalves) {
      const int own = i % kFirstRaw;
      return (half ^ (i < kFirstRaw)) * Tiles::kHalfBlocks + (kForPeer ? kPair * cta : 0) + own;
    } else {
      if (i < kRopeBlocks) return Tiles::kOvBlocks + i;
      return Tiles::from_half(i - kRopeBlocks, 1 - half);
    }
  }
  /// Where the warp's rows of a block lie.
  ATTNJIT_DEVICE u32 rows_of(const Ring& at, int block) const {
    return rows.smem.kv(at.stage, block) + rows.warp * Copies::kRows * kBlockRowBytes;
  }
  /// Where the e4m3 of a pair of blocks lie.
  ATTNJIT_DEVICE u32 raw(const Ring& at, int pair) const {
    return rows_of(at, block_at(at, kFirstRaw + pair));
  }
  /// Where the i-th 16 bytes of a pair's e4m3 lie of a row's eight. NOTE: two neighbouring rows
  /// have the first block's in different banks.
  ATTNJIT_DEVICE static u32 raw_place(u32 row, u32 i) { return i ^ (row & 1) << 2; }

  /// Waits until a block is free; of pairs of CTAs a fence is to follow.
  ATTNJIT_DEVICE void await_free(const Ring& at, int block) const {
    const u32 barrier = rows.smem.kv_empty(at.stage, block);
    if constexpr (kForPeer) {
      mbarrier_wait_relaxed_cluster(barrier, at.parity ^ 1);
    } else {
      rows.smem.wait(barrier, at.parity ^ 1);
    }
  }
  /// Waits for the blocks of a pair. Of those that hold e4m3 it was waited for before.
  ATTNJIT_DEVICE void await_pair(int pair) const {
    if (kPair * pair >= kFirstRaw) return;
#pragma unroll
    for (int i = 0; i < kPair; ++i) {
      if (kFirstRaw % kPair == 0 || kPair * pair + i < kFirstRaw) {
        await_free(ring, block_at(ring, kPair * pair + i));
      }
    }
    if constexpr (kForPeer) fence_acquire_shared();
  }
  /// Whether there is place for e4m3. NOTE: where the rope's block is upcast, too, or the latent
  /// part is an odd number of blocks, the first of these blocks is of the other half, or of both.
  /// It comes free behind S of the tile that is upcast: who waited for it would wait for himself.
  ATTNJIT_DEVICE bool is_free(const Ring& at) const {
    const auto test = [&](int i) {
      return mbarrier_test(rows.smem.kv_empty(at.stage, block_at(at, i)), at.parity ^ 1);
    };
    const bool free = test(kBlocks - 1) && (kHalves || test(kFirstRaw));
    return __all_sync(0xffffffffu, free);
  }

  /// Asks for a tile, into the stage that is next.
  ATTNJIT_DEVICE void request(int tile) {
    const auto& smem = rows.smem;
    const Ring& at = rows.ring;
    const int place = rows.place_of_word(word);
    const i64 offset = rows.offset_of(tile, place);
    if constexpr (Row::kScaled) {
      smem.wait(smem.kv_empty(at.stage, Tiles::kOvBlocks), at.parity ^ 1);
      if constexpr (Config::kTopk > 0) {
        store_listed<Config>(smem, at.stage, rows.warp, rows.lane, place);
      }
    } else {
      asked_place = place;
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      await_free(at, block_at(at, kFirstRaw + pair));
    }
    if constexpr (kForPeer) fence_acquire_shared();
    // NOTE: row by row: a lane has no registers for where four of them begin.
    const u32 lane = static_cast<u32>(rows.lane);
#pragma unroll(kUnrollRows ? Copies::kRows / 4 : 1)
    for (int i = 0; i < Copies::kRows / 4; ++i) {
      const i64 own = __shfl_sync(0xffffffffu, offset, 4 * i + lane / 8);
      copy_row(at, i, rows.arguments.k + own + lane % 8 * 16, own >= 0);
    }
    if constexpr (Row::kScaled) {
      arrive_after_copies(smem.kv_full(at.stage, Tiles::kOvBlocks));
      fetch_scales(offset);
    } else {
      __syncwarp();
    }
    word = tile > rows.work.tile_begin ? rows.word_of(tile - 1) : -1;
    rows.ring.advance(Config::kStages);
  }

  /// Copies the lane's 16 bytes of each 128 of a row: of each four rows the i-th. NOTE: in the
  /// order of columns, where that makes them constants.
  ATTNJIT_DEVICE void copy_row(const Ring& at, int i, const unsigned char* from, bool real) const {
    const u32 row = static_cast<u32>(rows.lane) / 8, chunk = static_cast<u32>(rows.lane) % 8;
    const auto copy = [&](u32 to, u32 place, int column) {
      copy_16_or_zeros(to + 4 * i * kBlockRowBytes + row * kBlockRowBytes + (place << 4),
                       from + column, real);
    };
    if constexpr (Row::kScaled) {
      copy(rows_of(at, Tiles::kOvBlocks), chunk ^ row ^ i % 2 << 2, Row::kRopeOffset);
    }
    const u32 place = raw_place(row, chunk);
    if constexpr (kHalves) {
      constexpr int kHalfPairs = kPairs / 2;
      if constexpr (kForPeer) from += kPair * cta * kBlockColumns;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int half = j / kHalfPairs;
        const int pair = (half == Tiles::free_half(at.stage)) * kHalfPairs + j % kHalfPairs;
        copy(raw(at, pair), place,
             (half * Tiles::kHalfBlocks + kPair * (j % kHalfPairs)) * kBlockColumns);
      }
    } else {
      const int second = static_cast<int>(chunk / 4);  // of a pair the lane has 16 bytes of this
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (kPair * pair + second >= kBlocks) break;
        copy(raw(at, pair), place, (block_at(at, kPair * pair + second) - second) * kBlockColumns);
      }
    }
  }

  ATTNJIT_DEVICE void fetch_scales(i64 offset) {
    static_assert(Row::kScaledColumns == kPair * kBlockColumns, "a pair of blocks has one");
    const unsigned char* const row = rows.arguments.k + offset + Row::kScalesOffset;
    if constexpr (kLoadsScales) {
      u32 words[4];
      load_global_v4_or_zeros(row, offset >= 0, words);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) scales[i] = __uint_as_float(words[i]);
    } else {
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const unsigned char* const from = row + block_at(rows.ring, kPair * pair) / kPair * 4;
        scales[pair] = __uint_as_float(load_global_or_zero(from, offset >= 0));
      }
    }
  }

  /// Upcasts a pair of blocks. `scale`, `place`: of the lane's row.
  ATTNJIT_DEVICE void upcast_pair(int pair, float scale, int place) const {
    const u32 lane = static_cast<u32>(rows.lane);
    const int first = kPair * pair;
    const bool both = kBlocks % kPair == 0 || first + 1 < kBlocks;
    Part parts[kPair];
    const u32 from =
        raw(ring, pair) + lane / 4 * kBlockRowBytes + (raw_place(lane / 4, lane % 4) << 4);
    load_part(parts[0], from);
    if (both) load_part(parts[1], from ^ 4 << 4);
    float row_scales[kLaneRows];
#pragma unroll
    for (int row = 0; row < kLaneRows; ++row) {
      row_scales[row] = Row::kScaled ? __shfl_sync(0xffffffffu, scale, 8 * row + lane / 4) : 1.0f;
    }
    // What was read may be written over, by any of the lanes.
    __syncwarp();
    store_block(parts[0], row_scales, block_at(ring, first), place);
    if (both) store_block(parts[1], row_scales, block_at(ring, first + 1), place);
    // NOTE: here, and not behind the waits: products and copies to the other CTA read through the
    // async proxy.
    fence_proxy_async_shared();
    __syncwarp();
    if (elect_one()) {
      signal_full(block_at(ring, first));
      if (both) signal_full(block_at(ring, first + 1));
    }
  }

  ATTNJIT_DEVICE void load_part(Part& to, u32 from) const {
#pragma unroll
    for (int own = 0; own < kLaneRows; ++own) {
      load_shared_v4(from + 8 * own * kBlockRowBytes, to[own]);
    }
  }

  ATTNJIT_DEVICE void store_block(const Part& part, const float (&row_scales)[kLaneRows], int block,
                                  int place) const {
    if constexpr (Config::kTopk > 0 && !Row::kScaled) {
      if (block == Tiles::block_at(0)) {
        store_listed<Config>(rows.smem, ring.stage, rows.warp, rows.lane, place);
      }
    }
    store_part(part, row_scales, rows_of(ring, block));
  }
  /// Says that the warp's rows of a block are stored. A thread.
  ATTNJIT_DEVICE void signal_full(int block) const {
    mbarrier_arrive(rows.smem.kv_full(ring.stage, block));
    if constexpr (kForPeer) copy_to_other_cta(block);
  }

  /// Copies the warp's rows of a block to the other CTA. A thread.
  ATTNJIT_DEVICE void copy_to_other_cta(int block) const {
    constexpr int kBytes = Copies::kRows * kBlockRowBytes;
    const auto& smem = rows.smem;
    const int peer = cta ^ 1;
    const u32 own = rows_of(ring, block);
    copy_to_peer(shared_address_in(own, peer), own, kBytes,
                 shared_address_in(smem.kv_full(ring.stage, block), peer));
    // What the same warp of the other CTA has of the block beside. NOTE: now, and not before: that
    // block's phase before has ended when this one is released, which is after S.
    mbarrier_arrive_expect_tx(smem.kv_full(ring.stage, block ^ kPair), kBytes);
  }

  /// NOTE: one half of 16 e4m3 after the other, for registers.
  ATTNJIT_DEVICE void store_part(const Part& part, const float (&row_scales)[kLaneRows],
                                 u32 to) const {
    const u32 lane = static_cast<u32>(rows.lane);
    to += lane / 4 * kBlockRowBytes;
    const u32 first = (2 * (lane % 4) ^ lane / 4) << 4;
#pragma unroll
    for (int row = 0; row < kLaneRows; ++row) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 wide[4];
#pragma unroll
        for (int word = 0; word < 2; ++word) {
          upcast(part[row][2 * half + word], row_scales[row], wide[2 * word], wide[2 * word + 1]);
        }
        store_shared_v4(to + 8 * row * kBlockRowBytes + (first ^ half << 4), wide[0], wide[1],
                        wide[2], wide[3]);
      }
    }
  }

  /// Four e4m3 as two pairs, multiplied where the row has scales.
  ATTNJIT_DEVICE static void upcast(u32 four, float scale, u32& low, u32& high) {
    if constexpr (!Row::kScaled) {
      upcast_e4m3<Config::kBf16>(four, low, high);
    } else {
      u32 pairs[2];
      upcast_e4m3<false>(four, pairs[0], pairs[1]);
      const FloatPair first = unpack_pair<false>(pairs[0]);
      const FloatPair second = unpack_pair<false>(pairs[1]);
      low = pack_pair<Config::kBf16>(first.x * scale, first.y * scale);
      high = pack_pair<Config::kBf16>(second.x * scale, second.y * scale);
    }
  }
};

}  // namespace attnjit::mla

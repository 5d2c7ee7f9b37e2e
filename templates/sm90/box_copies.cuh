// SPDX-License-Identifier: Apache-2.0
// Copies of K and V by TMA by a warp: boxes of one page each, and zeros past the end of a sequence
// that is not as long as the others.
#pragma once

#include "common/dynamic_tiles.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// A warp that loads KV tiles in boxes of kBoxKeys keys. A lane finds where one of a tile's boxes
/// lies, so that the page table is read once for K and V; one thread issues all copies.
template <class Config, class Arguments>
struct BoxCopies {
  using Layout = LayoutOf<Config>;
  static constexpr int kBoxes = Config::kTileN / Config::kBoxKeys;  // of a block of columns
  static_assert(kBoxes <= 32, "a lane finds a box");
  // Whose code is written out: more boxes take turns, because each is registers of the producer,
  // which has fewer to spare where its tiles are dynamic.
  static constexpr int kMostTogether = dynamic_tiles<Arguments>() ? 2 : 4;
  static constexpr int kTogether = kBoxes <= kMostTogether ? kBoxes : 2 - kBoxes % 2;

  using Place = int;

  const Smem<Config>& smem;
  const Arguments& arguments;
  int lane;
  Ring k_ring = {};      ///< of the tiles that are multiplied
  Ring raw_k_ring = {};  ///< where K is upcast, of its raw tiles
  Ring v_ring = {};
  WorkTile work = {};
  int kv_head = 0;
  u64 policy = 0;
  int tail_stage = -1;  ///< of V: its rows past the end are to be zeroed
  int tail_parity = 0;

  /// Goes on to the next work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& tile) {
    work = tile;
    kv_head = work.head / Config::kGroup;
    policy = kv_policy(kPackedHeads<Config> == Config::kGroup &&
                       rows_of_positions<Config>(lengths_of<Config>(work, arguments).q) <=
                           Config::kTileM);
  }

  /// The first key of the lane's box of a tile.
  ATTNJIT_DEVICE int key_of(int tile) const {
    return tile * Config::kTileN + lane % kBoxes * Config::kBoxKeys;
  }

  /// Where the lane's box of a tile lies: a page, or the sequence. NOTE: a page past the end has no
  /// entry in the table, and one that no row sees may be another's. Number -1 is out of bounds and
  /// gives zeros, which the barrier counts like any other bytes.
  /// `sees(key, count)`: whether a row may see one of these keys.
  template <class Sees>
  ATTNJIT_DEVICE int place_of(int tile, const Sees& sees) const {
    if constexpr (Layout::kPaged) {
      return page_of<Config>(key_of(tile), Config::kBoxKeys, sees, work, arguments);
    } else {
      return Config::kRaggedKv ? 0 : work.batch;
    }
  }

  /// Loads a KV tile to the stage that `ring` is at, when it is free; `full` hears of it.
  /// NOTE: by one elected thread, to which another lane passes what it found. Were each lane to
  /// issue its own box, ptxas would make a loop over the lanes, of about a hundred cycles a box.
  template <class Copies>
  ATTNJIT_DEVICE void load_kv(Ring& ring, const TensorMap* map, u32 full, int tile, int place) {
    const u32 data = Copies::data(smem, ring.stage);
    smem.wait(Copies::empty(smem, ring.stage), ring.parity ^ 1);
    if (Copies::kRaw && lane == 0) {
      const int left = work.kv_len - tile * Config::kTileN;
      Copies::publish(smem, ring.stage,
                      Layout::kKvLens ? max(1, min(left, Config::kTileN)) : Config::kTileN, work,
                      kv_head, tile, arguments);
    }
    if (lane == 0) mbarrier_arrive_expect_tx(full, Copies::kBlocks * Layout::kCopiedBlockBytes);
    __syncwarp();
    const int row =
        Layout::kPaged ? key_of(tile) % Config::kPageSize : work.kv_begin + key_of(tile);
    const bool leader = elect_one();
#pragma unroll 1
    for (int first = 0; first < kBoxes; first += kTogether) {
      int places[kTogether], rows[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        places[i] = value_of_lane(place, first + i);
        rows[i] = Config::kBoxKeys == Config::kPageSize ? 0 : value_of_lane(row, first + i);
      }
      constexpr int kBoxBytes = Config::kBoxKeys * Layout::kCopiedBlockBytes / Config::kTileN;
      const u32 boxes = data + first * kBoxBytes;
      if (leader) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
#pragma unroll
          for (int block = 0; block < Copies::kBlocks; ++block) {
            tma_load_4d(boxes + block * Layout::kCopiedBlockBytes + i * kBoxBytes, map, full,
                        block * Layout::kCopiedColumns, rows[i], kv_head, places[i], policy);
          }
        }
      }
      __syncwarp();
    }
    ring.advance(Copies::kStages);
  }
  /// After the last tile: publishes the end to who rewrites rows.
  ATTNJIT_DEVICE void end() const {
    if constexpr (Layout::kHasRawTiles) {
      if (lane == 0) {
        if constexpr (Config::kUpcastsKv) RawTilesOf<Config, true>::end(smem, raw_k_ring);
        RawTilesOf<Config, false>::end(smem, v_ring);
      }
      __syncwarp();
    }
  }
  ATTNJIT_DEVICE void load_k(int tile, int place) {
    using Copies = CopiesOf<Config, true>;
    Ring& ring = Config::kUpcastsKv ? raw_k_ring : k_ring;
    load_kv<Copies>(ring, arguments.k_map, Copies::full(smem, ring.stage), tile, place);
    // A list's descriptors lie with the stages of K (sm90/tile_descriptors.cuh).
    if constexpr (Config::kUpcastsKv) k_ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_v(int tile, int place) {
    using Copies = CopiesOf<Config, false>;
    const int stage = v_ring.stage;
    u32 full = Copies::full(smem, stage);
    if constexpr (Layout::kZeroesTail) {
      const bool tail =
          tile == work.tile_end - 1 && work.kv_len - tile * Config::kTileN < Config::kTileN;
      finish();
      if (tail) tail_stage = stage;
      if (tail) full = smem.tail_full();
    }
    load_kv<Copies>(v_ring, arguments.v_map, full, tile, place);
  }

  /// Zeroes the rows of V that are past the sequence's end, where the last V tile has some, and
  /// says that it is there. They are multiplied with P = 0, and what lies there may be NaN. Called
  /// a load later, so that the copy is not waited for.
  ATTNJIT_DEVICE void finish() {
    // Past a tensor's end TMA gives zeros.
    if constexpr (Layout::kZeroesTail) zero_tail();
  }

 private:
  ATTNJIT_DEVICE static int value_of_lane(int value, int from) {
    return __shfl_sync(0xffffffffu, value, from);
  }

  ATTNJIT_DEVICE void zero_tail() {
    if (tail_stage < 0) return;
    smem.wait(smem.tail_full(), tail_parity);
    tail_parity ^= 1;
    const int first = work.kv_len - (work.tile_end - 1) * Config::kTileN;
#pragma unroll 1
    for (int row = first + lane / 8; row < Config::kTileN; row += 4) {
      // Whole rows of 128 bytes: the swizzle stays within them.
#pragma unroll
      for (int block = 0; block < Layout::kOvBlocks; ++block) {
        store_shared_v4(smem.v(tail_stage) + block * Layout::kKvBlockBytes + row * kBlockRowBytes +
                            lane % 8 * 16,
                        0, 0, 0, 0);
      }
    }
    fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(smem.v_full(tail_stage));
    tail_stage = -1;
  }
};

}  // namespace attnjit::sm90

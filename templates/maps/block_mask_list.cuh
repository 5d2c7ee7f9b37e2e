// SPDX-License-Identifier: Apache-2.0
// The KV tiles that some rows see by a map of the mask (maps/map_rows.cuh).
#pragma once

#include "common/partitions.cuh"
#include "common/tile_list.cuh"
#include "maps/block_bits.cuh"
#include "maps/map_rows.cuh"

namespace attnjit {

/// A KV tile of a map that has bits: a word more.
struct BlockMaskDescriptor : TileDescriptor {
  static constexpr bool kHasBits = true;
  u32 bits = 0;  ///< one more than the place of its block's bits (maps/block_bits.cuh); 0: none
};

/// As TileList (common/tile_list.cuh): the tiles of kTileN keys among [begin, end) that Rows see.
/// All of Rows are of one row of blocks. Its two lists count as one, tile by tile: first those of
/// blocks that are seen in part, then those of blocks that are seen whole; a partition's share is a
/// run of it. What of a tile is seen by fewer rows and keys than a block has the block's descriptor
/// says, or, where the map has no bits of it, the mask, which is asked. A converged warp: a lane
/// has a tile.
///
/// NOTE: a map says nothing that the launch relies on: entries that are no blocks are passed over,
/// and so are tiles outside of [begin, end).
template <int kTileN, class Descriptor, class Mask, class Rows, class Params>
struct BlockMaskList {
  static_assert(kMaskBlock % kTileN == 0, "a block is whole tiles");
  static_assert(Rows::kGroups < Descriptor::kMaxGroups, "a third group has no bits");
  static constexpr int kParts = kMaskBlock / kTileN;
  static constexpr u32 kAll = 0xffffffffu;

  const Rows& rows;
  const Params& params;
  int lane;
  KvTiles tiles;                 ///< [begin, end)
  BlockEntries in_part;          ///< blocks
  BlockEntries whole;            ///< blocks
  const int* block_descriptors;  ///< of those in part
  int bit_blocks;                ///< 0: there are no descriptors
  KvTiles share;                 ///< of both lists' tiles, those that are not looked at yet
  u32 found = 0;                 ///< bit i: the tile of lane i is the list's, and not taken
  Descriptor descriptor = {};    ///< of the lane's tile

  ATTNJIT_DEVICE BlockMaskList(const Rows& all, const Params& user, int lane_of_warp, KvTiles among,
                               BlockEntries seen_in_part, BlockEntries seen_whole,
                               const int* descriptors, int blocks)
      : rows(all),
        params(user),
        lane(lane_of_warp),
        tiles(among),
        in_part(seen_in_part),
        whole(seen_whole),
        block_descriptors(descriptors),
        bit_blocks(blocks),
        share{0, (seen_in_part.count + seen_whole.count) * kParts} {}

  /// The next tile; none after the last. NOTE: to be called at one place, since it is as long as
  /// the mask's expression.
  ATTNJIT_DEVICE Descriptor take() {
    search();
    return take_found();
  }

 protected:
  /// The first tile that was found and not taken.
  ATTNJIT_DEVICE Descriptor take_found() {
    if (found == 0) return {};
    const int from = __ffs(static_cast<int>(found)) - 1;
    Descriptor taken;
    taken.word = __shfl_sync(kAll, descriptor.word, from);
    if constexpr (Descriptor::kHasBits) taken.bits = __shfl_sync(kAll, descriptor.bits, from);
    found &= found - 1;
    return taken;
  }

  /// What the map says of the block of an entry.
  ATTNJIT_DEVICE BlockDescriptor block_descriptor(int entry, bool in_whole) const {
    BlockDescriptor known;
    if constexpr (Descriptor::kHasBits) {
      if (!in_whole && bit_blocks > 0) known.word = static_cast<u32>(block_descriptors[entry]);
    }
    return known;
  }
  /// What Rows see of a tile; no tile where it is hidden from all.
  ATTNJIT_DEVICE Descriptor tile_descriptor(int tile, bool in_whole, BlockDescriptor known) const {
    TileCoord at = rows.tile();
    const int first = tile * kTileN;
    const bool ends = at.kv_len - first < kTileN;
    at.kv_idx = {first, ends ? at.kv_len - 1 : first + kTileN - 1};
    Descriptor made;
    const bool has_bits = Descriptor::kHasBits && known.has_bits(bit_blocks);
    const int column = first % kMaskBlock;
#pragma unroll 1
    for (int group = 0; group < Rows::kGroups; ++group) {
      at.q_idx = rows.q_idx(group);
      if (at.q_idx.hi < at.q_idx.lo) continue;
      IntRange visible = range_of(true);
      if (has_bits) {
        const int first_row = (at.q_idx.lo - at.kv_len + at.q_len) % kMaskBlock;
        visible = known.visible(first_row, first_row + at.q_idx.hi - at.q_idx.lo, column,
                                column + kTileN - 1);
      } else if (!in_whole) {
        visible = Mask::tiles(at, params);
      }
      made.add(group, visible.hi != 0, visible.lo != 0 && !ends);
    }
    if (made.is_tile()) {
      made.set_tile(tile);
      made.set_in_whole_block(in_whole);
    }
    if constexpr (Descriptor::kHasBits) {
      if (has_bits) made.bits = known.place() + 1;
    }
    return made;
  }

 private:
  /// Reads entries until some are tiles of the list, or none is left.
  ATTNJIT_DEVICE void search() {
#pragma unroll 1
    while (found == 0 && share.begin < share.end) {
      const int place = share.begin + lane;
      descriptor = {};
      if (place < share.end) {
        const bool in_whole = place >= in_part.count * kParts;
        const int entry = place / kParts - (in_whole ? in_part.count : 0);
        const int block = (in_whole ? whole : in_part).entries[entry];
        // NOTE: unsigned, and compared before it is multiplied: an entry may be any number.
        if (static_cast<u32>(block) < static_cast<u32>(ceil_div(tiles.end, kParts))) {
          const int tile = block * kParts + place % kParts;
          const BlockDescriptor known = block_descriptor(entry, in_whole);
          if (tile >= tiles.begin && tile < tiles.end)
            descriptor = tile_descriptor(tile, in_whole, known);
        }
      }
      found = __ballot_sync(kAll, descriptor.is_tile());
      share.begin += 32;
    }
  }
};

/// The same tiles from the last to the first, whatever order the lists have: which of a row's tiles
/// stand in which list depends on the rows of its block. List: a BlockMaskList, whose `tiles` are
/// then those that are not looked at yet.
template <class List>
struct SortedBlockMaskList : List {
  using Descriptor = decltype(List::descriptor);
  using List::kAll;
  using List::kParts;

  ATTNJIT_DEVICE explicit SortedBlockMaskList(const List& list) : List(list) {}

  /// As BlockMaskList::take().
  ATTNJIT_DEVICE Descriptor take() {
    search();
    return this->take_found();
  }

 private:
  /// Looks for tiles in both lists until some are there, or none is left: 32 at a time, a lane
  /// each.
  ATTNJIT_DEVICE void search() {
    KvTiles& tiles = this->tiles;
#pragma unroll 1
    while (this->found == 0 && tiles.begin < tiles.end) {
      const int tile = tiles.end - 1 - this->lane;
      const int first = max(tiles.end - 32, tiles.begin) / kParts;
      const int last = (tiles.end - 1) / kParts;
      int entry = -1;
      bool in_whole = false;
#pragma unroll 1
      for (int list = 0; list < 2; ++list) {
        // NOTE: copies: a reference to one of the two would put the list into local memory.
        const int count = list == 0 ? this->in_part.count : this->whole.count;
        const int* const entries = list == 0 ? this->in_part.entries : this->whole.entries;
#pragma unroll 1
        for (int base = 0; base < count; base += 32) {
          int block = -1;
          if (base + this->lane < count) block = entries[base + this->lane];
          u32 hits = __ballot_sync(kAll, block >= first && block <= last);
#pragma unroll 1
          while (hits != 0) {
            const int from = __ffs(static_cast<int>(hits)) - 1;
            hits &= hits - 1;
            if (__shfl_sync(kAll, block, from) == tile / kParts) {
              entry = base + from;
              in_whole = list == 1;
            }
          }
        }
      }
      this->descriptor = {};
      if (entry >= 0 && tile >= tiles.begin) {
        this->descriptor =
            this->tile_descriptor(tile, in_whole, this->block_descriptor(entry, in_whole));
      }
      this->found = __ballot_sync(kAll, this->descriptor.is_tile());
      tiles.end -= 32;
    }
  }
};

}  // namespace attnjit

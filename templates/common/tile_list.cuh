// SPDX-License-Identifier: Apache-2.0
// The KV tiles that some rows see, where the mask says of each tile what it shows: those that it
// hides from all of them are no part of the list.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"

namespace attnjit {

/// A KV tile of a list, in a word: which it is, and of each group of rows whether it sees a key of
/// the tile, and whether it sees all. 0 is no tile: a list has tiles that some rows see.
struct TileDescriptor {
  static constexpr int kMaxGroups = 3;
  static constexpr bool kHasBits = false;
  u32 word = 0;

  ATTNJIT_DEVICE int tile() const { return static_cast<int>(word >> 2 * kMaxGroups); }
  ATTNJIT_DEVICE bool is_tile() const { return word != 0; }
  ATTNJIT_DEVICE bool seen(int group) const { return (word >> 2 * group & 1u) != 0; }
  ATTNJIT_DEVICE bool full(int group) const { return (word >> 2 * group & 2u) != 0; }

  /// In the place of a third group, which the rows of a map's list have not: the tile is of a block
  /// that is seen whole, so that the mask is not asked where it ends past the keys.
  ATTNJIT_DEVICE bool in_whole_block() const { return (word >> 4 & 1u) != 0; }

  ATTNJIT_DEVICE void add(int group, bool seen, bool full) {
    word |= (static_cast<u32>(seen) | static_cast<u32>(full) << 1) << 2 * group;
  }
  ATTNJIT_DEVICE void set_in_whole_block(bool of) { word |= static_cast<u32>(of) << 4; }
  ATTNJIT_DEVICE void set_tile(int tile) { word |= static_cast<u32>(tile) << 2 * kMaxGroups; }
};

/// Finds the tiles of kTileN keys among [begin, end) that Rows see, from the last to the first. A
/// converged warp: a lane asks the mask about a tile for a group of rows, or, where many are left,
/// about a run of tiles for all rows, to pass over runs that are hidden.
///
/// Rows has kGroups, tile(): the coordinates that all of them share, q_idx(group): a group's
/// positions, empty (hi < lo) where it has none, and all_q_idx(): the positions of all groups.
template <int kTileN, class Mask, class Rows, class Params>
struct TileList {
  static_assert(Rows::kGroups <= TileDescriptor::kMaxGroups, "a descriptor has two bits for each");
  static constexpr u32 kAll = 0xffffffffu;
  static constexpr int kGroups = Rows::kGroups;
  static constexpr int kTiles = 32 / kGroups;  ///< that are asked about at a time

  const Rows& rows;
  const Params& params;
  int lane;
  int begin;
  int left;                        ///< tiles from here on have been asked about; at first the end
  bool runs_next;                  ///< runs are asked about before tiles
  u32 found = 0;                   ///< bit i: the tile of lane i is the list's, and not taken
  TileDescriptor descriptor = {};  ///< of the lane's tile

  ATTNJIT_DEVICE TileList(const Rows& all, const Params& user, int lane_of_warp, int first, int end)
      : rows(all), params(user), lane(lane_of_warp), begin(first), left(end), runs_next(true) {}

  /// The next tile; none after the last. NOTE: to be called at one place, since it is as long as
  /// the mask's expression.
  ATTNJIT_DEVICE TileDescriptor take() {
    search();
    if (found == 0) return {};
    const int from = __ffs(static_cast<int>(found)) - 1;
    TileDescriptor taken;
    taken.word = __shfl_sync(kAll, descriptor.word, from);
    found &= found - 1;
    return taken;
  }

 private:
  /// Asks about tiles until some are the list's, or none is left. NOTE: about few at a time, a
  /// question a lane: nothing is loaded meanwhile.
  ATTNJIT_DEVICE void search() {
#pragma unroll 1
    while (found == 0 && left > begin) {
      const bool runs = runs_next && left - begin > 2 * kTiles;
      const int run = runs ? ceil_div(left - begin, 32) : 1;
      const int end = left - (runs ? lane : lane / kGroups) * run;
      TileCoord at = rows.tile();
      at.q_idx = runs ? rows.all_q_idx() : rows.q_idx(lane % kGroups);
      const int last_key = (end - 1) * kTileN;  // the first of the last tile
      const bool whole = at.kv_len - last_key >= kTileN;
      at.kv_idx = {max(end - run, begin) * kTileN, whole ? last_key + kTileN - 1 : at.kv_len - 1};
      const bool asks =
          end > begin && at.q_idx.lo <= at.q_idx.hi && (runs || lane < kTiles * kGroups);
      IntRange visible{0, 0};
      if (asks) visible = Mask::tiles(at, params);
      const u32 any = __ballot_sync(kAll, visible.hi != 0);
      if (runs) {
        // To the run that is walked first, tile by tile.
        left = any == 0 ? begin : left - (__ffs(static_cast<int>(any)) - 1) * run;
        runs_next = false;
      } else {
        const u32 full_bits = __ballot_sync(kAll, visible.lo != 0 && whole);
        descriptor = {};
        // A tile a lane.
        const u32 seen = lane < kTiles ? any >> kGroups * lane : 0;
        const u32 full = lane < kTiles ? full_bits >> kGroups * lane : 0;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          descriptor.add(group, (seen >> group & 1u) != 0, (full >> group & 1u) != 0);
        }
        if (descriptor.is_tile()) descriptor.set_tile(left - 1 - lane);
        found = __ballot_sync(kAll, descriptor.is_tile());
        left -= kTiles;
        // Where the farthest tile is hidden, more may be.
        runs_next = any >> (kTiles - 1) * kGroups == 0;
      }
    }
  }
};

}  // namespace attnjit

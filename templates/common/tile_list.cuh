// SPDX-License-Identifier: Apache-2.0
// The KV tiles that some rows see, where the mask says of each tile what it shows: those that it
// hides from all of them are no part of the list.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"

namespace attnjit {

/// A KV tile of a list, in a word: which it is, and of each group of rows whether it sees a key of
/// the tile, and whether it sees all. 0 is no tile: a list has tiles that some rows see.
struct TileNote {
  static constexpr int kMaxGroups = 3;
  u32 word = 0;

  ATTNJIT_DEVICE int tile() const { return static_cast<int>(word >> 2 * kMaxGroups); }
  ATTNJIT_DEVICE bool is_tile() const { return word != 0; }
  ATTNJIT_DEVICE bool seen(int group) const { return (word >> 2 * group & 1u) != 0; }
  ATTNJIT_DEVICE bool full(int group) const { return (word >> 2 * group & 2u) != 0; }

  ATTNJIT_DEVICE void add(int group, bool seen, bool full) {
    word |= (static_cast<u32>(seen) | static_cast<u32>(full) << 1) << 2 * group;
  }
  ATTNJIT_DEVICE void set_tile(int tile) { word |= static_cast<u32>(tile) << 2 * kMaxGroups; }
};

/// Finds the tiles of kTileN keys among [begin, end) that Rows see, from the last to the first. A
/// whole warp: a lane asks the mask about a tile for a group of rows, or, where many are left,
/// about a run of tiles for all rows, to pass over runs that are hidden.
///
/// Rows has kGroups, tile(): the coordinates that all of them share, q_idx(group): a group's
/// positions, empty (hi < lo) where it has none, and all_q_idx(): the positions of all groups.
template <int kTileN, class Mask, class Rows, class Params>
struct TileList {
  static_assert(Rows::kGroups <= TileNote::kMaxGroups, "a note has two bits for each");
  static constexpr u32 kAll = 0xffffffffu;
  static constexpr int kGroups = Rows::kGroups;
  static constexpr int kTiles = 32 / kGroups;  ///< that are asked about at a time

  const Rows& rows;
  const Params& params;
  int lane;
  int begin;
  int left;        ///< tiles from here on have been asked about; at first the end
  bool runs_next;  ///< runs are asked about before tiles
  int last = 0;    ///< of the tiles asked about last, whose bits are:
  u32 seen = 0;    ///< bit kGroups * i + group: whether the group sees a key of tile last - i
  u32 full = 0;    ///< whether it sees all

  ATTNJIT_DEVICE TileList(const Rows& all, const Params& user, int lane_of_warp, int first, int end)
      : rows(all), params(user), lane(lane_of_warp), begin(first), left(end), runs_next(true) {}

  /// The next tile; none after the last. NOTE: to be called at one place, since it is as long as
  /// the mask's expression.
  ATTNJIT_DEVICE TileNote take() {
    search();
    TileNote taken;
    if (seen == 0) return taken;
    const int first = (__ffs(static_cast<int>(seen)) - 1) / kGroups;
    constexpr u32 kOfTile = (1u << kGroups) - 1u;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int bit = first * kGroups + group;
      taken.add(group, (seen >> bit & 1u) != 0, (full >> bit & 1u) != 0);
    }
    taken.set_tile(last - first);
    seen &= ~(kOfTile << first * kGroups);
    return taken;
  }

 private:
  /// Asks about tiles until some are the list's, or none is left. NOTE: about few at a time, a
  /// question a lane: nothing is loaded meanwhile.
  ATTNJIT_DEVICE void search() {
#pragma unroll 1
    while (seen == 0 && left > begin) {
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
        seen = any;
        full = __ballot_sync(kAll, visible.lo != 0 && whole);
        last = left - 1;
        left -= kTiles;
        // Where the farthest tile is hidden, more may be.
        runs_next = any >> (kTiles - 1) * kGroups == 0;
      }
    }
  }
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The KV tiles that some rows see, where the mask says of each tile what it shows: those that it
// hides from all of them are no part of the list.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"

namespace attnjit {

/// A KV tile of a list, in a word: which it is, whether it is the last, and of each group of rows
/// whether it sees a key of the tile, and whether it sees all.
struct TileNote {
  static constexpr int kMaxGroups = 3;
  static constexpr u32 kLast = 1u << 2 * kMaxGroups;
  u32 word = 0;

  ATTNJIT_DEVICE int tile() const { return static_cast<int>(word >> (2 * kMaxGroups + 1)); }
  ATTNJIT_DEVICE bool last() const { return (word & kLast) != 0; }
  ATTNJIT_DEVICE bool seen(int group) const { return (word >> 2 * group & 1u) != 0; }
  ATTNJIT_DEVICE bool full(int group) const { return (word >> 2 * group & 2u) != 0; }

  ATTNJIT_DEVICE void add(int group, bool seen, bool full) {
    word |= (static_cast<u32>(seen) | static_cast<u32>(full) << 1) << 2 * group;
  }
  ATTNJIT_DEVICE bool seen_by_any() const { return word != 0; }
  ATTNJIT_DEVICE void set_tile(int tile) { word |= static_cast<u32>(tile) << (2 * kMaxGroups + 1); }
};

/// Finds the tiles of kTileN keys among [begin, end) that Rows see, from the last to the first. A
/// whole warp: a lane asks the mask about a tile each, or, where many are left, about a run of
/// tiles, to pass over runs that are hidden.
///
/// Rows has kGroups, tile(): the coordinates that all of them share, and q_idx(group): a group's
/// positions, empty (hi < lo) where it has none.
template <int kTileN, class Mask, class Rows, class Params>
struct TileList {
  static_assert(Rows::kGroups <= TileNote::kMaxGroups, "a note has two bits for each");
  static constexpr u32 kAll = 0xffffffffu;

  const Rows& rows;
  const Params& params;
  int lane;
  int begin;
  int left;            ///< tiles from here on have been asked about; at first the end
  u32 found = 0;       ///< bit i: the tile that lane i asked about is the list's, and not taken
  TileNote note = {};  ///< of the lane's tile

  ATTNJIT_DEVICE TileList(const Rows& all, const Params& user, int lane_of_warp, int first, int end)
      : rows(all), params(user), lane(lane_of_warp), begin(first), left(end) {
    search();
  }

  ATTNJIT_DEVICE bool done() const { return found == 0; }

  /// The next tile. @pre !done()
  ATTNJIT_DEVICE TileNote take() {
    TileNote taken{__shfl_sync(kAll, note.word, __ffs(static_cast<int>(found)) - 1)};
    found &= found - 1;
    if (found == 0) search();
    if (found == 0) taken.word |= TileNote::kLast;
    return taken;
  }

 private:
  /// Asks about tiles until some are the list's, or none is left. NOTE: one place that asks, for
  /// tiles and for runs: it is the mask's expression, and as long as the user made it.
  ATTNJIT_DEVICE void search() {
    int run = 0;  // tiles of a lane; 0: to be chosen
#pragma unroll 1
    while (found == 0 && left > begin) {
      if (run == 0) run = left - begin > 32 ? ceil_div(left - begin, 32) : 1;
      const int end = left - lane * run;
      note = {};
      if (end > begin) note = note_of(max(end - run, begin), end);
      found = __ballot_sync(kAll, note.seen_by_any());
      if (run == 1) {
        note.set_tile(end - 1);
        left -= 32;
        run = 0;
      } else {
        // To the run that is walked first, tile by tile.
        left = found == 0 ? begin : left - (__ffs(static_cast<int>(found)) - 1) * run;
        found = 0;
        run = 1;
      }
    }
  }

  /// What the mask says of the tiles [first, end).
  ATTNJIT_DEVICE TileNote note_of(int first, int end) const {
    TileCoord at = rows.tile();
    const int last = (end - 1) * kTileN;  // the first key of the last tile
    const bool whole = at.kv_len - last >= kTileN;
    at.kv_idx = {first * kTileN, whole ? last + kTileN - 1 : at.kv_len - 1};
    TileNote made;
#pragma unroll 1
    for (int group = 0; group < Rows::kGroups; ++group) {
      at.q_idx = rows.q_idx(group);
      if (at.q_idx.hi < at.q_idx.lo) continue;
      const IntRange visible = Mask::tiles(at, params);
      made.add(group, visible.hi != 0, visible.lo != 0 && whole);
    }
    return made;
  }
};

}  // namespace attnjit

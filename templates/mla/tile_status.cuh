// SPDX-License-Identifier: Apache-2.0
// What an expression shows of KV tiles to a warp's rows: of those that it hides, or shows whole, no
// score is asked about.
#pragma once

#include "mla/layout.cuh"

namespace attnjit::mla {

/// Whether warps keep a TileStatus: where an expression decides tiles.
template <class Config, class Mask>
constexpr bool kAsksTiles = Mask::kBlockSparse&& Config::kTopk == 0;

/// A warp's rows, of which `first` and `second` are this thread's, as a mask is asked about them.
/// NOTE: of what a warp keeps for its rows anyhow. Rows past the call's are nobody's.
ATTNJIT_DEVICE TileCoord rows_of_warp(const Coord& first, const Coord& second) {
  constexpr u32 kAll = 0xffffffffu;
  TileCoord at;
  at.b = first.b;
  at.kv_h = first.kv_h;
  at.h = {__reduce_min_sync(kAll, min(first.h, second.h)),
          __reduce_max_sync(kAll, max(first.h, second.h))};
  const int last = first.kv_len - 1;
  at.q_idx = {min(__reduce_min_sync(kAll, min(first.q_idx, second.q_idx)), last),
              min(__reduce_max_sync(kAll, max(first.q_idx, second.q_idx)), last)};
  at.q_len = first.q_len;
  at.kv_len = first.kv_len;
  return at;
}

/// Whether KV tiles are seen, and whole, for those that a warp computes: of kTiles at a time, from
/// the last to the first. NOTE: in one word, for which the consumers of sm_90a have a register.
struct TileStatus {
  static constexpr int kTiles = 16;
  u32 word = 0;

  /// Asks about the tile that is `place` steps behind the walk's first, and those before it that
  /// are asked about with it. To be called where that place is the walk's last, or the last of so
  /// many. A converged warp: two lanes about a tile.
  template <int kTileN, class Mask, class Params>
  ATTNJIT_DEVICE void ask(TileCoord at, int tile, int place, int step, int lane,
                          const Params& params) {
    const int asked = tile + step * (of(lane) - of(place));
    const bool whole = set_keys<kTileN>(at, {asked, asked + 1});
    at.kv_idx.lo = min(at.kv_idx.lo, at.kv_idx.hi);  // of none behind the last, which nobody wants
    const IntRange visible = Mask::tiles(at, params);
    word = __ballot_sync(0xffffffffu, lane < kTiles ? visible.hi != 0 : visible.lo != 0 && whole);
  }
  /// Whether a place is the last of those that are asked about together.
  ATTNJIT_DEVICE static bool asks(int place) { return of(place) == kTiles - 1; }
  ATTNJIT_DEVICE bool seen(int place) const { return (word >> of(place) & 1u) != 0; }
  ATTNJIT_DEVICE bool whole(int place) const { return (word >> (kTiles + of(place)) & 1u) != 0; }

 private:
  ATTNJIT_DEVICE static int of(int place) { return place & (kTiles - 1); }
};

}  // namespace attnjit::mla

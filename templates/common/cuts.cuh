// SPDX-License-Identifier: Apache-2.0
// What work tiles cost, of few rows, which wait for their keys, and of many, which compute; and
// which sequences' tiles a launch cuts: known to each CTA alike from the lengths on the device.
//
// Work tiles that are long beside a CTA's share of a launch are what its other CTAs would wait for.
// Those of all sequences that have such tiles are one line of keys, tile behind tile, of which the
// first CTAs take a range each, as long as one another (common/cut_list.cuh). What is left is taken
// as whole tiles (common/sequences.cuh), by the other CTAs and by these after their ranges.
#pragma once

#include "common/cut_table.cuh"
#include "common/integers.cuh"
#include "common/partitions.cuh"
#include "common/scheduler_cursor.cuh"

namespace attnjit {

/// What an architecture's Tiling says of its tiles, in ticks:
///   kFewTicks     of a KV tile's products with rows that are few, which wait for their keys
///   kFullTicks    with those of a full tile
///   kTileTicks    that a work tile takes beside its KV tiles
/// and kLongPercent: what the longest takes at least of a CTA's mean share, where tiles are cut.

/// Tiles of a head (or of packed heads) of each kind, and the time that they take: in keys of a
/// tile whose rows are few.
template <class Tiling>
struct TileKinds {
  float few_tiles = 0, few_time = 0, full_tiles = 0, full_time = 0;
  int first = 0x7fffffff, last = -1;  ///< of the sequences that have rows

  /// Adds the tiles of a sequence.
  template <class Mask, class Arguments, class Params>
  ATTNJIT_DEVICE void add(int sequence, Lengths lengths, const Arguments& arguments,
                          const Params& params) {
    if (lengths.q == 0) return;
    first = min(first, sequence);
    last = sequence;
    // Those that the row in the middle sees.
    const int q_idx = lengths.first_q_idx() + lengths.q / 2;
    const KvRange reach = Mask::reach(q_idx, q_idx, lengths.kv, params);
    const float tiles = Tiling::tiles(lengths.q, arguments);
    const float time = tiles * max(reach.end - reach.begin, 0);
    if (Tiling::few_rows(lengths.q)) {
      few_tiles += tiles;
      few_time += time;
    } else {
      full_tiles += tiles;
      full_time += static_cast<float>(Tiling::kFullTicks) / Tiling::kFewTicks * time;
    }
  }
  /// Adds up those of a warp's lanes.
  ATTNJIT_DEVICE void add_lanes() {
    few_tiles = warp_sum(few_tiles);
    few_time = warp_sum(few_time);
    full_tiles = warp_sum(full_tiles);
    full_time = warp_sum(full_time);
    first = __reduce_min_sync(0xffffffffu, first);
    last = __reduce_max_sync(0xffffffffu, last);
  }

  /// Of so many CTAs, those that the longer tiles, of few rows or of many, take: their share of the
  /// time, but as many as end together. A few of a round of their own would be what the other CTAs
  /// wait for. Negative where the tiles of few rows are the longer ones.
  ATTNJIT_DEVICE int ctas_of_longer(int heads, int all) const {
    const bool few_longer = few_time * full_tiles > full_time * few_tiles;
    const float tiles = heads * (few_longer ? few_tiles : full_tiles);
    // NOTE: not `/`, whose exact division is a function that would have registers of its own.
    const float share =
        __fdividef(all * (few_longer ? few_time : full_time), few_time + full_time + 1);
    const float rounds = fmaxf(rintf(__fdividef(tiles, fmaxf(share, 1))), 1);
    const int ctas = min(max(static_cast<int>(ceilf(__fdividef(tiles, rounds))), 1), all - 1);
    return few_longer ? -ctas : ctas;
  }

  /// Of so many CTAs that take tiles, those that begin at the list's front. Its ends are told
  /// apart by the first and the last sequence. If one has few rows and the other has not, CTAs
  /// begin at both; otherwise all begin at the end whose tiles are longer.
  template <class SequenceLengths>
  ATTNJIT_DEVICE int ctas_at_front(const SequenceLengths& of, int all) const {
    if (last < 0) return all;
    const Lengths front = of.lengths(first), back = of.lengths(last);
    const bool few = Tiling::few_rows(front.q);
    if (few == Tiling::few_rows(back.q)) return back.kv > front.kv ? 0 : all;
    const int longer = ctas_of_longer(Tiling::heads(of.arguments), all);
    return (longer < 0) == few ? abs(longer) : all - abs(longer);
  }
};

/// Tiles are cut that take more of a CTA's mean share than this, and longer than so many KV tiles
/// of few rows.
constexpr float kCutShare = 0.25f;
constexpr int kLeastCut = 24;
/// Where tiles of one length take so many times as long as if each CTA had its share; and what a
/// range's begin and end take, in such KV tiles.
constexpr float kMuchLonger = 1.1f;
constexpr int kRangeSteps = 7;
/// And of a sequence that has so many keys for each row, whose tiles are about as long as one
/// another. Those of others come from the longest to the shortest, which evens them out.
constexpr int kLeastKeysPerRow = 4;

template <class Config, class Tiling>
ATTNJIT_DEVICE int step_ticks(int rows) {
  return !takes_whole<Config>() || Tiling::few_rows(rows) ? Tiling::kFewTicks : Tiling::kFullTicks;
}

/// The KV tiles of a sequence's last rows. Of other tiles of its rows there may be fewer, or more:
/// what is dealt out is as long for each, and a last part has what is left.
template <class Config, class Mask, class Tiling, class Params>
ATTNJIT_DEVICE int nominal_steps(Lengths lengths, const Params& params) {
  const int first = max(lengths.q - Tiling::kTilePositions, 0) + lengths.first_q_idx();
  return tiles_of_keys<Config::kTileN>(
             reach_of<Config, Mask>(first, lengths.kv - 1, lengths.kv, params))
      .count();
}

/// The ticks of a sequence's tiles, where they may be cut; otherwise none.
template <class Config, class Mask, class Tiling, class Params>
ATTNJIT_DEVICE int cut_ticks(Lengths lengths, const Params& params) {
  if (lengths.q == 0 || lengths.kv / kLeastKeysPerRow < lengths.q) return 0;
  return nominal_steps<Config, Mask, Tiling>(lengths, params) *
         step_ticks<Config, Tiling>(lengths.q);
}

/// What all CTAs know of a launch's cuts, and where this one's range stands, in shared memory. What
/// is asked between a producer's tiles is not kept in registers, of which it has few.
struct CutWords {
  u32 address;

  /// Ticks of the longest tiles that are not cut, and how many CTAs have ranges.
  ATTNJIT_DEVICE int longest() const { return word(4); }
  ATTNJIT_DEVICE int ranges() const { return word(5); }
  /// TileKinds::ctas_at_front() of the tiles that are not cut, for the other CTAs; and how many
  /// such tiles there are.
  ATTNJIT_DEVICE int front() const { return word(6); }
  ATTNJIT_DEVICE int tiles() const { return word(7); }
  /// How decodes are dealt out.
  ATTNJIT_DEVICE int way() const { return word(4); }
  ATTNJIT_DEVICE void store(int longest, int ranges, int front, int tiles) const {
    store_shared_v4(address + kCursorBytes, longest, ranges, front, tiles);
  }

 private:
  ATTNJIT_DEVICE int word(int i) const {
    return warp_uniform(static_cast<int>(load_shared_word(address + 4 * i)));
  }
};
/// A CTA's range of decodes: as long as the others' in ticks, wherever that cuts a tile; or with
/// the tiles whose first tick it would have; or with as many tiles, of one tick each.
enum DecodesWay { kCut, kByTicks, kByCount };
constexpr int kCutBytes = 2 * kCursorBytes;

/// Whether a sequence's tiles are cut.
template <class Config, class Mask, class Tiling, class Params>
ATTNJIT_DEVICE bool is_cut(Lengths lengths, int longest, const Params& params) {
  return cut_ticks<Config, Mask, Tiling>(lengths, params) > longest;
}

}  // namespace attnjit

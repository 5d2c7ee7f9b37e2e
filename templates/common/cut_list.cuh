// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where a launch cuts long work tiles: its range of their keys, and then whole
// tiles of the other sequences, which it takes. Decodes are all in ranges (decode_ranges.cuh).
#pragma once

#include "common/sequences.cuh"

namespace attnjit {

/// The sequences whose tiles are cut are a line of ticks. Of each the heads follow one another (or
/// packed heads), of a head its tiles from the last rows to the first, and of a tile its KV tiles
/// from the last to the first, each of which takes some ticks (common/cuts.cuh). After the last one
/// come Tiling::kTileTicks which are nobody's. A range has the KV tiles whose first tick it has.
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct CutLine : SequenceLengths<Config, Tiling::kKvLens, Arguments> {
  static constexpr u32 kAll = 0xffffffffu;
  using Base = SequenceLengths<Config, Tiling::kKvLens, Arguments>;
  using Base::arguments;

  const Params& params;
  int lane;

  ATTNJIT_DEVICE int steps(Lengths its) const {
    return nominal_steps<Config, Mask, Tiling>(its, params);
  }
  ATTNJIT_DEVICE int tile_ticks(Lengths its) const {
    return steps(its) * step_ticks<Config, Tiling>(its.q) + Tiling::kTileTicks;
  }
  /// A sequence's work tiles, all heads together.
  ATTNJIT_DEVICE int tiles(int rows) const {
    return Tiling::tiles(rows, arguments) * Tiling::heads(arguments);
  }
  ATTNJIT_DEVICE bool is_cut(Lengths its, int longest) const {
    return attnjit::is_cut<Config, Mask, Tiling>(its, longest, params);
  }
  /// The first sequence from `first` on whose tiles are cut, or arguments.batch. A converged warp.
  ATTNJIT_DEVICE int next_cut(int first, int longest) const {
#pragma unroll 1
    for (; first < arguments.batch; first += 32) {
      const int own = first + lane;
      const bool cut = (own < arguments.batch) && is_cut(this->lengths(own), longest);
      const u32 found = __ballot_sync(kAll, cut);
      if (found != 0) return first + __ffs(static_cast<int>(found)) - 1;
    }
    return arguments.batch;
  }
};

/// Finds what is cut, and where the CTA's range begins. A converged warp. NOTE: by a warp that has
/// its registers still: the producer's are few.
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct CutFinder : CutLine<Config, Mask, Tiling, Arguments, Params> {
  using Base = CutLine<Config, Mask, Tiling, Arguments, Params>;
  using Base::arguments;
  using Base::kAll;
  using Base::lane;
  using Base::params;

  /// Leaves them at `words`.
  ATTNJIT_DEVICE void find(CutWords words) const {
    const bool asks = arguments.partitions > 1 && arguments.tile_counters != nullptr;
    const Choice choice = choose(asks);
    SchedulerCursor cursor{{arguments.batch, 0, 0, choice.length}};
    if (worker<Config>() < choice.ranges) cursor = begin_of_range(choice);
    if (lane == 0) {
      stash_cursor(words.address, cursor);
      words.store(choice.longest, choice.ranges, choice.front, choice.tiles);
    }
    if (arguments.partitions > 1) clear_table<Config>(arguments, lane);
  }

 private:
  using Kinds = TileKinds<Tiling>;
  static constexpr int kRangeTicks = kRangeSteps * Tiling::kFewTicks;
  struct Choice {
    int longest = 0x7fffffff;    ///< ticks of tiles that are not cut
    int ranges = 0, length = 1;  ///< and ticks of each
    int front = 0, tiles = 0;    ///< as of CutWords
  };

  /// Ticks of all heads' tiles.
  ATTNJIT_DEVICE float ticks_of(const Kinds& kinds) const {
    const float steps = (kinds.few_time + kinds.full_time) * (1.0f / Config::kTileN);
    // Of a tile half of a KV tile is past its last key.
    return static_cast<float>(Tiling::heads(arguments)) *
           (steps * Tiling::kFewTicks +
            (kinds.few_tiles + kinds.full_tiles) * (Tiling::kTileTicks + Tiling::kFewTicks / 2));
  }

  /// Of a batch: what is not cut, and of the others the tiles, their ticks, and the longest's.
  struct Sums {
    Kinds whole;
    int whole_tiles = 0;
    float tiles = 0;
    u32 ticks = 0;
    float about = 0;    ///< of the ticks, which might overflow
    float squares = 0;  ///< of a tile's ticks
    int most = 0;
  };
  /// A sequence, with the ticks of its tiles where they may be cut.
  struct Priced {
    Lengths its;
    int ticks;
  };
  ATTNJIT_DEVICE Priced priced(int sequence) const {
    if (sequence >= arguments.batch) return {};
    const Lengths its = this->lengths(sequence);
    return {its, cut_ticks<Config, Mask, Tiling>(its, params)};
  }
  ATTNJIT_DEVICE void add(Sums& sums, int sequence, const Priced& one, int longest) const {
    sums.most = max(sums.most, one.ticks);
    const int tiles = this->tiles(one.its.q);
    if (one.ticks > longest) {
      const int each = one.ticks + Tiling::kTileTicks;
      const float ticks = static_cast<float>(tiles) * static_cast<float>(each);
      sums.tiles += static_cast<float>(tiles);
      sums.ticks += static_cast<u32>(tiles) * static_cast<u32>(each);
      sums.about += ticks;
      sums.squares += ticks * static_cast<float>(each);
    } else {
      sums.whole_tiles += tiles;
      sums.whole.template add<Mask>(sequence, one.its, arguments, params);
    }
  }
  /// Where tiles are cut that take more ticks than `longest`. `first`: priced(lane), which a second
  /// pass need not wait for.
  ATTNJIT_DEVICE Sums sums(int longest, const Priced& first) const {
    Sums sums;
    add(sums, lane, first, longest);
    // NOTE: the lengths of several are on their way together.
#pragma unroll 2
    for (int sequence = lane + 32; sequence < arguments.batch; sequence += 32) {
      add(sums, sequence, priced(sequence), longest);
    }
    sums.whole.add_lanes();
    sums.whole_tiles = __reduce_add_sync(kAll, sums.whole_tiles);
    sums.tiles = warp_sum(sums.tiles);
    sums.about = warp_sum(sums.about);
    sums.squares = warp_sum(sums.squares);
    sums.ticks = __reduce_add_sync(kAll, sums.ticks);
    sums.most = __reduce_max_sync(kAll, sums.most);
    return sums;
  }

  ATTNJIT_DEVICE Choice choose(bool may_cut) const {
    const int ctas = workers<Config>();
    Choice choice;
    int longest = choice.longest;  // nothing is cut at first
    const Priced first = priced(lane);
#pragma unroll 1
    while (true) {
      const Sums sums = this->sums(longest, first);
      const float whole = ticks_of(sums.whole);
      const float share = __fdividef(sums.about + whole, static_cast<float>(ctas));
      int ranges = 0;
      if (sums.tiles > 0) {
        // NOTE: ticks are counted in an int.
        if (sums.about > 1e9f || !is_worth_it(sums, share, whole)) return choice;
        const auto line = static_cast<int>(sums.ticks);
        const int wanted = static_cast<int>(ceilf(__fdividef(sums.about, share)));
        const int most_ranges = max(ctas - (whole > 0 ? 1 : 0), 1);
        choice.length =
            max(quotient(line - 1, min(max(wanted, 1), most_ranges)) + 1, Tiling::kFullTicks);
        ranges = quotient(line - 1, choice.length) + 1;
      }
      choice.longest = longest;
      choice.ranges = ranges;
      // Each of few tiles is the first of a CTA, and none is taken later.
      choice.front = ctas - ranges;
      if (sums.whole_tiles > ctas - ranges) {
        choice.front = sums.whole.ctas_at_front(*this, ctas - ranges);
      }
      choice.tiles = sums.whole_tiles;
      const float limit =
          fmaxf(kCutShare * share, static_cast<float>(kLeastCut * Tiling::kFewTicks));
      if (!may_cut || ranges > 0 || static_cast<float>(sums.most) <= limit) return choice;
      // Where one tile is worth a cut, shorter ones are cut with it: CTAs would wait for them.
      longest = static_cast<int>(fmaxf(kCutShare * share, kLeastCut * Tiling::kFewTicks / 4));
    }
  }

  /// Whether these tiles are to be cut, where each CTA has a share of `share` ticks. The longest
  /// takes longer than a share and a range's begin and end; or nearly all are as long as one
  /// another, there is little beside them, and their last round would leave many CTAs idle.
  ATTNJIT_DEVICE static bool is_worth_it(const Sums& sums, float share, float whole) {
    const auto most = static_cast<float>(sums.most);
    if (most > 0.01f * Tiling::kLongPercent * share + kRangeTicks) return true;
    const float mean = __fdividef(sums.about, sums.tiles);
    const bool alike = mean * sums.about > 0.8f * sums.squares;
    if (!alike || whole > 0.25f * sums.about) return false;
    const float rounds = ceilf(__fdividef(sums.tiles * share, sums.about));
    return rounds * mean > kMuchLonger * (share + kRangeTicks);
  }

  /// Where the CTA's range begins: {the sequence, ticks of it that the ranges before have, ticks of
  /// the range, of a range}.
  ATTNJIT_DEVICE SchedulerCursor begin_of_range(const Choice& choice) const {
    const int longest = choice.longest, length = choice.length;
    const int target = worker<Config>() * length;
    SchedulerCursor cursor{{arguments.batch, 0, 0, length}};
    const auto ticks_of = [&](int sequence) {
      const Lengths its = this->lengths(sequence);
      return this->is_cut(its, longest) ? this->tiles(its.q) * this->tile_ticks(its) : 0;
    };
    this->walk_line(0, lane, ticks_of, [&](int sequence, int begin, int ticks) {
      const u32 here = __ballot_sync(kAll, target >= begin && target < begin + ticks);
      if (here == 0) return false;
      const int finder = __ffs(static_cast<int>(here)) - 1;
      sequence = __shfl_sync(kAll, sequence, finder);
      cursor = {{sequence, target - __shfl_sync(kAll, begin, finder), length, length}};
      const Lengths its = this->lengths(sequence);
      const int each = this->tile_ticks(its);
      const int left = each - (cursor.words[1] - quotient(cursor.words[1], each) * each);
      if (left < Tiling::kTileTicks + step_ticks<Config, Tiling>(its.q)) {
        // The tile's last KV tile is the range's before: on to the next tile.
        cursor.words[1] += left;
        cursor.words[2] -= left;
        if (cursor.words[1] >= this->tiles(its.q) * each) {
          cursor.words[0] = this->next_cut(sequence + 1, longest);
          cursor.words[1] = 0;
        }
      }
      return true;
    });
    return cursor;
  }
};

/// Of KV tiles those behind `first`, counted from the last, and before `end`, which may be as large
/// as can be.
ATTNJIT_DEVICE KvTiles from_last(KvTiles all, int first, int end) {
  return {max(all.begin, all.end - end), max(all.begin, all.end - first)};
}

/// Walks a CTA's range, and then the tiles that it takes. A converged warp. What it does not need
/// while it loads stands in shared memory. List, an architecture's SequenceList of whole tiles, has
///   Work whole(SequenceTile) const        the work tile
///   void keep(Work&, first, end) const    leaves of its KV tiles those of from_last()
template <class Config, class Mask, class Tiling, class Arguments, class Params, class List>
struct CutTileList : List {
  using Line = CutLine<Config, Mask, Tiling, Arguments, Params>;
  using List::arguments;
  using List::cuts;
  using List::lane;
  using List::params;

  bool in_range = true;  ///< in its range, as decodes always are

  ATTNJIT_DEVICE CutTileList(const Arguments& launch, const Params& user, int lane_of_warp,
                             CutWords words)
      : List(launch, user, lane_of_warp, words) {}

  /// Goes to the next work tile, at first to the first; false: there is none. NOTE: all in one
  /// place, for compile time and the instruction cache.
  ATTNJIT_DEVICE bool next() {
    if constexpr (kDecodes) return is_in_range(stashed_cursor(cuts.address));
    if (in_range) {
      in_range = is_in_range(stashed_cursor(cuts.address));
      if (in_range) return true;
      this->begin_walk();
    } else {
      List::go_on();
    }
    List::find();
    return !List::done();
  }
  /// The work; a range then stands at what follows. NOTE: a tile's work is made in one place, for
  /// compile time: the mask may be asked what it shows.
  ATTNJIT_DEVICE auto tile() {
    int first = 0, end = 0;  // of a part's KV tiles
    auto work = this->whole(in_range ? part(first, end) : List::Base::tile());
    if (work.partition != kWhole) this->keep(work, first, end);
    return work;
  }

 private:
  static constexpr bool kDecodes = !takes_whole<Config>();

  ATTNJIT_DEVICE bool is_in_range(const SchedulerCursor& at) const {
    return warp_uniform(at.words[2] > 0 && at.words[0] < arguments.batch) != 0;
  }

  /// The sequence's tile that the range stands in, and what the range has of its KV tiles, where it
  /// is cut.
  ATTNJIT_DEVICE SequenceTile part(int& first, int& end) {
    const Line line{{arguments}, params, lane};
    SchedulerCursor at = stashed_cursor(cuts.address);
    const int sequence = warp_uniform(at.words[0]), offset = warp_uniform(at.words[1]);
    const int left = warp_uniform(at.words[2]), length = warp_uniform(at.words[3]);
    const Lengths its = line.lengths(sequence);
    const int step = step_ticks<Config, Tiling>(its.q);
    const int steps = line.steps(its);
    int tile_ticks = steps * step + Tiling::kTileTicks;
    if (kDecodes && cuts.way() == kByCount) tile_ticks = 1;
    const int place = quotient(offset, tile_ticks);
    const int begin = offset - place * tile_ticks;  // ticks of the tile that ranges before have
    const int tiles_of_head = kDecodes ? 1 : Tiling::tiles(its.q, arguments);
    const int head = quotient(place, tiles_of_head);
    SequenceTile tile = line.tile_of(sequence, head, place - head * tiles_of_head);
    tile.partition = kWhole;
    first = quotient(begin + step - 1, step);
    end = min(quotient(begin + left + step - 1, step), steps);
    if (kDecodes && cuts.way() != kCut) end = steps;
    if (first > 0 || end < steps) {
      const int range = worker<Config>();
      const int tile_begin = (range + 1) * length - left - begin;
      const int last = quotient(tile_begin + (steps - 1) * step, length);
      tile.partition = first > 0 ? kLaterPart : first_of_parts(last - range + 1);
      // NOTE: a tile may have more KV tiles than is dealt out: the last part has what is left.
      if (end == steps) end = 0x7fffffff;
    }
    // Where the range stands then.
    at.words[2] = left - (tile_ticks - begin);
    at.words[1] = (place + 1) * tile_ticks;
    if (place + 1 == tiles_of_head * Tiling::heads(arguments)) {
      at.words[0] = kDecodes ? sequence + 1 : line.next_cut(sequence + 1, cuts.longest());
      at.words[1] = 0;
    }
    __syncwarp();
    if (lane == 0) stash_cursor(cuts.address, at);
    __syncwarp();
    return tile;
  }
};

/// One warp finds what is cut, before the CTA's threads meet. Finder: a CutFinder or DecodeFinder.
template <class Finder, class Arguments, class Params>
ATTNJIT_DEVICE void find_cuts(CutWords words, const Arguments& arguments, const Params& params) {
  constexpr int kFinder = 4;  // others make the CTA's barriers
  if (warp_uniform(static_cast<int>(threadIdx.x >> 5)) != kFinder) return;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  Finder{{{arguments}, params, lane}}.find(words);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Decodes of as many rows each, of a work tile for each head: which range of their keys a CTA has,
// known to each alike from the lengths on the device.
#pragma once

#include "common/cut_list.cuh"

namespace attnjit {

/// Finds where the CTA's range begins. A converged warp.
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct DecodeFinder : CutLine<Config, Mask, Tiling, Arguments, Params> {
  using Base = CutLine<Config, Mask, Tiling, Arguments, Params>;
  using Base::arguments;
  using Base::kAll;
  using Base::lane;

  /// Leaves it at `words`.
  ATTNJIT_DEVICE void find(CutWords words) const {
    const int tiles = arguments.batch * heads();
    Deal deal{quotient(tiles - 1, workers<Config>()) + 1, kByCount};
    int own = 0;  // ticks of the lane's first sequence
    if (arguments.partitions > 1 || deal.length > 1) {
      own = ticks_of(lane);
      deal = choose(deal, own);
    }
    const SchedulerCursor cursor = begin_of_range(deal, own);
    if (lane == 0) {
      stash_cursor(words.address, cursor);
      words.store(deal.way, 0, 0, 0);
    }
    if (arguments.partitions > 1) clear_table<Config>(arguments, lane);
  }

 private:
  struct Deal {
    int length, way;
  };

  ATTNJIT_DEVICE int heads() const { return Tiling::heads(arguments); }
  /// Of a tile of a sequence; 0: there is none.
  ATTNJIT_DEVICE int ticks_of(int sequence) const {
    return sequence < arguments.batch ? this->tile_ticks(this->lengths(sequence)) : 0;
  }

  /// Cuts tiles if a launch of whole ones takes clearly longer.
  ATTNJIT_DEVICE Deal choose(const Deal& by_count, int own) const {
    u32 all = own;
    auto about = static_cast<float>(own);  // of `all`, which may overflow
    int most = own;
#pragma unroll 2
    for (int sequence = lane + 32; sequence < arguments.batch; sequence += 32) {
      const int ticks = ticks_of(sequence);
      all += ticks;
      about += static_cast<float>(ticks);
      most = max(most, ticks);
    }
    about = static_cast<float>(heads()) * warp_sum(about);
    all = heads() * __reduce_add_sync(kAll, all);
    most = __reduce_max_sync(kAll, most);
    // NOTE: ticks are counted in an int.
    if (about > 1e9f) return by_count;
    const int share = quotient(static_cast<int>(all) - 1, workers<Config>()) + 1;
    // The longest CTA has no more than this either way.
    const bool counted = by_count.length - 1 <= quotient(share, most);
    const int whole = counted ? by_count.length * most : share + most;
    if (arguments.partitions > 1 && whole > share + kRangeSteps * Tiling::kFewTicks) {
      constexpr int kLeastSteps = 2;  // as many as softmax warpgroups take together
      return {max(share, kLeastSteps * Tiling::kFewTicks), kCut};
    }
    return counted ? by_count : Deal{share, kByTicks};
  }

  ATTNJIT_DEVICE SchedulerCursor begin_of_range(const Deal& deal, int own) const {
    const int target = worker<Config>() * deal.length;
    if (deal.way == kByCount) {
      const int sequence = quotient(target, heads());
      return {{sequence, target - sequence * heads(), deal.length, deal.length}};
    }
    SchedulerCursor cursor{{arguments.batch, 0, 0, deal.length}};
    const auto units_of = [&](int sequence) {
      return heads() * (sequence == lane ? own : ticks_of(sequence));
    };
    this->walk_line(0, lane, units_of, [&](int sequence, int begin, int units) {
      const u32 here = __ballot_sync(kAll, target >= begin && target < begin + units);
      if (here == 0) return false;
      const int finder = __ffs(static_cast<int>(here)) - 1;
      cursor.words[0] = __shfl_sync(kAll, sequence, finder);
      cursor.words[1] = target - __shfl_sync(kAll, begin, finder);
      const int all = __shfl_sync(kAll, units, finder);
      const int each = quotient(all, heads());
      const int begun = cursor.words[1] - quotient(cursor.words[1], each) * each;
      // Whether the ranges before have all of the tile: on to the next one.
      const int last = each - Tiling::kTileTicks - Tiling::kFewTicks;
      const bool over = begun > (deal.way == kCut ? max(last, 0) : 0);
      const int skipped = over ? each - begun : 0;
      cursor.words[1] += skipped;
      cursor.words[2] = deal.length - skipped;
      if (cursor.words[1] >= all) {
        ++cursor.words[0];
        cursor.words[1] = 0;
      }
      return true;
    });
    return cursor;
  }
};

}  // namespace attnjit

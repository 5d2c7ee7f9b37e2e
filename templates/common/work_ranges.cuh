// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where a launch of sequences of one length deals out ranges of KV tiles: as many
// to each CTA, next to one another, wherever that cuts a work tile.
#pragma once

#include "common/work_tiles.cuh"

namespace attnjit {

/// A CTA's range of the units of a launch. A unit is a KV tile of a work tile, or a work tile that
/// has none. Work tiles come head by head, from a head's last rows to its first; and the KV tiles
/// of each from its last to its first.
struct WorkRange {
  int head;    ///< where it begins: heads counted over the whole batch,
  int rank;    ///< a tile among those of the head,
  int cut;     ///< and the units of that tile which the ranges before have
  int first;   ///< the same, counted from the first unit of all
  int units;   ///< how many it has; none and fewer are none
  int length;  ///< of each range, but of the last ones
};

/// The KV tiles of a work tile, as units.
ATTNJIT_DEVICE int units_of(const WorkTile& work) {
  return max(work.tile_end - work.tile_begin, 1);
}

/// The range of this CTA. A converged warp.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE WorkRange find_range(const Arguments& arguments, const Params& params, int lane) {
  constexpr u32 kAll = 0xffffffffu;
  const auto units = [&](int rank) {
    return units_of(tile_of_head<Config, Mask>(0, rank, arguments, params));
  };
  // Heads have as many units as one another. Each lane counts those of some ranks.
  const int each = quotient(arguments.m_tiles + 31, 32);
  const int begin = lane * each;
  const int end = min(begin + each, arguments.m_tiles);
  int own = 0;
#pragma unroll 1
  for (int rank = begin; rank < end; ++rank) own += units(rank);
  const int through = warp_sum_through(own, lane);
  const int head_units = __shfl_sync(kAll, through, 31);
  const int all = quotient(arguments.total_tiles, arguments.m_tiles) * head_units;

  WorkRange range;
  range.length = quotient(all + workers<Config>() - 1, workers<Config>());
  range.first = worker<Config>() * range.length;
  range.units = min(all - range.first, range.length);
  range.head = quotient(range.first, head_units);
  const int place = range.first - range.head * head_units;
  int cut = place - (through - own), rank = begin;
  const bool mine = cut >= 0 && place < through;
  if (mine) {
#pragma unroll 1
    for (int tile_units; cut >= (tile_units = units(rank)); ++rank) cut -= tile_units;
  }
  clear_table<Config>(arguments, lane);
  const int finder = __ffs(static_cast<int>(__ballot_sync(kAll, mine))) - 1;
  range.rank = __shfl_sync(kAll, rank, finder);
  range.cut = __shfl_sync(kAll, cut, finder);
  return range;
}

/// A CTA's range as work tiles: parts of them lie in its slots (common/cut_table.cuh).
template <class Config, class Mask, class Arguments, class Params>
struct RangeList {
  const Arguments& arguments;
  const Params& params;
  WorkRange range;  ///< what is left of it
  int taken = 0;    ///< units of the tile

  /// A converged warp.
  ATTNJIT_DEVICE RangeList(const Arguments& launch, const Params& user, int lane)
      : arguments(launch), params(user), range(find_range<Config, Mask>(launch, user, lane)) {}

  ATTNJIT_DEVICE bool done() const { return range.units <= 0; }
  ATTNJIT_DEVICE void advance() {
    range.first += taken;
    range.units -= taken;
    range.cut = 0;
    if (++range.rank < arguments.m_tiles) return;
    range.rank = 0;
    ++range.head;
  }
  ATTNJIT_DEVICE WorkTile tile() {
    WorkTile work = tile_of_head<Config, Mask>(range.head, range.rank, arguments, params);
    const int units = units_of(work);
    taken = min(units - range.cut, range.units);
    if (taken == units) return work;
    work.tile_end -= range.cut;
    work.tile_begin = work.tile_end - taken;
    const int parts = quotient(range.first + units - 1, range.length) - worker<Config>() + 1;
    work.partition = range.cut > 0 ? kLaterPart : first_of_parts(parts);
    return work;
  }
};

}  // namespace attnjit

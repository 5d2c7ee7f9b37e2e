// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where a launch may deal out runs of KV tiles: as many to each CTA, next to one
// another, wherever that cuts a work tile.
#pragma once

#include "common/work_tiles.cuh"

namespace attnjit {

/// A CTA's run of the units of a launch. A unit is a KV tile of a work tile, or a work tile that
/// has none. Work tiles come head by head, from a head's last rows to its first; and the KV tiles
/// of each from its last to its first.
struct Run {
  int head;    ///< where it begins: heads counted over the whole batch,
  int rank;    ///< a tile among those of the head,
  int cut;     ///< and the units of that tile which the runs before have
  int first;   ///< the same, counted from the first unit of all
  int units;   ///< how many it has; none and fewer are none
  int length;  ///< of each run, but of the last ones
};

/// The KV tiles of a work tile, as units.
ATTNJIT_DEVICE int units_of(const WorkTile& work) {
  return max(work.tile_end - work.tile_begin, 1);
}

/// The run of this CTA. A whole warp. Runs are so long that no tile is cut into more parts than the
/// launch has partitions.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE Run find_run(const Arguments& arguments, const Params& params, int lane) {
  constexpr u32 kAll = 0xffffffffu;
  const auto units = [&](int rank) {
    return units_of(tile_of_head<Config, Mask>(0, rank, arguments, params));
  };
  // Heads have as many units as one another. Each lane counts those of some ranks.
  const int each = quotient(arguments.m_tiles + 31, 32);
  const int begin = lane * each;
  const int end = min(begin + each, arguments.m_tiles);
  int own = 0, longest = 0;
#pragma unroll 1
  for (int rank = begin; rank < end; ++rank) {
    const int of_tile = units(rank);
    own += of_tile;
    longest = max(longest, of_tile);
  }
  int through = own;  // this lane's, and those of the lanes before
#pragma unroll 1
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int before = __shfl_up_sync(kAll, through, lanes);
    if (lane >= lanes) through += before;
    longest = max(longest, __shfl_xor_sync(kAll, longest, lanes));
  }
  const int of_head = __shfl_sync(kAll, through, 31);
  const int all = quotient(arguments.total_tiles, arguments.m_tiles) * of_head;

  Run run;
  // NOTE: a tile that is cut n times has n - 1 whole runs, and a unit at least on either side.
  run.length = max(quotient(all + workers<Config>() - 1, workers<Config>()),
                   quotient(longest - 1 + arguments.partitions - 2, arguments.partitions - 1));
  run.first = worker<Config>() * run.length;
  run.units = min(all - run.first, run.length);
  run.head = quotient(run.first, of_head);
  const int place = run.first - run.head * of_head;
  int cut = place - (through - own), rank = begin;
  const bool mine = cut >= 0 && place < through;
  if (mine) {
#pragma unroll 1
    for (int of_tile; cut >= (of_tile = units(rank)); ++rank) cut -= of_tile;
  }
  const int finder = __ffs(static_cast<int>(__ballot_sync(kAll, mine))) - 1;
  run.rank = __shfl_sync(kAll, rank, finder);
  run.cut = __shfl_sync(kAll, cut, finder);
  return run;
}

/// A CTA's run as work tiles. Which part of its tile a piece of the run is the tile says.
template <class Config, class Mask, class Arguments, class Params>
struct RunList {
  const Arguments& arguments;
  const Params& params;
  Run run;        ///< what is left of it
  int taken = 0;  ///< units of the tile

  /// A whole warp.
  ATTNJIT_DEVICE RunList(const Arguments& launch, const Params& user, int lane)
      : arguments(launch), params(user), run(find_run<Config, Mask>(launch, user, lane)) {}

  ATTNJIT_DEVICE bool done() const { return run.units <= 0; }
  ATTNJIT_DEVICE void advance() {
    run.first += taken;
    run.units -= taken;
    run.cut = 0;
    if (++run.rank < arguments.m_tiles) return;
    run.rank = 0;
    ++run.head;
  }
  ATTNJIT_DEVICE WorkTile tile() {
    WorkTile work = tile_of_head<Config, Mask>(run.head, run.rank, arguments, params);
    const int units = units_of(work);
    taken = min(units - run.cut, run.units);
    work.partition = kWhole;
    if (taken == units) return work;
    work.tile_end -= run.cut;
    work.tile_begin = work.tile_end - taken;
    const int first = run.first - run.cut;
    const int first_run = quotient(first, run.length);
    work.partition = worker<Config>() - first_run;
    if (work.partition > 0) return work;
    const int last_run = quotient(first + units - 1, run.length);
    work.partition = first_of_parts(last_run - first_run + 1);
    return work;
  }
};

}  // namespace attnjit

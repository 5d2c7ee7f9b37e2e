// SPDX-License-Identifier: Apache-2.0
// Where the parts of cut work tiles lie in the workspace, which an attention that cuts tiles
// (common/cuts.cuh, common/work_runs.cuh) and its merge tell each other: as many as there are CTAs,
// whatever the batch.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Whether launches may cut work tiles: the long ones of sequences that differ in length, each
/// where the device finds it best, and otherwise wherever a run of KV tiles ends
/// (common/work_runs.cuh). The plan says so of some configurations alone.
template <class Config>
constexpr bool cuts_tiles() {
  return Config::kCuts;
}

/// WorkTile::partition of a tile that is not cut is kWhole (common/run_marks.cuh), and of a part
/// the slot in which its rows lie. A CTA's run of keys cuts two tiles at most: the one that it
/// begins in, and the one that it ends in. The latter's first part is the run's.
ATTNJIT_DEVICE int cut_slot(int run, bool first) { return 2 * run + (first ? 1 : 0); }
ATTNJIT_DEVICE bool is_first_slot(int slot) { return (slot & 1) != 0; }
/// The slot of a tile's n-th part, whose first one is a run's.
ATTNJIT_DEVICE int slot_of_part(int run, int part) { return cut_slot(run + part, part == 0); }

/// What lies behind the LSEs of the slots, kTileM of each, in words: of each run the rows of the
/// tile that it has the first part of, by their number in the LSE, negative: nobody's; then of each
/// run how many parts that tile has, 0: there is no such tile; and then how many runs there are.
/// `most`: runs that the launch has room for.
template <int kTileM>
struct CutTable {
  int most;

  ATTNJIT_DEVICE i64 lse(int slot, int row) const { return static_cast<i64>(slot) * kTileM + row; }
  ATTNJIT_DEVICE i64 row(int run, int row) const { return lse(2 * most + run, row); }
  ATTNJIT_DEVICE i64 parts(int run) const { return lse(3 * most, run); }
  ATTNJIT_DEVICE i64 runs() const { return lse(3 * most, most); }
};

/// Writes the LSE of a row of a part, the tile's `row`, and with the first part which row that is:
/// number() in the LSE, negative: nobody's.
template <class Config, class Arguments, class Number>
ATTNJIT_DEVICE void place_part(int slot, int row, float lse, const Number& number,
                               const Arguments& arguments) {
  const CutTable<Config::kTileM> table{arguments.partitions};
  arguments.partial_lse[table.lse(slot, row)] = lse;
  if (!is_first_slot(slot)) return;
  arguments.partial_lse[table.row(slot >> 1, row)] =
      __uint_as_float(static_cast<u32>(static_cast<int>(number())));
}

}  // namespace attnjit

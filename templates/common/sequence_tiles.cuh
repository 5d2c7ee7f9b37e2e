// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where sequences differ in length, in tiles of groups of 64 rows: found on the
// device, by the producer's warp.
#pragma once

#include "common/cut_list.cuh"
#include "common/sequences.cuh"
#include "common/work_tiles.cuh"

namespace attnjit {

/// Tiles of kTileM rows; heads that are packed share them.
template <class Config>
struct SequenceTiling {
  static constexpr bool kKvLens = true;
  static constexpr bool kPairTiles = Config::kPairTiles;
  static constexpr bool kPartsOutside = false;
  enum : bool { kHeadsInside = false };
  // Measured of both kinds in one launch, on an H200 at depth 128.
  enum : int { kFewTicks = 2, kFullTicks = 3, kTileTicks = 6, kLongPercent = 110 };
  /// Of a tile, at least; where tiles are cut.
  static constexpr int kTilePositions = ceil_div(Config::kTileM, kPackedHeads<Config>);
  template <class Arguments>
  ATTNJIT_DEVICE static int heads(const Arguments& arguments) {
    return packs_of<Config>(arguments.num_q_heads);
  }
  template <class Arguments>
  ATTNJIT_DEVICE static int tiles(int q_len, const Arguments&) {
    return ceil_div(rows_of_positions<Config>(q_len), Config::kTileM);
  }
  ATTNJIT_DEVICE static bool few_rows(int q_len) {
    return rows_of_positions<Config>(q_len) <= kConsumerRows;
  }
};

/// The first row of a tile of a rank among those of a head with so many rows.
template <class Config>
ATTNJIT_DEVICE int first_row_of_rank(int rows, int rank) {
  return groups_of<Config>(rows) * kConsumerRows - (rank + 1) * Config::kTileM;
}

/// The tile of a rank among those of a sequence's head (or of packed heads, by their number), with
/// the KV tiles that it reaches. `lengths`: a SequenceLengths.
template <class Config, class Mask, class SequenceLengths, class Params>
ATTNJIT_DEVICE WorkTile tile_of_sequence(const SequenceTile& tile, const SequenceLengths& lengths,
                                         const Params& params) {
  WorkTile work;
  work.batch = tile.batch;
  work.head = first_head_of<Config>(tile.head);
  work.first_row = first_row_of_rank<Config>(rows_of_positions<Config>(tile.lengths.q), tile.rank);
  work.q_begin = tile.q_begin;
  work.q_len = tile.lengths.q;
  work.kv_len = tile.lengths.kv;
  work.kv_begin = tile.kv_begin;
  work.partition = tile.partition;
  return kv_tiles_of<Config, Mask>(work, work.first_row, work.first_row + Config::kTileM - 1,
                                   lengths.arguments, params);
}

/// The tiles of sequences as work tiles.
template <class Config, class Mask, class Arguments, class Params,
          class Tiling = SequenceTiling<Config>>
struct SequenceTileList : SequenceList<Config, Mask, Tiling, Arguments, Params> {
  using Base = SequenceList<Config, Mask, Tiling, Arguments, Params>;
  using Base::Base;

  ATTNJIT_DEVICE WorkTile whole(const SequenceTile& tile) const {
    return tile_of_sequence<Config, Mask>(tile, *this, this->params);
  }
  ATTNJIT_DEVICE static void keep(WorkTile& work, int first, int end) {
    const KvTiles kept = from_last({work.tile_begin, work.tile_end}, first, end);
    work.tile_begin = kept.begin;
    work.tile_end = kept.end;
  }
  ATTNJIT_DEVICE WorkTile tile() const {
    WorkTile work = whole(Base::tile());
    if constexpr (Config::kSplit && !Base::kCuts) work = part_of<Config>(work, this->arguments);
    return work;
  }
};

/// The list of a launch of sequences that differ in length.
template <class Config, class Mask, class Arguments, class Params>
using SequenceSchedulerOf =
    Either<cuts_tiles<Config>(),
           CutTileList<Config, Mask, SequenceTiling<Config>, Arguments, Params,
                       SequenceTileList<Config, Mask, Arguments, Params>>,
           SequenceTileList<Config, Mask, Arguments, Params>>;

}  // namespace attnjit

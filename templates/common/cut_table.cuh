// SPDX-License-Identifier: Apache-2.0
// Where the parts of cut work tiles lie in the workspace, which an attention that deals out
// stream-K ranges (common/cuts.cuh, common/work_ranges.cuh, common/sequence_ranges.cuh) and its
// merge agree on: as many as there are CTAs, whatever the batch.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Whether launches may cut work tiles: the long ones of sequences that differ in length, each
/// where the device finds it best, and otherwise wherever a range of KV tiles ends
/// (common/work_ranges.cuh). The plan says so of some configurations alone.
template <class Config>
constexpr bool cuts_tiles() {
  return Config::kCuts;
}
/// Whether CTAs then take what is left whole. Of decodes of as many rows each all is in ranges.
template <class Config>
constexpr bool takes_whole() {
  return Config::kCuts && Config::kRagged;
}
/// The rows of a tile that may be some sequence's, for which a slot has room.
template <class Config>
constexpr int cut_rows() {
  if constexpr (requires { Config::kCutRows; }) return Config::kCutRows;
  return Config::kTileM;
}
/// Whether launches may deal out ranges of sequences that differ in kv_len
/// (common/sequence_ranges.cuh); others of the same kernel have uniform splits.
template <class Config>
constexpr bool deals_ranges() {
  return Config::kStreamK;
}
/// Whether their heads have keys of their own, as a decode's: a team has a CTA for each.
template <class Config>
constexpr bool deals_head_ranges() {
  return Config::kHeadStreamK;
}

/// Whether a launch asks how long its sequences are, and deals out ranges if that is worth it:
/// partitions are then the CTAs (or clusters of them) whose parts the workspace has room for.
/// Otherwise they are the uniform splits.
template <class Arguments>
ATTNJIT_DEVICE bool asks_lengths(const Arguments& arguments) {
  return arguments.partitions > arguments.uniform_splits;
}
/// Whether the parts of a launch of several partitions lie in slots of CTAs; otherwise each
/// partition has a part of each row.
template <class Config, class Arguments>
ATTNJIT_DEVICE bool has_slots(const Arguments& arguments) {
  if constexpr (deals_ranges<Config>()) return asks_lengths(arguments);
  return cuts_tiles<Config>();
}

/// Whether two CTAs of a cluster may have half of a uniform split each, and reduce these
/// (sm90_mla/cluster_reduce.cuh). The launch says so.
template <class Config>
constexpr bool may_reduce_cluster() {
  return Config::kClusterReduces;
}
template <class Config, class Arguments>
ATTNJIT_DEVICE bool reduces_cluster(const Arguments& arguments) {
  if constexpr (may_reduce_cluster<Config>()) return arguments.cluster_reduced != 0;
  return false;
}
/// Then WorkTile::partition is that of the split, and this.
constexpr int kClusterReduced = 1 << 16;

/// WorkTile::partition where tiles may be cut: of one that is not, of the first of n > 1 parts, and
/// of a later one. NOTE: one number, which takes a register while the tile is computed.
constexpr int kWhole = -1;
constexpr int kLaterPart = 0;
constexpr int first_of_parts(int n) { return -n; }
constexpr bool is_first(int partition) { return partition < 0; }

/// A CTA's range of keys cuts two tiles at most: the one that it begins in, and the one that it
/// ends in, whose first part is the range's. So there are two slots, of cut_rows() each. Behind
/// their LSEs lie, in words: of each range the rows of the tile that it has the first part of, by
/// their number in the LSE, negative: nobody's; and then of each range how many parts that tile
/// has. `most`: ranges that the launch has room for.
template <int kRows>
struct CutTable {
  int most;

  /// The second slot is that of first parts.
  ATTNJIT_DEVICE static i64 lse(int range, bool first, int row) {
    return (2 * static_cast<i64>(range) + (first ? 1 : 0)) * kRows + row;
  }
  ATTNJIT_DEVICE i64 row(int range, int row) const {
    return lse(most, false, 0) + range * kRows + row;
  }
  ATTNJIT_DEVICE i64 parts(int range) const { return row(most, range); }
};

/// Before a CTA's work, a warp says that its range cuts no tile. CTAs of a cluster have a range
/// together, and the rows of a part each.
template <class Config, class Arguments>
ATTNJIT_DEVICE void clear_table(const Arguments& arguments, int lane) {
  constexpr int kRows = cut_rows<Config>() / Config::kCluster;
  const CutTable<cut_rows<Config>()> table{arguments.partitions};
  const int cta = static_cast<int>(blockIdx.x);
  u32* const words = reinterpret_cast<u32*>(arguments.partial_lse);
#pragma unroll 1
  for (int row = lane; row < kRows; row += 32) words[table.row(0, cta * kRows + row)] = ~0u;
  if (lane == 0 && cta % Config::kCluster == 0) words[table.parts(cta / Config::kCluster)] = 0;
  __syncwarp();
}

}  // namespace attnjit

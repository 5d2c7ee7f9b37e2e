// SPDX-License-Identifier: Apache-2.0
// What a kernel that deals out runs of sequences (common/sequence_runs.cuh) and its merge tell each
// other.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Whether launches may deal out runs of sequences that differ in kv_len: partitions are then the
/// parts that a work tile may have. The plan says so of some configurations alone.
template <class Config>
constexpr bool deals_runs() {
  return Config::kRuns;
}

/// Whether their heads have keys of their own, as a decode's: a team has a CTA for each.
template <class Config>
constexpr bool deals_head_runs() {
  return Config::kHeadRuns;
}

/// WorkTile::partition where a launch deals out runs: that of a work tile which is not cut, and of
/// the first of n > 1 parts. NOTE: one number, which takes a register while the tile is computed.
constexpr int kWhole = -1;
constexpr int first_of_parts(int n) { return -n; }
ATTNJIT_DEVICE int parts_from_first(int partition) { return -partition; }

/// Whether two CTAs of a cluster may have half of an even part each, and join these
/// (sm90_mla/join.cuh). The launch says so.
template <class Config>
constexpr bool may_join() {
  return Config::kJoins;
}
template <class Config, class Arguments>
ATTNJIT_DEVICE bool joins(const Arguments& arguments) {
  if constexpr (may_join<Config>()) return arguments.joined != 0;
  return false;
}
/// Then WorkTile::partition is that of the part, and this.
constexpr int kJoined = 1 << 16;

/// Whether a launch asks how long its sequences are, and deals out runs if they differ. Where its
/// partitions are the even parts it does neither.
template <class Arguments>
ATTNJIT_DEVICE bool asks_lengths(const Arguments& arguments) {
  return arguments.partitions > arguments.even_parts;
}
/// Then behind the LSEs of all parts: no row is cut, so that the merge has nothing to do. Of any
/// other value some may be.
constexpr u32 kNoneIsCut = 0x7fc0a11fu;
/// There, of runs of heads: each row has all the even parts, and no mark of its own.
constexpr u32 kEvenParts = 0x7fc0a11du;

/// In the place of the LSE of a row's first part: the row is written. A NaN that no sum gives.
constexpr u32 kRowIsWritten = 0x7fc0a11eu;
ATTNJIT_DEVICE float row_is_written() { return __uint_as_float(kRowIsWritten); }
ATTNJIT_DEVICE bool is_written(float lse) { return __float_as_uint(lse) == kRowIsWritten; }

}  // namespace attnjit

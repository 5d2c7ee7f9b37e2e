// SPDX-License-Identifier: Apache-2.0
// How the producer tells the consumers of the KV tiles of a list, and the rows that it lists them
// for.
#pragma once

#include "common/tile_list.cuh"
#include "sm90/work.cuh"

namespace attnjit::sm90 {

static_assert(TileNote::kMaxGroups == kMaxConsumers, "a note has two bits for each consumer");

/// The rows of a work tile, a group a consumer.
template <class Config, class Arguments>
struct ConsumerRows {
  static constexpr int kGroups = Config::kConsumers;
  const WorkTile& work;
  const Arguments& arguments;

  ATTNJIT_DEVICE TileCoord tile() const {
    const Lengths lengths = lengths_of<Config>(work, arguments);
    TileCoord at;
    at.b = work.batch;
    at.kv_h = work.head / Config::kGroup;
    at.h = {work.head, work.head + kPackedHeads<Config> - 1};
    at.q_len = lengths.q;
    at.kv_len = lengths.kv;
    return at;
  }
  /// Rows before position 0 are none.
  ATTNJIT_DEVICE IntRange q_idx(int consumer) const {
    const Lengths lengths = lengths_of<Config>(work, arguments);
    const int first = work.first_row + consumer * kConsumerRows;
    const int last = min(first + kConsumerRows, lengths.q << Config::kGqaShift) - 1;
    if (last < 0) return {0, -1};
    return {(max(first, 0) >> Config::kGqaShift) + lengths.first_q_idx(),
            (last >> Config::kGqaShift) + lengths.first_q_idx()};
  }
};

/// What the producer told of a K tile, for a whole warp. NOTE: lane 0 alone reads, because it is
/// lane 0 that hands K back: an arrival orders its own thread's reads.
ATTNJIT_DEVICE TileNote load_note(u32 address, int lane) {
  u32 word = 0;
  if (lane == 0) word = load_shared_word(address);
  return {static_cast<u32>(warp_uniform(static_cast<int>(word)))};
}

}  // namespace attnjit::sm90

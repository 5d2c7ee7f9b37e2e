// SPDX-License-Identifier: Apache-2.0
// How the producer publishes the KV tiles of a list to the consumers, and the rows that it lists
// them for.
#pragma once

#include "common/tile_list.cuh"
#include "maps/block_mask_list.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90 {

static_assert(TileDescriptor::kMaxGroups == kMaxConsumers,
              "a descriptor has two bits for each consumer");

/// The rows of a work tile, a group a consumer.
template <class Config, class Arguments>
struct ConsumerRows {
  static constexpr int kGroups = Config::kConsumers;
  const WorkTile& work;
  const Arguments& arguments;

  ATTNJIT_DEVICE TileCoord tile() const {
    return rows_of<Config>(work.batch, work.head, 0, -1, lengths_of<Config>(work, arguments));
  }
  ATTNJIT_DEVICE IntRange q_idx(int consumer) const {
    return q_idx_of(first_row_of<Config>(work, consumer), kConsumerRows);
  }
  ATTNJIT_DEVICE IntRange all_q_idx() const {
    return q_idx_of(work.first_row + work.idle * kConsumerRows,
                    (kGroups - work.idle) * kConsumerRows);
  }

 private:
  /// Rows before position 0 are none.
  ATTNJIT_DEVICE IntRange q_idx_of(int first, int count) const {
    const Lengths lengths = lengths_of<Config>(work, arguments);
    const int last = min(first + count, rows_of_positions<Config>(lengths.q)) - 1;
    if (last < 0) return {0, -1};
    const int last_of_unit = last_position<Config>(last);
    return {first_position<Config>(max(first, 0)) + lengths.first_q_idx(),
            (packs_units<Config>() ? min(last_of_unit, lengths.q - 1) : last_of_unit) +
                lengths.first_q_idx()};
  }
};

/// The row of a map's blocks that a work tile's rows are of.
template <class Config, class Arguments>
ATTNJIT_DEVICE i64 map_row(const WorkTile& work, const Arguments& arguments) {
  const int batch = arguments.map_batches == 1 ? 0 : work.batch;
  const int head = quotient(work.head, arguments.heads_per_map);
  const int block = first_position<Config>(work.first_row) / kMaskBlock;
  return (static_cast<i64>(batch) * arguments.map_heads + head) * arguments.map_q_blocks + block;
}

/// What the producer publishes of a KV tile.
template <class Config>
using DescriptorOf = Either<Config::kBlockMaskBits, BlockMaskDescriptor, TileDescriptor>;

/// What the producer published with a K tile, in a warp's lane 0. NOTE: it alone reads, because it
/// is lane 0 that releases K: an arrival orders its own thread's reads.
template <class Descriptor>
ATTNJIT_DEVICE Descriptor load_descriptor(u32 address, int lane) {
  Descriptor descriptor;
  descriptor.word = lane == 0 ? load_shared_word(address) : 0u;
  if constexpr (Descriptor::kHasBits)
    descriptor.bits = lane == 0 ? load_shared_word(address + 4) : 0u;
  return descriptor;
}
template <class Descriptor>
ATTNJIT_DEVICE void store_descriptor(u32 address, Descriptor descriptor) {
  store_shared_word(address, descriptor.word);
  if constexpr (Descriptor::kHasBits) store_shared_word(address + 4, descriptor.bits);
}
/// What one lane has read for the whole warp.
template <class Descriptor>
ATTNJIT_DEVICE Descriptor descriptor_of_warp(Descriptor descriptor) {
  descriptor.word = static_cast<u32>(warp_uniform(static_cast<int>(descriptor.word)));
  if constexpr (Descriptor::kHasBits) {
    descriptor.bits = static_cast<u32>(warp_uniform(static_cast<int>(descriptor.bits)));
  }
  return descriptor;
}

/// A work tile is published with its first KV tile's descriptor, in the place of the numbers of its
/// tiles.
template <class Descriptor>
ATTNJIT_DEVICE void set_first_descriptor(WorkTile& work, Descriptor descriptor) {
  work.tile_end = static_cast<int>(descriptor.word);
  if constexpr (Descriptor::kHasBits) work.tile_begin = static_cast<int>(descriptor.bits);
}
template <class Descriptor>
ATTNJIT_DEVICE Descriptor first_descriptor(const WorkTile& work) {
  Descriptor descriptor;
  descriptor.word = static_cast<u32>(work.tile_end);
  if constexpr (Descriptor::kHasBits) descriptor.bits = static_cast<u32>(work.tile_begin);
  return descriptor;
}

}  // namespace attnjit::sm90

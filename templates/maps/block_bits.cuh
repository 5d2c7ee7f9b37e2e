// SPDX-License-Identifier: Apache-2.0
// The bits of a map: of blocks that are seen in part, which of their scores are visible.
//
// A kernel that walks the map reads them in the place of asking the mask. Arguments has
//   int* kv_bits                    of each place of kv_indices a BlockDescriptor
//   u32* block_bits, int bit_blocks   bits of as many blocks; 0: the map has none
// A block's bits are four words of each of its rows. They are in the order in which the lanes of a
// quad hold a row (common/quad_columns.cuh): bit i of word q is that of column 8 (i / 2) + 2 q +
// i % 2. Those of rows and keys that the sequence has not are 0.
#pragma once

#include "common/quad_columns.cuh"
#include "common/ranges.cuh"
#include "maps/map_rows.cuh"

namespace attnjit {

constexpr int kRowWords = kQuad;
constexpr int kBlockWords = kMaskBlock * kRowWords;
static_assert(kRowWords * 32 == kMaskBlock, "a bit a column");

constexpr int kQuarterSide = kMaskBlock / 2;
constexpr int kBlockPlaceShift = 8;

/// What is known of a block that is seen in part, in a word: where its bits lie, and what they come
/// to in each quarter of 64 queries and 64 keys.
struct BlockDescriptor {
  u32 word = ~0u;  ///< nothing is known

  ATTNJIT_DEVICE static constexpr u32 seen(int quarter) { return 1u << 2 * quarter; }
  ATTNJIT_DEVICE static constexpr u32 whole(int quarter) { return 2u << 2 * quarter; }
  ATTNJIT_DEVICE static BlockDescriptor of(u32 place, u32 quarters) {
    return {place << kBlockPlaceShift | quarters};
  }
  ATTNJIT_DEVICE u32 place() const { return word >> kBlockPlaceShift; }
  /// NOTE: what stands in a map is not believed.
  ATTNJIT_DEVICE bool has_bits(int bit_blocks) const {
    return place() < static_cast<u32>(bit_blocks);
  }
  /// What is visible of rows and columns [first, last] of the block.
  ATTNJIT_DEVICE IntRange visible(int first_row, int last_row, int first_column,
                                  int last_column) const {
    bool all = true, any = false;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const int row = quarter / 2 * kQuarterSide, column = quarter % 2 * kQuarterSide;
      const bool touched = first_row < row + kQuarterSide && last_row >= row &&
                           first_column < column + kQuarterSide && last_column >= column;
      any |= touched && (word & seen(quarter)) != 0;
      all &= !touched || (word & whole(quarter)) != 0;
    }
    return truth(all, any);
  }
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// A map of a mask: which blocks of kMaskBlock queries and kMaskBlock keys it shows, in the arrays
// of FlexAttention's BlockMask.
//
// Of each row of blocks there are two lists: blocks of which a part is seen (kv_num_blocks of them,
// in kv_indices), and blocks that are seen whole (full_kv_num_blocks, full_kv_indices). Arguments
// has
//   int *kv_num_blocks, *kv_indices, *full_kv_num_blocks, *full_kv_indices
//   int map_q_blocks, map_kv_blocks    rows of blocks of a head, and the places of a row's list
// A row of blocks counts rows within the call's sequence; q_idx plays no part.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Queries, and keys, of a block.
constexpr int kMaskBlock = 128;

/// One of the two lists of a row of blocks. What it says is not believed: a count is kept within
/// the row's places; who reads an entry checks that there is such a block.
struct BlockEntries {
  const int* entries;
  int count;

  ATTNJIT_DEVICE static BlockEntries of(const int* counts, const int* indices, i64 row,
                                        int places) {
    // NOTE: a map may lack the list of whole blocks.
    const int count = counts == nullptr ? 0 : min(max(counts[row], 0), places);
    return {indices + row * places, count};
  }
};

}  // namespace attnjit

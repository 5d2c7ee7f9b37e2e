// SPDX-License-Identifier: Apache-2.0
// A block of a work tile's list, in a word: which it is, and what is known of it.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Of each of up to two rows of blocks whether a part is seen, and whether all is.
struct ListedBlock {
  u32 word;

  ATTNJIT_DEVICE static constexpr u32 seen(int row) { return 1u << 2 * row; }
  ATTNJIT_DEVICE static constexpr u32 whole(int row) { return 2u << 2 * row; }
  ATTNJIT_DEVICE static ListedBlock of(int block, u32 bits) {
    return {static_cast<u32>(block) << 4 | bits};
  }
  ATTNJIT_DEVICE int block() const { return static_cast<int>(word >> 4); }
  ATTNJIT_DEVICE bool is_seen(int row) const { return (word & seen(row)) != 0; }
  ATTNJIT_DEVICE bool is_whole(int row) const { return (word & whole(row)) != 0; }
};

}  // namespace attnjit

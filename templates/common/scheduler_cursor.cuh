// SPDX-License-Identifier: Apache-2.0
// Where a tile scheduler stands, in shared memory while its warp copies.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Where a scheduler stands: as much of it as a warp keeps that has no registers for it meanwhile.
struct SchedulerCursor {
  int words[4];
};
constexpr int kCursorBytes = 16;

/// Stashes a cursor in kCursorBytes of shared memory; a thread. And finds it there.
ATTNJIT_DEVICE void stash_cursor(u32 address, const SchedulerCursor& cursor) {
  store_shared_v4(address, cursor.words[0], cursor.words[1], cursor.words[2], cursor.words[3]);
}
ATTNJIT_DEVICE SchedulerCursor stashed_cursor(u32 address) {
  int a, b, c, d;
  load_shared_v4(address, a, b, c, d);
  return {{a, b, c, d}};
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Where a list of work stands, in shared memory while its warp copies.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Where a list stands: as much of it as a warp keeps that has no registers for it meanwhile.
struct ListPlace {
  int words[4];
};
constexpr int kListBytes = 16;

/// Stashes a place in kListBytes of shared memory; a thread. And finds it there.
ATTNJIT_DEVICE void stash_place(u32 address, const ListPlace& place) {
  store_shared_v4(address, place.words[0], place.words[1], place.words[2], place.words[3]);
}
ATTNJIT_DEVICE ListPlace stashed_place(u32 address) {
  int a, b, c, d;
  load_shared_v4(address, a, b, c, d);
  return {{a, b, c, d}};
}

}  // namespace attnjit

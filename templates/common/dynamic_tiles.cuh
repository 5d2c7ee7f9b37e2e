// SPDX-License-Identifier: Apache-2.0
// Dynamic scheduling of a launch's tiles: each CTA takes its next tile when it has done with the
// one before, from the front of the list or from its back, until the two meet.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// In a workspace that is zero before the first launch; each launch leaves it zero. So launches
/// that share one follow one another.
struct TileCounters {
  u64 taken;  ///< from the front in the low word, from the back in the high one
  u32 ended;  ///< CTAs that take no more
};

/// Whether a kernel's CTAs take tiles from counters, where the launch has them.
template <class Arguments>
constexpr bool dynamic_tiles() {
  return requires(const Arguments& launch) { launch.tile_counters; };
}

/// What a CTA takes, after its first tile, which its number says. A converged warp. NOTE: what is
/// asked once for each tile lies in one register, in a lane each: the warp has few.
struct DynamicTiles {
  int numbers;  ///< lane 0: tiles of the list; 1: CTAs that begin at its front, others at its back

  ATTNJIT_DEVICE static DynamicTiles of(int tiles, int front, int lane) {
    return {lane == 0 ? tiles : front};
  }
  ATTNJIT_DEVICE int tiles() const { return __shfl_sync(0xffffffffu, numbers, 0); }
  ATTNJIT_DEVICE int front() const { return __shfl_sync(0xffffffffu, numbers, 1); }

  /// The first tile; negative: there is none left.
  ATTNJIT_DEVICE int first(int cta) const {
    if (cta < front()) return cta < tiles() ? cta : -1;
    const int index = tiles() - 1 - (cta - front());
    return index < front() ? -1 : index;  // those are the front's
  }
  /// The next one; negative: all are taken.
  ATTNJIT_DEVICE int next(TileCounters* counters, int lane, int cta, int ctas) const {
    const bool from_back = cta >= front();
    u64 before = 0;
    if (lane == 0) before = atomic_add(&counters->taken, from_back ? 1ull << 32 : 1ull);
    // NOTE: the sum cannot overflow: no CTA asks again that got none; tiles are 2^30 at most.
    const int at_front = front() + __shfl_sync(0xffffffffu, static_cast<int>(before), 0);
    const int at_back =
        ctas - front() + __shfl_sync(0xffffffffu, static_cast<int>(before >> 32), 0);
    if (at_front + at_back >= tiles()) return -1;
    return from_back ? tiles() - 1 - at_back : at_front;
  }
  /// The same where all CTAs begin at the front: which tile beyond their first ones. One thread.
  ATTNJIT_DEVICE static u64 at_front(TileCounters* counters) {
    return atomic_add(&counters->taken, 1ull);
  }
  /// After the CTA's last tile: the launch's last CTA makes the counters zero. NOTE: an acquire and
  /// a release, so that it does that after all others have taken theirs.
  ATTNJIT_DEVICE static void end(TileCounters* counters, int lane, int ctas) {
    if (lane != 0) return;
    if (atomic_add_acq_rel(&counters->ended, 1) != static_cast<u32>(ctas) - 1) return;
    counters->taken = 0;
    counters->ended = 0;
  }
};

}  // namespace attnjit

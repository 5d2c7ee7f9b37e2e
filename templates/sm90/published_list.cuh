// SPDX-License-Identifier: Apache-2.0
// A CTA's work as each of the producer's warps walks it, where several copy K and V: the first one
// finds it, and publishes it to the others.
#pragma once

#include "sm90/layout.cuh"

namespace attnjit::sm90 {

/// List: a tile list that goes on by next() (common/cut_list.cuh); the first warp's alone.
template <class Config, class List>
struct PublishedList {
  List list;
  const Smem<Config>& smem;
  int warp;
  int lane;
  WorkTile published = {};
  int slot = 0;

  /// Goes to the next work tile, at first to the first; false: there is none. All the warps. NOTE:
  /// the first may be a tile ahead of who still reads, and no more: it waits for all at the next.
  ATTNJIT_DEVICE bool next() {
    const u32 place = smem.published(slot);
    slot ^= 1;
    if (warp == 0) {
      WorkTile found{-1, 0, 0, 0, 0};
      if (list.next()) found = list.tile();
      if (lane == 0) {
        store_work<Config>(place, found);
        store_shared_word(place + kFirstKey, static_cast<u32>(found.first_key));
      }
    }
    __syncwarp();
    named_barrier_sync(kPublishBarrier, 32 * kRowCopyWarps);
    published = load_work<Config>(place, lane);
    u32 first_key = 0;
    if (lane == 0) first_key = load_shared_word(place + kFirstKey);
    published.first_key = warp_uniform(static_cast<int>(first_key));
    return published.batch >= 0;
  }
  ATTNJIT_DEVICE const WorkTile& tile() const { return published; }
  /// After the last tile.
  ATTNJIT_DEVICE void end() const {
    if (warp == 0) list.end();
  }

 private:
  static constexpr int kFirstKey = 36;  // behind what store_work() stores
  static_assert(kFirstKey + 4 <= kPublishBytes && Config::kSplit);
};

}  // namespace attnjit::sm90

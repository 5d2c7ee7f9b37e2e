// SPDX-License-Identifier: Apache-2.0
// The work of a CTA in a launch of sequences of one length, where its tiles are dynamic.
#pragma once

#include "common/dynamic_tiles.cuh"
#include "common/near_heads.cuh"
#include "common/work_tiles.cuh"

namespace attnjit::sm90 {

/// Tiles that are taken from counters: from the front of one list, of which a launch without a
/// workspace deals each CTA every gridDim.x-th. Of so many heads together as L2 has near room for,
/// tiles are sorted by their rank: those of one rank are about as long as one another, and where
/// later rows see more the short ones come last.
template <class Config, class Mask, class Arguments, class Params>
struct DynamicScheduler {
  const Arguments& arguments;
  const Params& params;
  int lane;
  int index;
  u64 taken = 0;  ///< lane 0: what fetch_next() has found

  ATTNJIT_DEVICE DynamicScheduler(const Arguments& launch, const Params& user, int lane_of_warp)
      : arguments(launch), params(user), lane(lane_of_warp), index(worker<Config>()) {}

  ATTNJIT_DEVICE bool done() const { return index >= arguments.total_tiles; }
  /// Takes the tile that advance() goes to: nobody waits for the answer before.
  ATTNJIT_DEVICE void fetch_next() {
    if (arguments.tile_counters != nullptr && lane == 0)
      taken = DynamicTiles::at_front(arguments.tile_counters);
  }
  ATTNJIT_DEVICE void advance() {
    if (arguments.tile_counters == nullptr) {
      index += workers<Config>();
    } else {
      index = workers<Config>() + __shfl_sync(0xffffffffu, static_cast<int>(taken), 0);
    }
  }
  ATTNJIT_DEVICE void end() const {
    if (arguments.tile_counters != nullptr)
      DynamicTiles::end(arguments.tile_counters, lane, workers<Config>());
  }

  ATTNJIT_DEVICE WorkTile tile() const {
    const int tiles = arguments.m_tiles;
    const int heads = quotient(arguments.total_tiles, tiles);
    const NearHeads near = NearHeads::of<Config>(index, tiles, heads, arguments.kv_len);
    const int rank = near.rank();
    return tile_of_head<Config, Mask>(near.head(rank), rank, arguments, params);
  }
};

/// The list of a warp, of which without counters each lane walks all.
template <class Config, class Mask, class Arguments, class Params>
using WarpScheduler =
    Either<dynamic_tiles<Arguments>(), DynamicScheduler<Config, Mask, Arguments, Params>,
           StaticScheduler<Config, Mask, Arguments, Params>>;

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// Copies of K and V by TMA by a warp that lists KV tiles, where each is one box: sequences have one
// length, and nothing is rewritten on its way.
#pragma once

#include "sm90/tile_descriptors.cuh"

namespace attnjit::sm90 {

/// Whether listed tiles are copied so.
template <class Config>
inline constexpr bool kListsBoxes =
    Config::kBlockSparse && !kLengthsDiffer<Config> && !LayoutOf<Config>::kHasRawTiles;

/// Where a KV tile lies. It outlives the work tile that asks for it, whose last V comes later.
struct TilePlace {
  int tile = -1;  ///< negative: nowhere
  int kv_head = 0;
  int batch = 0;

  ATTNJIT_DEVICE bool is_tile() const { return tile >= 0; }
};

template <class Config, class Arguments>
struct TileCopies {
  using Layout = LayoutOf<Config>;

  const Smem<Config>& smem;
  const Arguments& arguments;
  Ring k_ring = {};
  Ring v_ring = {};
  u64 policy = kv_policy(kPackedHeads<Config> == Config::kGroup &&
                         rows_of_positions<Config>(arguments.q_len) <= Config::kTileM);

  /// Loads the next K when there is room for it, and says with it which tile comes after.
  template <class Descriptor>
  ATTNJIT_DEVICE void load_k(const TilePlace& place, Descriptor after) {
    const int stage = k_ring.stage;
    smem.wait(smem.k_empty(stage), k_ring.parity ^ 1);
    if (elect_one()) {
      store_descriptor(smem.descriptor(stage), after);
      load<CopiesOf<Config, true>>(stage, arguments.k_map, place);
    }
    __syncwarp();
    k_ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void load_v(const TilePlace& place) {
    const int stage = v_ring.stage;
    smem.wait(smem.v_empty(stage), v_ring.parity ^ 1);
    if (elect_one()) load<CopiesOf<Config, false>>(stage, arguments.v_map, place);
    __syncwarp();
    v_ring.advance(Config::kVStages);
  }

 private:
  /// One thread.
  template <class Copies>
  ATTNJIT_DEVICE void load(int stage, const TensorMap* map, const TilePlace& place) {
    Copies::load(Copies::data(smem, stage), map, Copies::full(smem, stage), place.tile,
                 place.kv_head, place.batch, policy);
  }
};

}  // namespace attnjit::sm90

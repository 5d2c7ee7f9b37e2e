// SPDX-License-Identifier: Apache-2.0
// The pipeline of K and V tiles through shared memory: one type for both (after Modular's
// TMAConsumerPipeline), in two rings of stages, or in one ring of slots that K and V share.
#pragma once

#include "common/ring.cuh"
#include "sm100/layout.cuh"

namespace attnjit::sm100 {

/// A tile of K (kIsK; K-major, in kQkStages chunks) or of V (MN-major, whole) in its stage.
template <class Config, bool kIsK>
struct KvTile {
  using Layout = LayoutOf<Config>;
  static constexpr int kChunks = kIsK ? Config::kQkStages : 1;
  static constexpr int kBlocks = kIsK ? Layout::kQkBlocks : Layout::kVBlocks;  ///< of this CTA
  static constexpr int kBlockBytes = kIsK ? Layout::kKBlockBytes : Layout::kVBlockBytes;
  static constexpr int kChunkBytes =
      kIsK && Layout::kSeparateRope ? Layout::kKTileBytes : kBlocks / kChunks * kBlockBytes;
  static constexpr u32 kEmptyAfterFull =
      8 * (kIsK ? Config::kBarKCons - Config::kBarKProd : Config::kBarVCons - Config::kBarVProd);

  u32 data;      ///< where its stage begins
  u32 rope;      ///< K with a rope part apart: where that begins
  u32 barriers;  ///< the full barrier of its first chunk
  int parity;    ///< of the full barriers

  /// Where column block `block` begins.
  ATTNJIT_DEVICE u32 block(int block) const {
    if (kIsK && block >= Layout::kKStageBlocks) {
      return rope + static_cast<u32>((block - Layout::kKStageBlocks) * kBlockBytes);
    }
    return data + static_cast<u32>(block * kBlockBytes);
  }
  /// Where the rope part begins that has a type of its own.
  ATTNJIT_DEVICE u32 separate_rope() const {
    return Config::kRopeBuffers > 0 ? rope
                                    : data + static_cast<u32>(Layout::kQkBlocks * kBlockBytes);
  }
  ATTNJIT_DEVICE u32 full(int chunk) const { return barriers + static_cast<u32>(8 * chunk); }
  ATTNJIT_DEVICE u32 empty(int chunk) const { return full(chunk) + kEmptyAfterFull; }

  /// Producer: waits until the stage is free. NOTE: an empty barrier's first wait is for the parity
  /// before its first phase.
  ATTNJIT_DEVICE void acquire(const Smem<Config>& smem, int chunk) const {
    smem.wait(empty(chunk), parity ^ 1);
  }
  /// Consumer: waits until a chunk has landed.
  ATTNJIT_DEVICE void wait(const Smem<Config>& smem, int chunk) const {
    smem.wait(full(chunk), parity);
  }
  /// Consumer: gives a chunk back when this thread's products so far have read it.
  ATTNJIT_DEVICE void release(int chunk) const { tcgen05_commit<Layout::kPair>(empty(chunk)); }
};

/// The order of tiles through the stages, the same for the producer and the consumer: every K and
/// every V tile is taken once, in one order. Where the rings lie, and how long they are, is one of
/// the plan's two layouts: a launch with one query tile has the other's memory for stages.
template <class Config>
struct KvSequence {
  using Layout = LayoutOf<Config>;

  const Smem<Config>& smem;
  int stages, rope_buffers;
  u32 k_data, v_data, rope_data;
  Ring k_ring, v_ring;
  int rope = 0;

  ATTNJIT_DEVICE KvSequence(const Smem<Config>& memory, bool one_query) : smem(memory) {
    stages = Config::kStages;
    rope_buffers = Config::kRopeBuffers;
    int k = Config::kKOffset, v = Config::kVOffset, rope_part = Config::kKRopeOffset;
    if constexpr (Config::kSwitchTo1Q) {
      if (one_query) {
        stages = Config::kStages1Q;
        rope_buffers = Config::kRopeBuffers1Q;
        k = Config::kKOffset1Q;
        v = Config::kVOffset1Q;
        rope_part = Config::kKRopeOffset1Q;
      }
    }
    k_data = smem.base + static_cast<u32>(k);
    v_data = smem.base + static_cast<u32>(v);
    rope_data = smem.base + static_cast<u32>(rope_part);
  }

  template <bool kIsK>
  ATTNJIT_DEVICE KvTile<Config, kIsK> next() {
    using Tile = KvTile<Config, kIsK>;
    // In a fused ring K and V take slots as they come.
    Ring& ring = kIsK || Config::kFusedKv ? k_ring : v_ring;
    Tile tile;
    tile.data = (kIsK ? k_data : v_data) +
                static_cast<u32>(ring.stage * (kIsK ? Config::kKStageBytes : Config::kVStageBytes));
    tile.barriers =
        smem.barrier((kIsK ? Config::kBarKProd : Config::kBarVProd) + ring.stage * Tile::kChunks);
    tile.parity = ring.parity;
    tile.rope = 0;
    if constexpr (kIsK && Config::kRopeBuffers > 0) {
      // NOTE: a rope buffer is free whenever its K's slot is. From a K to the one that takes its
      // buffer next there are 2 kRopeBuffers - 1 slots at least (two Ks may follow one another at
      // the begin of a work tile), so the slot of the former has been taken since, or is this one.
      static_assert(2 * Config::kRopeBuffers - 1 >= Config::kStages,
                    "a K's rope buffer is not taken before its slot");
      tile.rope = rope_data + static_cast<u32>(rope * Layout::kRopeBytes);
      rope = rope + 1 == rope_buffers ? 0 : rope + 1;
    }
    ring.advance(stages);
    return tile;
  }

  /// Passes over `tiles` K and as many V, whose rope parts are not asked for.
  ATTNJIT_DEVICE void skip(int tiles) {
    k_ring.skip(Config::kFusedKv ? 2 * tiles : tiles, stages);
    if constexpr (!Config::kFusedKv) v_ring.skip(tiles, stages);
  }
};

}  // namespace attnjit::sm100

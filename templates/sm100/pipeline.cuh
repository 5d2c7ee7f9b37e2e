// The pipeline of K and V tiles through shared memory: one type for both (after Modular's
// TMAConsumerPipeline), in two rings of stages, or in one ring of slots that K and V share.
#pragma once

#include "sm100/layout.cuh"

namespace attnjit::sm100 {

/// Where a ring stands: the stage to use next, and the parity of its full barrier.
template <int kStages>
struct Ring {
  int stage = 0;
  int parity = 0;

  ATTNJIT_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// A tile of K (kIsK; K-major, in kQkStages chunks) or of V (MN-major, whole) in its stage.
template <class Config, bool kIsK>
struct KvTile {
  using L = Layout<Config>;
  static constexpr int kChunks = kIsK ? Config::kQkStages : 1;
  static constexpr int kBlocks = kIsK ? L::kQkBlocks : L::kOvBlocks;
  static constexpr int kChunkBytes = kBlocks / kChunks * L::kKvBlockBytes;
  static constexpr int kFull = kIsK ? Config::kBarKProd : Config::kBarVProd;
  static constexpr int kEmpty = kFull + Config::kStages * kChunks;

  Smem<Config> smem;
  int stage, parity;
  int rope;  ///< K: the buffer of its rope part

  /// Where column block `block` begins.
  ATTNJIT_DEVICE u32 block(int block) const {
    if constexpr (kIsK && Config::kRopeBuffers > 0) {
      if (block >= L::kKStageBlocks) {
        return smem.base + static_cast<u32>(Config::kKRopeOffset + rope * L::kRopeBytes +
                                            (block - L::kKStageBlocks) * L::kKvBlockBytes);
      }
    }
    constexpr int kStage = kIsK ? Config::kKStageBytes : Config::kVStageBytes;
    constexpr int kOffset = kIsK ? Config::kKOffset : Config::kVOffset;
    return smem.base + static_cast<u32>(kOffset + stage * kStage + block * L::kKvBlockBytes);
  }
  ATTNJIT_DEVICE u32 full(int chunk) const { return smem.barrier(kFull + stage * kChunks + chunk); }
  ATTNJIT_DEVICE u32 empty(int chunk) const {
    return smem.barrier(kEmpty + stage * kChunks + chunk);
  }

  /// Producer: waits until the stage is free. NOTE: an empty barrier's first wait is for the parity
  /// before its first phase.
  ATTNJIT_DEVICE void acquire(int chunk) const { mbarrier_wait(empty(chunk), parity ^ 1); }
  /// Producer: announces a chunk's bytes.
  ATTNJIT_DEVICE void expect(int chunk) const {
    mbarrier_arrive_expect_tx(full(chunk), kChunkBytes);
  }
  /// Consumer: waits until a chunk has landed.
  ATTNJIT_DEVICE void wait(int chunk) const { mbarrier_wait(full(chunk), parity); }
  /// Consumer: gives a chunk back when this thread's products so far have read it.
  ATTNJIT_DEVICE void release(int chunk) const { tcgen05_commit(empty(chunk)); }
};

/// The order of tiles through the stages, the same for the producer and the consumer: every K and
/// every V tile is taken once, in one order.
template <class Config>
struct KvSequence {
  Smem<Config> smem;
  Ring<Config::kStages> k_ring;
  Ring<Config::kStages> v_ring;
  int rope = 0;

  ATTNJIT_DEVICE explicit KvSequence(const Smem<Config>& memory) : smem(memory) {}

  template <bool kIsK>
  ATTNJIT_DEVICE KvTile<Config, kIsK> next() {
    // In a fused ring K and V take slots by turns.
    Ring<Config::kStages>& ring = kIsK || Config::kFusedKv ? k_ring : v_ring;
    KvTile<Config, kIsK> tile{smem, ring.stage, ring.parity, rope};
    ring.advance();
    if constexpr (kIsK && Config::kRopeBuffers > 0) {
      // NOTE: a rope buffer is free whenever its K's slot is: K takes every other slot, so the tile
      // that used the buffer last was in a slot that has been taken since.
      static_assert(Config::kNumQo == 2 && 2 * Config::kRopeBuffers >= Config::kStages,
                    "a rope buffer for every other slot of a ring that K and V take by turns");
      rope = rope + 1 == Config::kRopeBuffers ? 0 : rope + 1;
    }
    return tile;
  }
};

}  // namespace attnjit::sm100

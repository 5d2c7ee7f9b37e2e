// SPDX-License-Identifier: Apache-2.0
// The two warps that issue products: one S = Q K^T, as blocks of K land; the other O += P V, when P
// is there. Neither waits for the other's turn, so that V is released as early as can be.
#pragma once

#include "sm100_mla/layout.cuh"

namespace attnjit::sm100_mla {

/// What both do: a warp each, whose first lane issues.
template <class Config>
struct ProductWarp {
  using Layout = LayoutOf<Config>;
  static constexpr int kSteps = kBlockColumns / kStepColumns;  ///< of a block of K

  const Smem<Config>& smem;
  Tmem<Config> tmem;
  int lane;
  Ring ring = {};   ///< stages of K
  Ring tiles = {};  ///< buffers of S and P
  int work_parity = 0;

  /// NOTE: the tensor cores read through the async proxy what cp.async wrote through the generic
  /// one. Who upcasts a block fences itself.
  ATTNJIT_DEVICE void await_block(int block) const {
    smem.wait(smem.kv_full(ring.stage, block), ring.parity);
    if constexpr (Config::kRowCopies) {
      if (block >= Config::kUpcastBlocks) fence_proxy_async_shared();
    }
  }
  /// Hands a block back when this warp's products so far are done. Of a cluster each CTA loads
  /// half of the blocks, and waits for both.
  ATTNJIT_DEVICE void release_block(int block) const {
    const u32 empty = smem.kv_empty(ring.stage, block);
    if constexpr (Config::kCluster > 1) {
      tcgen05_commit_to_both(empty);
    } else {
      tcgen05_commit(empty);
    }
  }
  ATTNJIT_DEVICE void next_tile() {
    ring.advance(Config::kStages);
    tiles.advance(kBuffers);
  }
  /// Waits until `count` blocks from `first` on of every stage have been released. The CTA's
  /// memory stays until the products have read, and their barriers have heard of, all. NOTE: a warp
  /// waits for what it releases itself: the other may be more than a phase away.
  ATTNJIT_DEVICE void await_release(int first, int count) {
#pragma unroll 1
    for (int i = 0; i < Config::kStages; ++i) {
#pragma unroll 1
      for (int block = first; block < first + count; ++block) {
        smem.wait(smem.kv_empty(ring.stage, block), ring.parity ^ 1);
      }
      ring.advance(Config::kStages);
    }
  }
};

/// S = Q K^T of every KV tile.
template <class Config>
struct ScoresWarp : ProductWarp<Config> {
  using Base = ProductWarp<Config>;
  using Base::kSteps, Base::smem, Base::tmem, Base::lane, Base::ring, Base::tiles;
  using typename Base::Layout;
  int q_parity = 0;

  /// `first`: Q may still be on its way. `last`: it is not read again.
  ATTNJIT_DEVICE void multiply(bool first, bool last) {
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Layout::kOperand, kRows, Config::kTileN, false>();
    const u32 s = tmem.s(tiles.stage);
    smem.wait(smem.s_empty(tiles.stage), tiles.parity ^ 1);
#pragma unroll 1
    for (int i = 0; i < Layout::kQkBlocks; ++i) {
      const int block = Layout::block_at(i, Layout::free_half(ring.stage));
      if (first) smem.wait(smem.q_full(block), q_parity);
      this->await_block(block);
      tcgen05_fence_after();
      if (lane == 0) {
        const SmemDescriptor<16> q(smem.q(block));
        const SmemDescriptor<16> k(smem.kv(ring.stage, block));
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          tcgen05_mma_ss<Layout::kOperand>(s, q.at(2 * step * kStepColumns),
                                           k.at(2 * step * kStepColumns), kInstruction,
                                           i > 0 || step > 0);
        }
        this->release_block(block);
      }
      __syncwarp();
    }
    if (lane == 0) {
      if (last) tcgen05_commit(smem.q_empty());
      tcgen05_commit(smem.s_full(tiles.stage));
    }
    __syncwarp();
    this->next_tile();
  }

  ATTNJIT_DEVICE void run() {
    while (true) {
      const WorkTile work = next_work<Config>(smem, this->work_parity, lane);
      if (work.batch < 0) break;
#pragma unroll 1
      for (int tile = work.tile_end - 1; tile >= work.tile_begin; --tile) {
        multiply(tile == work.tile_end - 1, tile == work.tile_begin);
      }
      if (work.tile_begin < work.tile_end) q_parity ^= 1;
    }
    smem.wait(smem.q_empty(), q_parity ^ 1);
    this->await_release(0, Layout::kQkBlocks);
  }
};

/// O += P V of every KV tile, V being K's latent blocks, or blocks of its own.
template <class Config>
struct OutputWarp : ProductWarp<Config> {
  using Base = ProductWarp<Config>;
  using Base::kSteps, Base::smem, Base::tmem, Base::lane, Base::ring, Base::tiles;
  using typename Base::Layout;

  /// Multiplies with a block of V, the i-th of a half. NOTE: a product of one block, although wider
  /// ones read P less often: so each is multiplied when it has landed, and released alone.
  ATTNJIT_DEVICE void multiply_block(int half, int i, bool first) {
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Layout::kOperand, kRows, kBlockColumns, true>();
    const int v_block = Layout::first_block(half) + i;
    const int block = Layout::kFirstOfV + v_block;
    // NOTE: a block of K has landed, since S is there. But who waited for that is another warp.
    this->await_block(block);
    tcgen05_fence_after();
    if (lane == 0) {
      const SmemDescriptor<Layout::kBlockBytes> v(smem.kv(ring.stage, block));
      const u32 o = tmem.o(half) + static_cast<u32>(i * kBlockColumns);
#pragma unroll
      for (int step = 0; step < Config::kTileN / kStepColumns; ++step) {
        tcgen05_mma_ts<Layout::kOperand>(o, tmem.p(tiles.stage, half) + 8 * step,
                                         v.at(step * kStepColumns * kBlockRowBytes), kInstruction,
                                         step > 0 || !first);
      }
      // The block that both halves have is released with the second.
      if (half == 1 || v_block < Layout::kOvBlocks - Layout::kHalfBlocks)
        this->release_block(block);
    }
    __syncwarp();
  }

  ATTNJIT_DEVICE void multiply(bool first) {
    smem.wait(smem.p_full(tiles.stage), tiles.parity);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
#pragma unroll 1
      for (int i = 0; i < Layout::kHalfBlocks; ++i) multiply_block(half, i, first);
    }
    if (lane == 0) tcgen05_commit(smem.o_full(tiles.stage));
    __syncwarp();
    this->next_tile();
  }

  ATTNJIT_DEVICE void run() {
    while (true) {
      const WorkTile work = next_work<Config>(smem, this->work_parity, lane);
      if (work.batch < 0) break;
#pragma unroll 1
      for (int tile = work.tile_end - 1; tile >= work.tile_begin; --tile) {
        multiply(tile == work.tile_end - 1);
      }
    }
    if constexpr (Config::kSeparateV) this->await_release(Layout::kFirstOfV, Layout::kOvBlocks);
  }
};

}  // namespace attnjit::sm100_mla

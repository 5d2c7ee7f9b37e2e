// SPDX-License-Identifier: Apache-2.0
// Shared memory and roles of the sm_90a kernel of absorbed MLA and of head_dim above 256: what
// Config must say, and what follows.
#pragma once

#include "common/ring.cuh"
#include "common/wgmma.cuh"
#include "mla/layout.cuh"

namespace attnjit::sm90_mla {

using sm90::kStepColumns;
using sm90::kWarpgroupThreads;
using sm90::kWarpRows;

/// Warpgroups that compute: each has half of O's columns, for all rows.
constexpr int kConsumers = 2;

/// Named barriers; 0 is the whole CTA's.
constexpr int kSignalBarrier = 1;  ///< + 4 * giver + warp: P is passed on
constexpr int kOrderBarrier = 9;   ///< + warp: most of the leader's S is issued
/// A warp, and the one of the other warpgroup that has the same rows.
constexpr int kSignalThreads = 64;

template <class Config>
struct LayoutOf : mla::TilesOf<Config> {
  using Tiles = mla::TilesOf<Config>;

  static_assert(Config::kThreads == kWarpgroupThreads * (kConsumers + 1),
                "a producer warpgroup and two consumers");
  static_assert(Config::kStages % 2 == 0 && Config::kStages >= 2,
                "the parity of a KV tile's stage says whose it is");
  // NOTE: against what the CTA was launched with: setmaxnreg.inc waits for ever for more.
  static_assert(Config::kProducerRegisters + kConsumers * Config::kConsumerRegisters <=
                    (kConsumers + 1) * (65536 / Config::kThreads / 8 * 8),
                "the warpgroups' registers must not exceed what the CTA is launched with");

  static constexpr WgmmaOperand kOperand =
      Config::kBf16 ? WgmmaOperand::kBf16 : WgmmaOperand::kFp16;

  /// What a thread passes on: 64 columns of P of its two rows, 16 bytes at a time, and what is
  /// known of the rows.
  static constexpr int kRecordParts = 5;
  static constexpr int kPartBytes = 16 * kWarpgroupThreads;

  static_assert(Config::kRecordOffset >= Config::kKvOffset + Config::kSlots * Tiles::kSlotBytes &&
                    Config::kWorkOffset >= Config::kRecordOffset + kRecordParts * kPartBytes,
                "the record of P lies between K and the published work");
  static_assert(Config::kRecordOffset % 16 == 0, "16 bytes are stored at a time");
  static_assert(Config::kStashOffset % 16 == 0 &&
                    Config::kWorkOffset >= Config::kStashOffset + Config::kWorkBytes * 8,
                "what each warp stashes lies before the published work");
  static_assert(Config::kBarriers == Tiles::kTileBarriers + (may_reduce_cluster<Config>() ? 2 : 0),
                "the plan has every barrier that the kernel names");
};

/// Addresses in the shared window.
template <class Config>
struct Smem : mla::TileMemory<Config> {
  using mla::TileMemory<Config>::TileMemory;
  using mla::TileMemory<Config>::base;

  /// The first part of the record of a thread of a warpgroup.
  ATTNJIT_DEVICE u32 record(int thread) const { return base + Config::kRecordOffset + 16 * thread; }
  /// The work tile that a warp of the consumers keeps.
  ATTNJIT_DEVICE u32 stashed_work(int warp) const {
    return base + Config::kStashOffset + Config::kWorkBytes * warp;
  }

  // Of two CTAs that reduce: the other one is done with its K, and sends its numbers here; they
  // have landed.
  ATTNJIT_DEVICE u32 peer_done() const { return this->barrier(Config::kBarClusterReduce); }
  ATTNJIT_DEVICE u32 reduced_full() const { return this->barrier(Config::kBarClusterReduce + 1); }
};

}  // namespace attnjit::sm90_mla

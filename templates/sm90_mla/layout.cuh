// SPDX-License-Identifier: Apache-2.0
// Shared memory and roles of the sm_90a kernel of absorbed MLA: what Config must say, and what
// follows.
#pragma once

#include "common/blocks.cuh"
#include "common/integers.cuh"
#include "common/ring.cuh"
#include "common/waits.cuh"
#include "common/wgmma.cuh"
#include "sm90/layout.cuh"

namespace attnjit::sm90_mla {

using sm90::kConsumerRows;
using sm90::kLengthsDiffer;
using sm90::kRowCopyWarps;
using sm90::kStepColumns;
using sm90::kWarpgroupThreads;
using sm90::kWarpRows;

/// Warpgroups that compute: each has half of O's columns, for all rows.
constexpr int kConsumers = 2;

/// Named barriers; 0 is the whole CTA's.
constexpr int kHandoverBarrier = 1;  ///< + 4 * giver + warp: P is handed over
/// A warp, and the one of the other warpgroup that has the same rows.
constexpr int kHandoverThreads = 64;

/// A row of K is the latent part, which is V too, and behind it the rope's. Q and K lie in blocks
/// of columns (common/blocks.cuh): [block][row].
template <class Config>
struct LayoutOf {
  static_assert(
      Config::kOvDepth % kBlockColumns == 0 && Config::kOvDepth >= kBlockColumns &&
          Config::kOvDepth <= 512,
      "the latent part is whole blocks; O's 64 x 512 floats are two warpgroups' registers");
  static_assert(Config::kQkDepth == Config::kOvDepth ||
                    Config::kQkDepth == Config::kOvDepth + kBlockColumns,
                "the rope's part is a block, or there is none");
  static_assert(Config::kTileM == Config::kCluster * kConsumerRows && Config::kTileN == 64,
                "a CTA's tile is 64 rows and 64 keys: a record of P holds so many");
  static_assert(Config::kThreads == kWarpgroupThreads * (kConsumers + 1),
                "a producer warpgroup and two consumers");
  static_assert(Config::kStages % 2 == 0 && Config::kStages >= 2,
                "the parity of a KV tile's stage says whose it is");
  static_assert(Config::kGqaShift <= 7 && (1 << Config::kGqaShift) >= Config::kGroup,
                "a row is position << kGqaShift | head");
  // NOTE: against what the CTA was launched with: setmaxnreg.inc waits for ever for more.
  static_assert(Config::kProducerRegisters + kConsumers * Config::kConsumerRegisters <=
                    (kConsumers + 1) * (65536 / Config::kThreads / 8 * 8),
                "the warpgroups' registers must not exceed what the CTA is launched with");
  static_assert(Config::kRowCopies ||
                    (Config::kTileN % Config::kBoxKeys == 0 && Config::kBoxKeys % 8 == 0),
                "a KV tile is whole boxes, each of whole swizzle periods");

  static constexpr WgmmaOperand kOperand =
      Config::kBf16 ? WgmmaOperand::kBf16 : WgmmaOperand::kFp16;

  static constexpr int kQkBlocks = Config::kQkDepth / kBlockColumns;
  static constexpr int kOvBlocks = Config::kOvDepth / kBlockColumns;
  static constexpr int kRopeBlocks = kQkBlocks - kOvBlocks;
  /// Blocks of O that a warpgroup has. Of an odd number both have the one in the middle, and the
  /// first writes it.
  static constexpr int kOwnBlocks = ceil_div(kOvBlocks, 2);
  static constexpr bool kSharedBlock = kOvBlocks % 2 != 0;
  /// The first of a warpgroup's blocks.
  ATTNJIT_DEVICE static int first_block(int rank) { return rank == 0 ? 0 : kOvBlocks - kOwnBlocks; }
  /// The order in which a tile's blocks are loaded and multiplied: the rope's first, which is
  /// handed back first.
  static constexpr int block_at(int i) { return i < kRopeBlocks ? kOvBlocks + i : i - kRopeBlocks; }

  static constexpr int kBlockBytes = 64 * kBlockRowBytes;
  static constexpr int kTileBytes = kQkBlocks * kBlockBytes;  ///< of Q, and of a stage of K
  /// What a thread hands over: 64 columns of P of its two rows, 16 bytes at a time, and what is
  /// known of the rows.
  static constexpr int kRecordParts = 5;
  static constexpr int kPartBytes = 16 * kWarpgroupThreads;

  static_assert(Config::kQOffset % kSwizzlePeriod == 0 && Config::kKvOffset % kSwizzlePeriod == 0,
                "tiles begin at multiples of the swizzle's 1024 bytes");
  static_assert(Config::kKvOffset >= Config::kQOffset + kTileBytes &&
                    Config::kRecordOffset >= Config::kKvOffset + Config::kStages * kTileBytes &&
                    Config::kWorkOffset >= Config::kRecordOffset + kRecordParts * kPartBytes &&
                    Config::kBarrierOffset >= Config::kWorkOffset + Config::kWorkBytes &&
                    Config::kSmemBytes >= Config::kBarrierOffset + 8 * Config::kBarriers,
                "Q, K, the record of P, the announcement and the barriers must not overlap");
  static_assert(Config::kRecordOffset % 16 == 0 && Config::kWorkOffset % 16 == 0 &&
                    Config::kBarrierOffset % 8 == 0,
                "16 bytes are stored at a time, and a barrier is 8");
  static_assert(Config::kBarriers == 3 + kQkBlocks + 2 * Config::kStages * kQkBlocks +
                                         (kLengthsDiffer<Config> && !Config::kRowCopies),
                "the plan has every barrier that the kernel names");
};

/// Addresses in the shared window.
template <class Config>
struct Smem : CtaMemory<Config> {
  using Layout = LayoutOf<Config>;
  using CtaMemory<Config>::CtaMemory;
  using CtaMemory<Config>::barrier;
  using CtaMemory<Config>::base;

  ATTNJIT_DEVICE u32 q(int block) const {
    return base + Config::kQOffset + block * Layout::kBlockBytes;
  }
  ATTNJIT_DEVICE u32 kv(int stage, int block) const {
    return base + Config::kKvOffset + (stage * Layout::kQkBlocks + block) * Layout::kBlockBytes;
  }
  /// The first part of the record of a thread of a warpgroup.
  ATTNJIT_DEVICE u32 record(int thread) const { return base + Config::kRecordOffset + 16 * thread; }
  ATTNJIT_DEVICE u32 work() const { return base + Config::kWorkOffset; }

  // Full: what is copied has landed. Empty: its readers are done.
  ATTNJIT_DEVICE u32 work_full() const { return barrier(Config::kBarWorkFull); }
  ATTNJIT_DEVICE u32 work_empty() const { return barrier(Config::kBarWorkEmpty); }
  ATTNJIT_DEVICE u32 q_full(int block) const { return barrier(Config::kBarQFull + block); }
  ATTNJIT_DEVICE u32 q_empty() const { return barrier(Config::kBarQEmpty); }
  ATTNJIT_DEVICE u32 kv_full(int stage, int block) const {
    return barrier(Config::kBarKvFull + stage * Layout::kQkBlocks + block);
  }
  ATTNJIT_DEVICE u32 kv_empty(int stage, int block) const {
    return barrier(Config::kBarKvEmpty + stage * Layout::kQkBlocks + block);
  }
  /// The copies of a KV tile have landed in which rows past the end are still to be zeroed.
  ATTNJIT_DEVICE u32 tail_full() const { return barrier(Config::kBarTail); }
};

}  // namespace attnjit::sm90_mla

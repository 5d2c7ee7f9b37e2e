// SPDX-License-Identifier: Apache-2.0
// Shared memory and roles of the sm_90a forward kernel: what Config must say, and what follows.
#pragma once

#include "common/blocks.cuh"
#include "common/integers.cuh"
#include "common/ring.cuh"
#include "common/waits.cuh"
#include "common/wgmma.cuh"
#include "maps/map_rows.cuh"

namespace attnjit::sm90 {

constexpr int kWarpgroupThreads = 128;

/// Rows of a wgmma, and of them a warp's.
constexpr int kConsumerRows = 64;
constexpr int kWarpRows = 16;
/// Columns of A, and rows of B, that a wgmma multiplies.
constexpr int kStepColumns = 16;

constexpr int kMaxConsumers = 3;

/// Warps of the producer that copy K and V where Config::kRowCopies.
constexpr int kRowCopyWarps = 4;

/// Named barriers; 0 is the whole CTA's.
constexpr int kTurnBarrier = 1;  ///< + consumer: its turn to issue products
constexpr int kEpilogueBarrier = kTurnBarrier + kMaxConsumers;  ///< + consumer: its O is staged
/// A turn's: the consumer that passes it, and the one that takes it.
constexpr int kTurnThreads = 2 * kWarpgroupThreads;

/// Sequences differ in length: a work tile says how long its own is.
template <class Config>
inline constexpr bool kLengthsDiffer =
    Config::kPageSize > 0 || Config::kRagged || Config::kRaggedKv;

/// Query heads in the rows of one position: those of a group, or one. The rows are a power of two;
/// where the heads are not, the last rows have no head.
template <class Config>
inline constexpr int kPackedHeads = Config::kGqaShift > 0 ? Config::kGroup : 1;
template <class Config>
inline constexpr bool kRowsWithoutHead = kPackedHeads<Config> != 1 << Config::kGqaShift;

/// Tiles lie in blocks of columns (common/blocks.cuh): [block][row].
template <class Config>
struct LayoutOf {
  static_assert(Config::kQkDepth % 8 == 0 && Config::kQkDepth >= 8 && Config::kQkDepth <= 256,
                "a row of Q and K is 8 to 256 elements, a multiple of 8: TMA strides are multiples "
                "of 16 bytes");
  static_assert(Config::kOvDepth % 8 == 0 && Config::kOvDepth >= 8 &&
                    Config::kOvDepth <= Config::kQkDepth,
                "a row of V and O is a multiple of 8 elements and no longer than a row of Q: O is "
                "staged in Q's memory");
  static_assert(Config::kConsumers >= 1 && Config::kConsumers <= 3,
                "one to three consumer warpgroups fit the register file");
  static_assert(Config::kTileM == kConsumerRows * Config::kConsumers,
                "a consumer warpgroup owns 64 query rows");
  static_assert(Config::kGqaShift <= 6 && kPackedHeads<Config> <= 1 << Config::kGqaShift,
                "all the query heads of a group are packed, or none, and a consumer's 64 rows are "
                "whole positions of them");
  static_assert(Config::kTileN % 16 == 0 && Config::kTileN >= 16 && Config::kTileN <= 256,
                "a KV tile is one wgmma wide and whole k16 steps of P long");
  /// Warpgroups without work, which give their registers to the others.
  static constexpr int kIdle = Config::kThreads / kWarpgroupThreads - 1 - Config::kConsumers;
  static_assert(kIdle >= 0 && Config::kThreads % kWarpgroupThreads == 0,
                "a producer warpgroup and the consumers");
  static_assert(Config::kStages >= 2, "K and V need two stages each to be loaded ahead");
  static_assert(Config::kQStages == 1 || Config::kQStages == 2,
                "Q has one buffer, or two: the next work tile's is loaded during this one");
  /// Registers a thread at launch: the register file's share, in steps of 8.
  static constexpr int kLaunchRegisters = 65536 / (Config::kThreads * Config::kCtasPerSm) / 8 * 8;
  // NOTE: against what the CTA was launched with, not the register file: setmaxnreg.inc waits for
  // ever for registers that its own CTA never had.
  static_assert((1 + kIdle) * Config::kProducerRegisters +
                        Config::kConsumers * Config::kConsumerRegisters <=
                    (1 + kIdle + Config::kConsumers) * kLaunchRegisters,
                "the warpgroups' registers must not exceed what the CTA is launched with");

  static constexpr bool kPaged = Config::kPageSize > 0;
  static constexpr bool kKvLens = kLengthsDiffer<Config>;
  static_assert(Config::kRowCopies ||
                    (Config::kTileN % Config::kBoxKeys == 0 && Config::kBoxKeys % 8 == 0 &&
                     Config::kBoxKeys <= 256 &&
                     (kPaged ? Config::kPageSize : Config::kTileN) % Config::kBoxKeys == 0),
                "a KV tile is whole boxes, each of one page and of whole swizzle periods");

  static constexpr int kQkBlocks = ceil_div(Config::kQkDepth, kBlockColumns);
  static constexpr int kOvBlocks = ceil_div(Config::kOvDepth, kBlockColumns);
  /// Blocks of O: a row of one has 128 bytes, whatever its type.
  static_assert((Config::kOutputBytes == 1 || Config::kOutputBytes == 2) &&
                    Config::kOvDepth * Config::kOutputBytes % 16 == 0,
                "O is e4m3, bf16 or fp16, and its rows are multiples of 16 bytes");
  static constexpr int kOutputBlockColumns = kBlockRowBytes / Config::kOutputBytes;
  static constexpr int kOutputBlocks = ceil_div(Config::kOvDepth, kOutputBlockColumns);
  /// k16 steps of Q K^T; past kQkDepth the rows are zero-filled.
  static constexpr int kQkSteps = ceil_div(Config::kQkDepth, 16);
  static constexpr int kPvSteps = Config::kTileN / 16;
  /// Columns of the P V product: kOvDepth, rounded up within the zero-filled block.
  static constexpr int kPvColumns = 32 * ceil_div(Config::kOvDepth, 32);

  static constexpr int kQBlockBytes = Config::kTileM * kBlockRowBytes;
  static constexpr int kKvBlockBytes = Config::kTileN * kBlockRowBytes;
  /// A consumer's rows of a block of Q, or of O.
  static constexpr int kConsumerBlockBytes = kConsumerRows * kBlockRowBytes;
  static constexpr int kQBytes = kQkBlocks * kQBlockBytes;
  static constexpr int kKBytes = kQkBlocks * kKvBlockBytes;
  static constexpr int kVBytes = kOvBlocks * kKvBlockBytes;

  static_assert(Config::kQOffset % kSwizzlePeriod == 0 && Config::kKOffset % kSwizzlePeriod == 0 &&
                    Config::kVOffset % kSwizzlePeriod == 0 && kKBytes % kSwizzlePeriod == 0 &&
                    kVBytes % kSwizzlePeriod == 0,
                "the 128-byte swizzle repeats every 1024 bytes: tiles begin at multiples of that");
  static_assert(Config::kKOffset >= Config::kQOffset + Config::kQStages * kQBytes &&
                    Config::kVOffset >= Config::kKOffset + Config::kStages * kKBytes &&
                    Config::kBarrierOffset >= Config::kVOffset + Config::kStages * kVBytes,
                "Q, K, V and the barriers must not overlap");
  static_assert(Config::kOBlocks == 0 ||
                    (Config::kOOffset % kSwizzlePeriod == 0 &&
                     Config::kOOffset >= Config::kVOffset + Config::kStages * kVBytes),
                "O's own memory lies after V's, at a multiple of the swizzle's 1024 bytes");
  static_assert(Config::kWorkBytes >= (Config::kSplit ? 36 : 32),
                "an announcement has nine words with a partition, and eight without");
  static_assert(Config::kWorkOffset % 16 == 0 &&
                    Config::kWorkOffset >= Config::kVOffset + Config::kStages * kVBytes &&
                    Config::kWorkOffset >= Config::kOOffset + Config::kConsumers *
                                                                  Config::kOBlocks *
                                                                  kConsumerBlockBytes &&
                    Config::kBarrierOffset >= Config::kWorkOffset + Config::kWorkBytes *
                                                                        Config::kQStages *
                                                                        Config::kConsumers,
                "each consumer has an announcement for each stage of Q, stored 16 bytes at a time");
  static_assert(!Config::kMapped || (kMapBlock % Config::kTileM == 0 && Config::kListed),
                "the rows of a work tile are of one row of a map's blocks");
  static_assert(!Config::kListed ||
                    (Config::kNotesOffset >= Config::kWorkOffset + Config::kWorkBytes *
                                                                       Config::kQStages *
                                                                       Config::kConsumers &&
                     Config::kBarrierOffset >= Config::kNotesOffset + 4 * Config::kStages),
                "a word for each stage of K lies between the announcements and the barriers");
  static_assert(Config::kBarrierOffset % 8 == 0 &&
                    Config::kSmemBytes >= Config::kBarrierOffset + 8 * Config::kBarriers,
                "the barriers need 8 aligned bytes each");
  static_assert(Config::kBarriers == 2 * Config::kQStages * Config::kConsumers +
                                         4 * Config::kStages + (kKvLens && !Config::kRowCopies),
                "the plan has every barrier that the kernel names");
  // NOTE: a CTA takes 1 KiB more for itself.
  static_assert(Config::kCtasPerSm * (Config::kSmemBytes + 1024) <= 233472,
                "an SM has 228 KiB of shared memory");
};

/// Addresses in the shared window.
template <class Config>
struct Smem : CtaMemory<Config> {
  using Layout = LayoutOf<Config>;
  using CtaMemory<Config>::CtaMemory;
  using CtaMemory<Config>::barrier;
  using CtaMemory<Config>::base;

  ATTNJIT_DEVICE u32 q(int stage, int consumer) const {
    return base + Config::kQOffset + stage * Layout::kQBytes +
           consumer * Layout::kConsumerBlockBytes;
  }
  ATTNJIT_DEVICE u32 k(int stage) const {
    return base + Config::kKOffset + stage * Layout::kKBytes;
  }
  ATTNJIT_DEVICE u32 v(int stage) const {
    return base + Config::kVOffset + stage * Layout::kVBytes;
  }
  ATTNJIT_DEVICE u32 o(int consumer) const {
    return base + Config::kOOffset + consumer * Config::kOBlocks * Layout::kConsumerBlockBytes;
  }
  /// What the producer says of the K of a stage, where the mask's tiles are listed.
  ATTNJIT_DEVICE u32 note(int stage) const { return base + Config::kNotesOffset + 4 * stage; }
  ATTNJIT_DEVICE u32 work(int stage, int consumer) const {
    return base + Config::kWorkOffset +
           (stage * Config::kConsumers + consumer) * Config::kWorkBytes;
  }

  // Full: the copies of a tile have landed. Empty: its readers are done.
  // Each consumer has its own of Q, so that none waits for another between work tiles.
  ATTNJIT_DEVICE u32 q_full(int stage, int consumer) const {
    return barrier(Config::kBarQFull + stage * Config::kConsumers + consumer);
  }
  ATTNJIT_DEVICE u32 q_empty(int stage, int consumer) const {
    return barrier(Config::kBarQEmpty + stage * Config::kConsumers + consumer);
  }
  ATTNJIT_DEVICE u32 k_full(int stage) const { return barrier(Config::kBarKFull + stage); }
  ATTNJIT_DEVICE u32 k_empty(int stage) const { return barrier(Config::kBarKEmpty + stage); }
  ATTNJIT_DEVICE u32 v_full(int stage) const { return barrier(Config::kBarVFull + stage); }
  ATTNJIT_DEVICE u32 v_empty(int stage) const { return barrier(Config::kBarVEmpty + stage); }
  /// The copies of a V tile have landed in which rows past the end are still to be zeroed.
  ATTNJIT_DEVICE u32 tail_full() const { return barrier(Config::kBarVTail); }
};

}  // namespace attnjit::sm90

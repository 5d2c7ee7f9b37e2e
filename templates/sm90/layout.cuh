// SPDX-License-Identifier: Apache-2.0
// Shared memory and roles of the sm_90a forward kernel: what Config must say, and what follows.
#pragma once

#include "common/blocks.cuh"
#include "common/integers.cuh"
#include "common/ring.cuh"
#include "common/scales.cuh"
#include "common/waits.cuh"
#include "common/wgmma.cuh"
#include "common/work_tiles.cuh"
#include "maps/map_rows.cuh"

namespace attnjit::sm90 {

constexpr int kWarpgroupThreads = 128;

/// Of the rows of a wgmma, which are a consumer's (kConsumerRows), a warp's.
constexpr int kWarpRows = 16;
/// Bytes of a row of A that a wgmma multiplies, and 16-bit elements.
constexpr int kStepBytes = 32;
constexpr int kStepColumns = 16;

constexpr int kMaxConsumers = 3;

/// Named barriers; 0 is the whole CTA's.
constexpr int kOrderBarrier = 1;  ///< + consumer: it may issue products (ping-pong)
constexpr int kEpilogueBarrier = kOrderBarrier + kMaxConsumers;  ///< + consumer: its O is staged
constexpr int kPublishBarrier =
    kEpilogueBarrier + kMaxConsumers;  ///< work is published to the copying warps
/// Of an order barrier: the consumer that arrives, and the one that waits.
constexpr int kOrderThreads = 2 * kWarpgroupThreads;

/// Whether keys have scales of their own, by which V's are weighed. Scores are then exponents of 2
/// as they come, and who made them adds up the sums (sm90/key_scales.cuh).
template <class Config>
constexpr bool keys_have_scales() {
  return Config::kKeyScalesOffset > 0;
}

/// A tile whose keys have scales, as its loads publish it to those that bring them.
struct ScaledTile {
  int first_key, kv_len, batch, kv_head;

  ATTNJIT_DEVICE void store(u32 to) const {
    store_shared_v4(to, first_key, kv_len, batch, kv_head);
  }
  ATTNJIT_DEVICE static ScaledTile load(u32 from) {
    ScaledTile tile;
    load_shared_v4(from, tile.first_key, tile.kv_len, tile.batch, tile.kv_head);
    return tile;
  }
};
constexpr int kScaledTileBytes = 16;

/// Whether the producer's warpgroup has so few registers that it computes again with each tile what
/// it would keep elsewhere.
template <class Config>
constexpr bool rematerializes() {
  return Config::kRematerializes;
}

/// Whether the tile list of sequences of one length stands in shared memory while who walks it
/// loads. Of ranges over sequences it begins there (common/sequence_ranges.cuh).
template <class Config>
constexpr bool stashes_cursor() {
  return Config::kCursorsOffset > 0 && !kLengthsDiffer<Config>;
}

/// Whether consumers keep what they know of a work tile in shared memory while its KV tiles are
/// multiplied. What they have no registers for, the compiler would spill.
template <class Config>
constexpr bool stashes_work() {
  return Config::kStashesWork;
}
/// Whether consumers beside scales of keys find again where their rows are, and keep as little as
/// they can in registers, of which ptxas would spill some.
template <class Config>
constexpr bool rematerializes_rows() {
  return Config::kRematerializesRows;
}

/// Whether one of several warps that copy finds the CTA's work, and publishes it to the others
/// (sm90/published_list.cuh). Elsewhere each finds it by itself, and none could take it.
template <class Config>
constexpr bool publishes_work() {
  return Config::kRowCopies && !Config::kE4m3 && !Config::kUpcastsKv && cuts_tiles<Config>();
}
/// What it publishes of a work tile, in two slots.
constexpr int kPublishBytes = 48;

/// Whether there is room for the cursors of tile schedulers, of each warp that has one.
template <class Config>
constexpr bool lists_fit() {
  if constexpr (Config::kCursorsOffset > 0) {
    constexpr int kCursors = stashes_cursor<Config>()      ? 1
                             : deals_head_ranges<Config>() ? kRowCopyWarps
                                                           : 2;
    constexpr int kWorkEnd =
        Config::kWorkOffset + Config::kWorkBytes * Config::kQStages * Config::kConsumers;
    constexpr int kPublished = publishes_work<Config>() ? 2 * kPublishBytes : 0;
    return Config::kCursorsOffset % 16 == 0 && Config::kCursorsOffset >= kWorkEnd &&
           Config::kBarrierOffset >= Config::kCursorsOffset + kCursorBytes * kCursors + kPublished;
  } else {
    return true;
  }
}

/// What a warp stashes, stored four at a time.
constexpr int kStashWords = 12;

/// Whether there is room for what consumers stash.
template <class Config>
constexpr bool stash_fits() {
  if constexpr (stashes_work<Config>()) {
    constexpr int kWorkEnd =
        Config::kWorkOffset + Config::kWorkBytes * Config::kQStages * Config::kConsumers;
    return Config::kStashOffset % 16 == 0 && Config::kStashBytes % 16 == 0 &&
           Config::kStashBytes >= 4 * kStashWords && Config::kStashOffset >= kWorkEnd &&
           Config::kBarrierOffset >=
               Config::kStashOffset + Config::kStashBytes * 4 * Config::kConsumers;
  } else {
    return true;
  }
}

/// Of a consumer's rows those that are somebody's: whole positions of the packed heads.
template <class Config>
inline constexpr int kOwnedRows = kConsumerRows / kPackedHeads<Config>* kPackedHeads<Config>;

/// Tiles lie in blocks of columns (common/blocks.cuh): [block][row]. NOTE: of 8-bit operands wgmma
/// takes K-major ones only, so V of e4m3 is transposed (sm90/transposer.cuh). Its tiles have no
/// swizzle: [16 keys][column], 16 bytes each. Where Q has 16 bits, K and V of e4m3 are upcast to
/// its type (sm90/upcaster.cuh). As they come, their blocks have kKvRowBytes columns, and the
/// swizzle of as many bytes.
template <class Config>
struct LayoutOf {
  static constexpr WgmmaOperand kOperand = Config::kE4m3   ? WgmmaOperand::kE4m3
                                           : Config::kBf16 ? WgmmaOperand::kBf16
                                                           : WgmmaOperand::kFp16;
  /// Of P V. NOTE: where V is upcast it is fp16, whatever Q is: e4m3 takes about half of the
  /// instructions that bf16 takes, and P of fp16 loses less. kPBias keeps small ones.
  static constexpr WgmmaOperand kPvOperand = Config::kUpcastsKv ? WgmmaOperand::kFp16 : kOperand;
  static constexpr int kElementBytes = Config::kE4m3 ? 1 : 2;
  /// Elements in 16 bytes, in the row of a block, and in the row of A of a wgmma.
  static constexpr int kChunkElements = 16 / kElementBytes;
  static constexpr int kBlockElements = kBlockRowBytes / kElementBytes;
  static constexpr int kStepElements = kStepBytes / kElementBytes;

  static_assert(Config::kQkDepth % kChunkElements == 0 && Config::kQkDepth >= kChunkElements &&
                    Config::kQkDepth <= 256,
                "a row of Q and K is up to 256 elements: TMA strides are multiples of 16 bytes");
  static_assert(Config::kOvDepth % kChunkElements == 0 && Config::kOvDepth >= kChunkElements &&
                    Config::kOvDepth <= Config::kQkDepth,
                "a row of V and O is a multiple of 16 bytes and no longer than a row of Q");
  static_assert(Config::kConsumers >= 1 && Config::kConsumers <= 3,
                "one to three consumer warpgroups fit the register file");
  static_assert(Config::kTileM == kConsumerRows * Config::kConsumers,
                "a consumer warpgroup owns 64 query rows");
  static_assert(kOwnedRows<Config> <= kConsumerRows && kOwnedRows<Config> > 0 &&
                    (packs_units<Config>() || kPackedHeads<Config> == 1 << Config::kGqaShift),
                "all the query heads of a group are packed, or none, and a consumer's 64 rows are "
                "whole positions of them");
  static_assert(Config::kTileN % kStepElements == 0 && Config::kTileN >= kStepElements &&
                    Config::kTileN <= 256,
                "a KV tile is one wgmma wide and whole steps of P long");
  /// Warpgroups before the consumers: the one that loads, and the one that upcasts K.
  static constexpr int kProducers = Config::kUpcastsKv ? 2 : 1;
  /// Warpgroups without work, which give their registers to the others.
  static constexpr int kIdle =
      Config::kThreads / kWarpgroupThreads - kProducers - Config::kConsumers;
  static_assert(kIdle >= 0 && Config::kThreads % kWarpgroupThreads == 0,
                "the producer's warpgroups and the consumers");
  static_assert(Config::kStages >= 2 && Config::kVStages >= 2,
                "K and V need two stages each to be loaded ahead");
  static_assert(Config::kQStages == 1 || Config::kQStages == 2,
                "Q has one buffer, or two: the next work tile's is loaded during this one");
  /// Registers a thread at launch: the register file's share, in steps of 8.
  static constexpr int kLaunchRegisters = 65536 / (Config::kThreads * Config::kCtasPerSm) / 8 * 8;
  // NOTE: against what the CTA was launched with, not the register file: setmaxnreg.inc waits for
  // ever for registers that its own CTA never had.
  static_assert((kProducers + kIdle) * Config::kProducerRegisters +
                        Config::kConsumers * Config::kConsumerRegisters <=
                    (kProducers + kIdle + Config::kConsumers) * kLaunchRegisters,
                "the warpgroups' registers must not exceed what the CTA is launched with");

  static constexpr bool kPaged = Config::kPageSize > 0;
  static constexpr bool kKvLens = kLengthsDiffer<Config>;
  static_assert(Config::kRowCopies ||
                    (Config::kTileN % Config::kBoxKeys == 0 && Config::kBoxKeys % 8 == 0 &&
                     Config::kBoxKeys <= 256 &&
                     (kPaged ? Config::kPageSize : Config::kTileN) % Config::kBoxKeys == 0),
                "a KV tile is whole boxes, each of one page and of whole swizzle periods");

  static constexpr int kQkBlocks = ceil_div(Config::kQkDepth, kBlockElements);
  static constexpr int kOvBlocks = ceil_div(Config::kOvDepth, kBlockElements);
  /// Blocks of O: a row of one has 128 bytes, whatever its type.
  static_assert((Config::kOutputBytes == 1 || Config::kOutputBytes == 2 ||
                 Config::kOutputBytes == 4) &&
                    Config::kOvDepth * Config::kOutputBytes % 16 == 0,
                "O is e4m3, bf16, fp16 or f32, and its rows are multiples of 16 bytes");
  /// Whether O is stored from registers: of f32 what a quad has of a row is whole sectors.
  static constexpr bool kOFromRegisters = Config::kOutputBytes == 4;
  static constexpr int kOutputBlockColumns = kBlockRowBytes / Config::kOutputBytes;
  static constexpr int kOutputBlocks = ceil_div(Config::kOvDepth, kOutputBlockColumns);
  static_assert(kOFromRegisters || Config::kOBlocks > 0 || kOutputBlocks <= kQkBlocks,
                "O has memory of its own where it does not fit Q's");
  /// Steps of Q K^T; past kQkDepth the rows are zero-filled.
  static constexpr int kQkSteps = ceil_div(Config::kQkDepth, kStepElements);
  static constexpr int kPvSteps = Config::kTileN / kStepElements;
  /// Words of P in a thread: its part of 64 rows.
  static constexpr int kPWords = Config::kTileN * kElementBytes / 8;
  /// Columns of the P V product: kOvDepth, rounded up within the zero-filled block.
  static constexpr int kPvColumns = 32 * ceil_div(Config::kOvDepth, 32);
  /// Those of the first wgmma of a step. NOTE: there is a second one where a CTA is launched with
  /// so few registers that one would not fit: ptxas (C7602) counts those, and not setmaxnreg's.
  static constexpr int kPvFirst =
      Config::kE4m3 || kPvColumns / 2 + 32 <= kLaunchRegisters ? kPvColumns : kBlockElements;

  static constexpr int kQBlockBytes = Config::kTileM * kBlockRowBytes;
  static constexpr int kKvBlockBytes = Config::kTileN * kBlockRowBytes;
  /// A consumer's rows of a block of Q, or of O.
  static constexpr int kConsumerBlockBytes = kConsumerRows * kBlockRowBytes;
  static constexpr int kQBytes = kQkBlocks * kQBlockBytes;
  static constexpr int kKBytes = kQkBlocks * kKvBlockBytes;
  static constexpr int kVBytes =
      Config::kE4m3 ? kPvColumns * Config::kTileN : kOvBlocks * kKvBlockBytes;
  /// Buffers of three numbers for each key (sm90/key_scales.cuh).
  static constexpr int kKeyScalesBytes = 3 * 4 * Config::kTileN;
  static constexpr int kKeyScalesBuffers = keys_have_scales<Config>() ? Config::kVStages + 1 : 0;
  /// Of e4m3, from 16 keys of V to the next.
  static constexpr int kVChunkBytes = kPvColumns * 16;
  /// Tiles land raw, and warps rewrite them: those of V, or of K and of V.
  static constexpr bool kHasRawTiles = Config::kE4m3 || Config::kUpcastsKv;
  static_assert(!Config::kUpcastsKv || (!Config::kE4m3 && Config::kTileN % 32 == 0 &&
                                        Config::kQkDepth % 16 == 0 && Config::kOvDepth % 16 == 0 &&
                                        (Config::kKvRowBytes == 64 || Config::kKvRowBytes == 128)),
                "a lane upcasts a key, 16 columns at a time");
  /// Blocks of columns of K and V as copies bring them.
  static constexpr int kCopiedColumns = Config::kUpcastsKv ? Config::kKvRowBytes : kBlockElements;
  static constexpr int kCopiedElementBytes = Config::kUpcastsKv ? 1 : kElementBytes;
  static constexpr int kCopiedRowBytes = kCopiedColumns * kCopiedElementBytes;
  static constexpr int kCopiedBlockBytes =
      Config::kUpcastsKv ? Config::kTileN * Config::kKvRowBytes : kKvBlockBytes;
  static constexpr int kCopiedKBlocks = ceil_div(Config::kQkDepth, kCopiedColumns);
  static constexpr int kCopiedVBlocks = ceil_div(Config::kOvDepth, kCopiedColumns);
  /// A stage of V's rows, and of K's.
  static constexpr int kRawVBytes = kHasRawTiles ? kCopiedVBlocks * kCopiedBlockBytes : 0;
  static constexpr int kRawKBytes = Config::kUpcastsKv ? kCopiedKBlocks * kCopiedBlockBytes : 0;
  /// Their words.
  static constexpr int kRawWords = (Config::kUpcastsKv ? 2 : 1) * Config::kRawStages;

  static_assert(Config::kQOffset % kSwizzlePeriod == 0 && Config::kKOffset % kSwizzlePeriod == 0 &&
                    Config::kVOffset % kSwizzlePeriod == 0 && kKBytes % kSwizzlePeriod == 0 &&
                    kVBytes % kSwizzlePeriod == 0,
                "the 128-byte swizzle repeats every 1024 bytes: tiles begin at multiples of that");
  static_assert(Config::kKOffset >= Config::kQOffset + Config::kQStages * kQBytes &&
                    Config::kVOffset >= Config::kKOffset + Config::kStages * kKBytes &&
                    Config::kBarrierOffset >= Config::kVOffset + Config::kVStages * kVBytes,
                "Q, K, V and the barriers must not overlap");
  static_assert(!kHasRawTiles ||
                    (Config::kRawOffset % kSwizzlePeriod == 0 && kRawVBytes % kSwizzlePeriod == 0 &&
                     kRawKBytes % kSwizzlePeriod == 0 && Config::kRawStages >= 1 &&
                     Config::kRawOffset >= Config::kVOffset + Config::kVStages * kVBytes &&
                     Config::kRawWordsOffset >=
                         Config::kRawOffset + Config::kRawStages * (kRawVBytes + kRawKBytes) &&
                     Config::kRawWordsOffset % 4 == 0 &&
                     Config::kBarrierOffset >= Config::kRawWordsOffset + 4 * kRawWords),
                "rows lie after V, at a multiple of the swizzle's 1024 bytes, and a word for each "
                "stage of them before the barriers");
  static_assert(Config::kOBlocks == 0 ||
                    (Config::kOOffset % kSwizzlePeriod == 0 &&
                     Config::kOOffset >= Config::kVOffset + Config::kVStages * kVBytes),
                "O's own memory lies after V's, at a multiple of the swizzle's 1024 bytes");
  static_assert(Config::kWorkBytes >= (Config::kSplit ? 36 : 32),
                "a published work tile has nine words with a partition, and eight without");
  static_assert(lists_fit<Config>(),
                "the cursors of tile schedulers lie between the published work and the barriers");
  static_assert(
      Config::kWorkOffset % 16 == 0 &&
          Config::kWorkOffset >= Config::kVOffset + Config::kVStages * kVBytes &&
          Config::kWorkOffset >=
              Config::kOOffset + Config::kConsumers * Config::kOBlocks * kConsumerBlockBytes &&
          Config::kBarrierOffset >=
              Config::kWorkOffset + Config::kWorkBytes * Config::kQStages * Config::kConsumers,
      "each consumer has a published work tile for each stage of Q, stored 16 bytes at a time");
  static_assert(!Config::kBlockMask || (kMaskBlock % Config::kTileM == 0 && Config::kBlockSparse),
                "the rows of a work tile are of one row of a map's blocks");
  static_assert(
      !Config::kBlockSparse ||
          (Config::kDescriptorsOffset >=
               Config::kWorkOffset + Config::kWorkBytes * Config::kQStages * Config::kConsumers &&
           Config::kBarrierOffset >=
               Config::kDescriptorsOffset + Config::kDescriptorBytes * Config::kStages),
      "a descriptor for each stage of K lies between the published work and the barriers");
  static_assert(stash_fits<Config>(),
                "what consumers stash lies between the published work and the barriers");
  static_assert(Config::kBarrierOffset % 8 == 0 &&
                    Config::kSmemBytes >= Config::kBarrierOffset + 8 * Config::kBarriers,
                "the barriers need 8 aligned bytes each");
  static constexpr bool kZeroesTail = kKvLens && !Config::kRowCopies && !kHasRawTiles;
  static_assert(Config::kBarriers == 2 * Config::kQStages * Config::kConsumers +
                                         2 * Config::kStages + 2 * Config::kVStages + kZeroesTail +
                                         (kHasRawTiles ? 2 * kRawWords : 0) + kKeyScalesBuffers,
                "the plan has every barrier that the kernel names");
  // NOTE: a CTA takes 1 KiB more for itself.
  static_assert(Config::kCtasPerSm * (Config::kSmemBytes + 1024) <= 233472,
                "an SM has 228 KiB of shared memory");
};

/// Eight columns of 32 ones of e4m3, which rows are summed with.
constexpr int kOnesBytes = 8 * 32;
constexpr u32 kFourOnes = 0x38383838;

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
  /// Raw tiles, which warps rewrite: those of K lie after those of V.
  ATTNJIT_DEVICE u32 raw_v(int stage) const {
    return base + Config::kRawOffset + stage * Layout::kRawVBytes;
  }
  ATTNJIT_DEVICE u32 raw_k(int stage) const {
    return raw_v(Config::kRawStages) + stage * Layout::kRawKBytes;
  }
  /// Their keys that are the sequence's; 0: no more come.
  ATTNJIT_DEVICE u32 raw_v_word(int stage) const {
    return base + Config::kRawWordsOffset + 4 * stage;
  }
  ATTNJIT_DEVICE u32 raw_k_word(int stage) const { return raw_v_word(Config::kRawStages + stage); }
  ATTNJIT_DEVICE u32 ones() const { return base + Config::kOnesOffset; }
  ATTNJIT_DEVICE u32 o(int consumer) const {
    return base + Config::kOOffset + consumer * Config::kOBlocks * Layout::kConsumerBlockBytes;
  }
  ATTNJIT_DEVICE u32 key_scales(int buffer) const {
    return base + Config::kKeyScalesOffset + buffer * Layout::kKeyScalesBytes;
  }
  /// What is published of the tile of V's rows of a stage.
  ATTNJIT_DEVICE u32 scaled_tile(int stage) const {
    return key_scales(Layout::kKeyScalesBuffers) + kScaledTileBytes * stage;
  }
  /// What the producer says of the K of a stage, where the mask's tiles are listed.
  ATTNJIT_DEVICE u32 descriptor(int stage) const {
    return base + Config::kDescriptorsOffset + Config::kDescriptorBytes * stage;
  }
  ATTNJIT_DEVICE u32 work(int stage, int consumer) const {
    return base + Config::kWorkOffset +
           (stage * Config::kConsumers + consumer) * Config::kWorkBytes;
  }

  /// What a warp of a consumer stashes; `warp` is the CTA's.
  ATTNJIT_DEVICE u32 stashed(int warp) const {
    return base + Config::kStashOffset + Config::kStashBytes * (warp - 4 * Layout::kProducers);
  }

  /// Where the list of a warp that loads stands: of ranges of sequences, or where it is stashed.
  ATTNJIT_DEVICE u32 cursor(int warp) const {
    return base + Config::kCursorsOffset + kCursorBytes * warp;
  }

  /// Where the first of the warps that copy publishes a work tile to the others.
  ATTNJIT_DEVICE u32 published(int slot) const { return cursor(2) + kPublishBytes * slot; }

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
  ATTNJIT_DEVICE u32 raw_v_full(int stage) const { return barrier(Config::kBarRawVFull + stage); }
  ATTNJIT_DEVICE u32 raw_v_empty(int stage) const { return barrier(Config::kBarRawVEmpty + stage); }
  ATTNJIT_DEVICE u32 raw_k_full(int stage) const { return barrier(Config::kBarRawKFull + stage); }
  ATTNJIT_DEVICE u32 raw_k_empty(int stage) const { return barrier(Config::kBarRawKEmpty + stage); }
  ATTNJIT_DEVICE u32 key_scales_full(int buffer) const {
    return barrier(Config::kBarKeyScalesFull + buffer);
  }
  /// The copies of a V tile have landed in which rows past the end are still to be zeroed.
  ATTNJIT_DEVICE u32 tail_full() const { return barrier(Config::kBarVTail); }
};

/// The tiles of K (kIsK), or of V, as they are multiplied.
template <class Config, bool kIsK>
struct TilesOf {
  static constexpr int kStages = kIsK ? Config::kStages : Config::kVStages;
  static constexpr bool kRaw = false;

  ATTNJIT_DEVICE static u32 data(const Smem<Config>& smem, int stage) {
    return kIsK ? smem.k(stage) : smem.v(stage);
  }
  ATTNJIT_DEVICE static u32 full(const Smem<Config>& smem, int stage) {
    return kIsK ? smem.k_full(stage) : smem.v_full(stage);
  }
  ATTNJIT_DEVICE static u32 empty(const Smem<Config>& smem, int stage) {
    return kIsK ? smem.k_empty(stage) : smem.v_empty(stage);
  }
};

/// Raw tiles, which warps rewrite.
template <class Config, bool kIsK>
struct RawTilesOf {
  static constexpr int kStages = Config::kRawStages;
  static constexpr bool kRaw = true;

  ATTNJIT_DEVICE static u32 data(const Smem<Config>& smem, int stage) {
    return kIsK ? smem.raw_k(stage) : smem.raw_v(stage);
  }
  ATTNJIT_DEVICE static u32 word(const Smem<Config>& smem, int stage) {
    return kIsK ? smem.raw_k_word(stage) : smem.raw_v_word(stage);
  }
  ATTNJIT_DEVICE static u32 full(const Smem<Config>& smem, int stage) {
    if constexpr (kIsK) return smem.raw_k_full(stage);
    return smem.raw_v_full(stage);
  }
  ATTNJIT_DEVICE static u32 empty(const Smem<Config>& smem, int stage) {
    if constexpr (kIsK) return smem.raw_k_empty(stage);
    return smem.raw_v_empty(stage);
  }
  /// Publishes to who rewrites them that no more come than those before the stage that `ring` is
  /// at. One thread.
  ATTNJIT_DEVICE static void end(const Smem<Config>& smem, const Ring& ring) {
    smem.wait(empty(smem, ring.stage), ring.parity ^ 1);
    store_shared_word(word(smem, ring.stage), 0);
    mbarrier_arrive(full(smem, ring.stage));
  }
};

/// Whether copies of K, or of V, are raw tiles.
template <class Config, bool kIsK>
constexpr bool kLandsRaw = Config::kUpcastsKv || (Config::kE4m3 && !kIsK);

/// Where they land, and how. Each is published to who rewrites them.
template <class Config, bool kIsK>
struct CopiesOf : Either<kLandsRaw<Config, kIsK>, RawTilesOf<Config, kIsK>, TilesOf<Config, kIsK>> {
  using Layout = LayoutOf<Config>;
  static constexpr int kBlocks = kIsK ? Layout::kCopiedKBlocks : Layout::kCopiedVBlocks;

  /// Publishes a tile of a work tile, with `keys` keys of the sequence.
  template <class Arguments>
  ATTNJIT_DEVICE static void publish(const Smem<Config>& smem, int stage, int keys,
                                     const WorkTile& work, int kv_head, int tile,
                                     const Arguments& arguments) {
    if constexpr (kLandsRaw<Config, kIsK>) {
      store_shared_word(RawTilesOf<Config, kIsK>::word(smem, stage), static_cast<u32>(keys));
      if constexpr (keys_have_scales<Config>() && !kIsK) {
        ScaledTile{tile * Config::kTileN, lengths_of<Config>(work, arguments).kv, work.batch,
                   kv_head}
            .store(smem.scaled_tile(stage));
      }
    }
  }
  /// Loads a tile by TMA, a box for each block. One thread. Past a tensor's end TMA gives zeros.
  ATTNJIT_DEVICE static void load(u32 data, const TensorMap* map, u32 full, int tile, int kv_head,
                                  int batch, u64 policy) {
    mbarrier_arrive_expect_tx(full, kBlocks * Layout::kCopiedBlockBytes);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      tma_load_4d(data + block * Layout::kCopiedBlockBytes, map, full,
                  block * Layout::kCopiedColumns, tile * Config::kTileN, kv_head, batch, policy);
    }
  }
};

}  // namespace attnjit::sm90

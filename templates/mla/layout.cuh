// SPDX-License-Identifier: Apache-2.0
// How the kernels of absorbed MLA, and of head_dim above 256, keep Q, K and V in shared memory,
// in every generation: blocks, their order, their barriers, and where a row belongs.
#pragma once

#include "common/blocks.cuh"
#include "common/integers.cuh"
#include "common/ring.cuh"
#include "common/waits.cuh"
#include "common/work_tiles.cuh"

namespace attnjit::mla {

/// Of four warps that load: the first of V's, where V of its own has warps apart from K's
/// (Config::kLoadsApart).
constexpr int kVLoadWarp = 2;
/// Warps that copy the rows of a tensor's tile, where threads do that.
template <class Config>
constexpr int kTileCopyWarps = Config::kLoadsApart ? kVLoadWarp : kRowCopyWarps;

/// A row of K is the latent part, which is V too, and behind it the rope's. Q and K lie in blocks
/// of columns (common/blocks.cuh): [block][row]. Of head_dim above 256 V is a tensor of its own
/// (Config::kSeparateV): its blocks follow K's in a stage, and K has no rope part.
template <class Config>
struct TilesOf {
  static_assert(Config::kOvDepth % kBlockColumns == 0 && Config::kOvDepth >= kBlockColumns &&
                    Config::kOvDepth <= 512,
                "the latent part is whole blocks, of which O of 64 rows has room for eight");
  static_assert(Config::kQkDepth == Config::kOvDepth ||
                    (!Config::kSeparateV && Config::kQkDepth == Config::kOvDepth + kBlockColumns),
                "the rope's part is a block, or there is none");
  static_assert(Config::kTileM == Config::kCluster * kConsumerRows && Config::kTileN == 64,
                "a CTA's tile is 64 rows and 64 keys");
  static_assert(Config::kGqaShift <= 7 && ((1 << Config::kGqaShift) >= Config::kGroup ||
                                           (Config::kSeparateV && Config::kGqaShift == 0)),
                "a row is position << kGqaShift | head, or all rows are of one head");
  static_assert(Config::kRowCopies ||
                    (Config::kTileN % Config::kBoxKeys == 0 && Config::kBoxKeys % 8 == 0),
                "a KV tile is whole boxes, each of whole swizzle periods");

  static constexpr int kQkBlocks = Config::kQkDepth / kBlockColumns;
  static constexpr int kOvBlocks = Config::kOvDepth / kBlockColumns;
  static constexpr int kRopeBlocks = kQkBlocks - kOvBlocks;
  /// Those of a stage: K's, and from the first of V on V's.
  static constexpr int kFirstOfV = Config::kSeparateV ? kQkBlocks : 0;
  static constexpr int kStageBlocks = Config::kSeparateV ? kQkBlocks + kOvBlocks : kQkBlocks;
  /// Blocks of O in each of its halves. Of an odd number both have the one in the middle, and the
  /// first writes it.
  static constexpr int kHalfBlocks = ceil_div(kOvBlocks, 2);
  static constexpr bool kSharedBlock = kOvBlocks % 2 != 0;
  /// The first of a half's blocks.
  ATTNJIT_DEVICE static int first_block(int half) {
    return half == 0 ? 0 : kOvBlocks - kHalfBlocks;
  }
  /// The order in which a tile's blocks are loaded and multiplied: the rope's first, which is
  /// released first.
  static constexpr int block_at(int i) { return i < kRopeBlocks ? kOvBlocks + i : i - kRopeBlocks; }

  /// K is e4m3 in part or in whole, and threads upcast it. Of the format dsv32 the rope's part is
  /// 16-bit.
  static constexpr bool kUpcast = Config::kUpcastBlocks > 0;
  static_assert(!kUpcast || Config::kUpcastBlocks == kOvBlocks ||
                    Config::kUpcastBlocks == kQkBlocks,
                "K's latent part is e4m3, or all of it");

  /// Two CTAs with the heads of one position: each upcasts half of the blocks, for both.
  static constexpr bool kUpcastsForPeer = kUpcast && Config::kCluster > 1;
  static_assert(!kUpcastsForPeer || (Config::kCluster == 2 && Config::kUpcastBlocks % 4 == 0 &&
                                     Config::kUpcastBlocks < kQkBlocks),
                "each of two CTAs has every second pair of blocks");
  /// The CTA that upcasts a block.
  ATTNJIT_DEVICE static int upcaster_of(int block) { return block >> 1 & 1; }

  /// Where warps load the tiles of every second stage each (Config::kStageLoaders), the consumer
  /// that makes S of such a stage releases its own half of V before the other does. NOTE: not
  /// with partition_keys: S is a sum in the order of blocks, and a tile's stage depends on what the
  /// CTA had before, so that a row's last bits would depend on its batch.
  static constexpr bool kOwnHalfFirst = Config::kStageLoaders > 1 && Config::kPartitionTiles == 0;
  /// Where threads upcast K, the other half's blocks are full first (mla/upcasting.cuh). NOTE: what
  /// a list shows comes with block_at(0), which is the first of both orders if it is the rope's.
  static constexpr bool kOtherHalfFirst =
      kUpcast && kRopeBlocks > 0 && Config::kPartitionTiles == 0;
  /// The same order, for a tile of which the consumer of that half of O makes S.
  ATTNJIT_DEVICE static int block_at(int i, int half) {
    if ((!kOwnHalfFirst && !kOtherHalfFirst) || i < kRopeBlocks) return block_at(i);
    return from_half(i - kRopeBlocks, kOwnHalfFirst ? half : 1 - half);
  }
  /// The half of V that is released first: of the consumer that makes S of a stage's tiles, or
  /// always the same.
  ATTNJIT_DEVICE static int free_half(int stage) { return Config::kTwoReaders ? stage & 1 : 0; }
  /// The i-th latent block, where those of a half come first.
  ATTNJIT_DEVICE static int from_half(int i, int half) {
    const int block = i + first_block(half);
    return block < kOvBlocks ? block : block - kOvBlocks;
  }

  static constexpr int kBlockBytes = 64 * kBlockRowBytes;
  static constexpr int kTileBytes = kQkBlocks * kBlockBytes;  ///< of Q, of K, and of V of its own
  static constexpr int kSlotBytes = kStageBlocks * kBlockBytes;

  static_assert(Config::kQOffset % kSwizzlePeriod == 0 && Config::kKvOffset % kSwizzlePeriod == 0,
                "tiles begin at multiples of the swizzle's 1024 bytes");
  static_assert(Config::kKvOffset >= Config::kQOffset + kTileBytes &&
                    Config::kWorkOffset >= Config::kKvOffset + Config::kSlots * kSlotBytes &&
                    Config::kBarrierOffset >= Config::kWorkOffset + Config::kWorkBytes &&
                    Config::kSmemBytes >= Config::kBarrierOffset + 8 * Config::kBarriers,
                "Q, K, the published work and the barriers must not overlap");
  static_assert(Config::kTopk == 0 ||
                    (Config::kRowCopies && Config::kTopk % Config::kTileN == 0 &&
                     (1 << Config::kGqaShift) % kConsumerRows == 0 &&
                     Config::kListedOffset >= Config::kKvOffset + Config::kSlots * kSlotBytes &&
                     Config::kWorkOffset >= Config::kListedOffset + 16 * Config::kStages),
                "a tile's rows are of one position, and its keys are of one list");
  static_assert(Config::kSlots == Config::kStages ||
                    (Config::kSeparateV && Config::kSlots == 1 && Config::kStages == 2),
                "each stage has memory, or two take turns with it");
  static_assert(Config::kSeparateV || !Config::kLoadsApart, "V of K's memory is loaded with K");
  static_assert(Config::kStageLoaders == 1 ||
                    (Config::kStageLoaders == 2 && !Config::kSeparateV && !Config::kRowCopies &&
                     Config::kCluster == 1 && Config::kStages % 2 == 0),
                "a warp alone loads, or two of them every second stage each");
  static_assert(!Config::kStashesCursors ||
                    (Config::kCursorsOffset % 16 == 0 &&
                     Config::kCursorsOffset >= Config::kKvOffset + Config::kSlots * kSlotBytes &&
                     Config::kWorkOffset >= Config::kCursorsOffset + kCursorBytes * kRowCopyWarps),
                "the cursors of tile schedulers lie between K and the published work");
  static_assert(Config::kWorkOffset % 16 == 0 && Config::kBarrierOffset % 8 == 0,
                "16 bytes are stored at a time, and a barrier is 8");
  /// The KV tile whose memory the one of a stage gets. NOTE: stages that take turns with one slot
  /// of memory have barriers apart: of K each warpgroup waits for every second tile, and a
  /// barrier's parity cannot tell the one from the next but one.
  ATTNJIT_DEVICE static int stage_before(int stage) {
    return Config::kSlots == Config::kStages ? stage : stage ^ 1;
  }
  ATTNJIT_DEVICE static int parity_before(int stage, int parity) {
    return Config::kSlots == Config::kStages ? parity ^ 1 : parity ^ stage ^ 1;
  }

  /// The barriers that TileMemory names.
  static constexpr int kTileBarriers =
      3 + kQkBlocks + 2 * Config::kStages * kStageBlocks +
      (kLengthsDiffer<Config> && !Config::kRowCopies ? Config::kStageLoaders : 0);
};

/// Addresses in the shared window.
template <class Config>
struct TileMemory : CtaMemory<Config> {
  using Tiles = TilesOf<Config>;
  using CtaMemory<Config>::CtaMemory;
  using CtaMemory<Config>::barrier;
  using CtaMemory<Config>::base;

  ATTNJIT_DEVICE u32 q(int block) const {
    return base + Config::kQOffset + block * Tiles::kBlockBytes;
  }
  ATTNJIT_DEVICE u32 kv(int stage, int block) const {
    const int slot = Config::kSlots == Config::kStages ? stage : 0;
    return base + Config::kKvOffset + (slot * Tiles::kStageBlocks + block) * Tiles::kBlockBytes;
  }
  ATTNJIT_DEVICE u32 work() const { return base + Config::kWorkOffset; }
  /// Where the list of a warp that loads stands.
  ATTNJIT_DEVICE u32 cursor(int warp) const {
    return base + Config::kCursorsOffset + kCursorBytes * warp;
  }
  /// Which keys of a tile are listed: a word of each warp that copies.
  ATTNJIT_DEVICE u32 listed(int stage) const { return base + Config::kListedOffset + 16 * stage; }

  // Full: what is copied has landed. Empty: its readers are done.
  ATTNJIT_DEVICE u32 work_full() const { return barrier(Config::kBarWorkFull); }
  ATTNJIT_DEVICE u32 work_empty() const { return barrier(Config::kBarWorkEmpty); }
  ATTNJIT_DEVICE u32 q_full(int block) const { return barrier(Config::kBarQFull + block); }
  ATTNJIT_DEVICE u32 q_empty() const { return barrier(Config::kBarQEmpty); }
  ATTNJIT_DEVICE u32 kv_full(int stage, int block) const {
    return barrier(Config::kBarKvFull + stage * Tiles::kStageBlocks + block);
  }
  ATTNJIT_DEVICE u32 kv_empty(int stage, int block) const {
    return barrier(Config::kBarKvEmpty + stage * Tiles::kStageBlocks + block);
  }
  /// The copies of a KV tile have landed in which rows past the end are still to be zeroed by the
  /// warp that loaded it.
  ATTNJIT_DEVICE u32 tail_full(int loader) const { return barrier(Config::kBarTail + loader); }
};

/// The key-value head of a query head; absorbed MLA has one.
template <class Config>
ATTNJIT_DEVICE int kv_head_of(int head) {
  return Config::kSeparateV ? head / Config::kGroup : 0;
}

/// Where a row of a work tile belongs.
struct OutputRow {
  int position;  ///< of its sequence
  int head;
  bool real;  ///< there is such a row
};

/// `row` counts from the sequence's first.
template <class Config, class Arguments>
ATTNJIT_DEVICE OutputRow output_row(const WorkTile& work, int row, const Arguments& arguments) {
  const int position = row >> Config::kGqaShift;
  const bool real = position < lengths_of<Config>(work, arguments).q && has_head<Config>(row);
  return {position, work.head + head_of_row<Config>(row), real};
}

/// Which of its tile's rows it is: tiles begin at multiples of their rows.
template <class Config>
ATTNJIT_DEVICE int row_of_tile(int row) {
  return row & (Config::kTileM - 1);
}

/// Where O of such a row begins.
template <class Config, class Arguments>
ATTNJIT_DEVICE unsigned char* output_address(const WorkTile& work, const OutputRow& row,
                                             const Arguments& arguments) {
  return arguments.o + q_batch<Config>(work) * arguments.o_batch_bytes +
         (work.q_begin + row.position) * arguments.o_row_bytes + row.head * arguments.o_head_bytes;
}

/// The work tile that the producer publishes next, for a converged warp; batch -1 after the last.
template <class Config, class Memory>
ATTNJIT_DEVICE WorkTile next_work(const Memory& smem, int& work_parity, int lane) {
  smem.next_work_tile();
  smem.wait(smem.work_full(), work_parity);
  work_parity ^= 1;
  const WorkTile work = load_work<Config>(smem.work(), lane);
  if (lane == 0) mbarrier_arrive(smem.work_empty());
  return work;
}

}  // namespace attnjit::mla

// SPDX-License-Identifier: Apache-2.0
// Shared memory, tensor memory and barriers of the sm_100a forward kernel: what Config must say,
// and what follows.
#pragma once

#include "common/blocks.cuh"
#include "common/cut_table.cuh"
#include "common/integers.cuh"
#include "common/tcgen05.cuh"
#include "common/waits.cuh"

namespace attnjit::sm100 {

/// Named barrier: the correction warps have read the last of tensor memory; 0 is the CTA's.
constexpr int kTeardownBarrier = 1;
/// The four correction warps, which arrive, and the MMA warp.
constexpr int kTeardownThreads = 128 + 32;
/// And the next: a softmax warpgroup's threads have brought the scales of a KV tile.
constexpr int kKeyScalesBarrier = 2;

/// Work tiles that are published at a time, where Config::kPublished, and the bytes of each, and of
/// the only one of a CTA.
constexpr int kWorkSlots = 2;
constexpr int kWorkBytes = 64;

/// What is said of a key that has scales of its own: its k_scale, the logarithm of its v_scale to
/// base 2, and the reciprocal of that v_scale.
constexpr int kKeyNumbers = 3;
constexpr int kKeyScale = 0, kLogValueScale = 1, kInverseValueScale = 2;

/// Rows of a product: queries of a softmax warpgroup, one a thread.
constexpr int kRows = 128;

/// Parts in which P of a tile is signalled.
template <class Config>
constexpr int parts_of_p() {
  return Config::kPvParts;
}

/// Whether a CTA steals the work tiles of CTAs that have not started. The plan says so.
template <class Config>
constexpr bool steals_tiles() {
  return Config::kLaunchControl;
}

/// Tiles lie in blocks of columns whose rows are a swizzle wide: [block][row], and Q as [query
/// tile] [block][128 rows]. A row of a block of O has 128 bytes, whatever its type
/// (common/blocks.cuh).
template <class Config>
struct LayoutOf {
  /// Of Q and K, and of P and V but where these are upcast.
  static constexpr MmaOperand kOperand = Config::kE4m3   ? MmaOperand::kE4m3
                                         : Config::kBf16 ? MmaOperand::kBf16
                                                         : MmaOperand::kFp16;
  /// Of P and V. Upcast V is fp16, which holds each number of e4m3, and takes half of the
  /// instructions of bf16.
  static constexpr MmaOperand kPvOperand = Config::kUpcastsKv ? MmaOperand::kFp16 : kOperand;
  static constexpr int kElementBytes = Config::kE4m3 ? 1 : 2;
  /// Columns in 16 bytes, which TMA and the swizzles move as one.
  static constexpr int kUnitColumns = 16 / kElementBytes;
  static constexpr int kRowBytes = Config::kSwizzleBytes;
  static constexpr int kRowUnits = kRowBytes / 16;
  static constexpr int kColumns = kRowBytes / kElementBytes;
  /// What one product contracts, and how many contract a block of Q and K.
  static constexpr int kStepColumns = 32 / kElementBytes;
  static constexpr int kBlockSteps = kRowBytes / 32;
  static_assert(kRowBytes == 128 || (Config::kE4m3 && kRowBytes == 64),
                "blocks have the 128-byte swizzle; those of e4m3 may have the 64-byte one");

  static_assert(Config::kQkDepth % kUnitColumns == 0 && Config::kOvDepth % kUnitColumns == 0,
                "rows are multiples of 16 bytes: TMA strides are");
  static_assert((Config::kOutputBytes == 1 || Config::kOutputBytes == 2 ||
                 Config::kOutputBytes == 4) &&
                    Config::kOvDepth * Config::kOutputBytes % 16 == 0,
                "O is e4m3, bf16, fp16 or f32, and its rows are multiples of 16 bytes, too");
  static_assert(Config::kOvDepth >= 8 && Config::kOvDepth <= Config::kQkDepth,
                "a row of V is no longer than a row of K");
  static_assert(Config::kNumQo == 1 || Config::kNumQo == 2,
                "a softmax warpgroup owns a query tile, or the two share one");
  static_assert(Config::kTileN % 32 == 0 && Config::kTileN >= 64 && Config::kTileN <= 160,
                "S is read in batches of 32 columns, and a thread's row of it fits its registers");

  // Warps by rank in the CTA: softmax, correction, a warpgroup that has a warp a job, and where K
  // and V are upcast one that upcasts them.
  static constexpr int kCorrectionWarp = 4 * Config::kSoftmaxWarpgroups;
  static constexpr int kMmaWarp = kCorrectionWarp + 4;
  static constexpr int kLoadWarp = kMmaWarp + 1;
  static constexpr int kStoreWarp = kMmaWarp + 2;
  static constexpr int kSpareWarp = kMmaWarp + 3;
  static constexpr int kUpcastWarp = kSpareWarp + 1;
  static_assert(Config::kThreads == 32 * (kUpcastWarp + Config::kUpcastWarps),
                "every warp has a job");
  static constexpr int kLaunchRegisters = 65536 / Config::kThreads / 8 * 8;  // per thread
  static_assert(Config::kSoftmaxWarpgroups * Config::kSoftmaxRegisters +
                        Config::kCorrectionRegisters + Config::kOtherRegisters +
                        Config::kUpcastWarps / 4 * Config::kUpcastRegisters <=
                    kLaunchRegisters * (Config::kThreads / 128),
                "setmaxnreg waits for ever for registers that the CTA was not launched with");

  /// Two CTAs, a pair, multiply together (cta_group::2): a product has 256 rows, of which each has
  /// 128, and each loads half of K's rows and of V's columns. They walk the KV tiles that either
  /// sees. The first of them, the leader, issues every product.
  static constexpr int kCtas = Config::kCluster;
  static constexpr bool kPair = kCtas == 2;
  static_assert(kCtas == 1 || kCtas == 2, "a CTA multiplies alone, or with another");

  /// One softmax warpgroup has the one query tile and all its KV tiles. S has two buffers, which
  /// the tiles take by turns, and there is a single accumulator. What is counted by warpgroups
  /// elsewhere is then counted by buffers of S.
  static constexpr bool kSingleAccumulator = Config::kSoftmaxWarpgroups == 1;
  static_assert(!kSingleAccumulator || Config::kNumQo == 1, "it is one query tile's");
  /// Where partitions have fixed keys a row's bits are its own: a warpgroup has a query tile to
  /// itself, also where the other has no rows.
  static constexpr bool kAlwaysTwo = Config::kPartitionTiles > 0 && !kSingleAccumulator;
  /// Decodes that are dealt out have one query tile for each head.
  static constexpr bool kAlwaysOne = Config::kCuts && !Config::kRagged;
  static_assert(!Config::kUpcastsKv || (!Config::kE4m3 && Config::kQkStages == 1),
                "K and V are upcast to 16 bits, whole tiles");
  /// Q is copied to tensor memory, from where the products read it.
  static constexpr bool kQInTmem = Config::kTmemQ >= 0;

  static_assert(Config::kPvKeys0 % kStepColumns == 0 && Config::kPvKeys1 % kStepColumns == 0 &&
                    Config::kPvKeys0 + (parts_of_p<Config>() - 1) * Config::kPvKeys1 ==
                        Config::kTileN,
                "P is signalled in parts of whole steps: a first one, and others of one size");
  static_assert(Config::kStages >= 2, "K and V need two stages to be loaded ahead");
  static_assert(!Config::kFusedKv || Config::kQkStages == 1,
                "a slot that K and V share has one barrier");

  /// The rope part of Q and K may have 16 bits beside e4m3. It is a block of columns of its own
  /// then, whose rows have 128 bytes, behind the others of each query tile, and of each tile of K.
  static constexpr bool kSeparateRope = Config::kSeparateRope;
  static constexpr MmaOperand kRopeOperand =
      Config::kRopeBf16 ? MmaOperand::kBf16 : MmaOperand::kFp16;
  static constexpr int kRopeColumns = kBlockRowBytes / 2;
  static constexpr int kRopeSteps = kSeparateRope ? kBlockRowBytes / 32 : 0;
  static_assert(!kSeparateRope ||
                    (Config::kE4m3 && Config::kQkDepth - Config::kOvDepth == kRopeColumns &&
                     Config::kQkStages == 1 && !kPair && !kSingleAccumulator &&
                     !Config::kRowCopies && !Config::kFuseGqa),
                "a rope part of its own type is MLA's, beside e4m3");
  /// Columns of Q and K of the type of both, and their blocks.
  static constexpr int kQkColumns = kSeparateRope ? Config::kOvDepth : Config::kQkDepth;
  static constexpr int kQkBlocks = ceil_div(kQkColumns, kColumns);
  static constexpr int kOvBlocks = ceil_div(Config::kOvDepth, kColumns);
  /// Columns of O in 16 bytes, and in a block.
  static constexpr int kOutputUnitColumns = 16 / Config::kOutputBytes;
  static constexpr int kOutputBlockColumns = kBlockRowBytes / Config::kOutputBytes;
  static constexpr int kOutputBlocks = ceil_div(Config::kOvDepth, kOutputBlockColumns);
  /// Steps of Q K^T, the last perhaps over zero-filled columns; steps of P V.
  static constexpr int kQkSteps = ceil_div(kQkColumns, kStepColumns);
  static constexpr int kPvSteps0 = Config::kPvKeys0 / kStepColumns;
  static constexpr int kPvSteps = Config::kTileN / kStepColumns;
  /// The steps before part `part` of P, and which part ends at a key; none: -1.
  static constexpr int steps_before_part(int part) {
    return part == 0 ? 0 : kPvSteps0 + (part - 1) * (Config::kPvKeys1 / kStepColumns);
  }
  static constexpr int part_that_ends(int key) {
    for (int part = 0; part < parts_of_p<Config>(); ++part) {
      if (kStepColumns * steps_before_part(part + 1) == key) return part;
    }
    return -1;
  }
  /// Columns of P V: whole blocks, the last perhaps filled up with zeros. NOTE: PTX's canonical
  /// layouts of an MN-major operand (9.7.16.4) are whole swizzle atoms wide, and no published
  /// kernel multiplies a part of one (docs/sm100.md).
  static constexpr int kPvColumns = kColumns * kOvBlocks;
  /// Columns of O that are read.
  static constexpr int kOutputColumns = 16 * ceil_div(Config::kOvDepth, 16);
  /// Q and K arrive in kQkStages chunks of columns, each with its barrier.
  static constexpr int kChunkBlocks = kQkBlocks / Config::kQkStages;
  static constexpr int kChunkSteps = kBlockSteps * kChunkBlocks;
  static_assert(kChunkBlocks * Config::kQkStages == kQkBlocks, "chunks are whole blocks");

  static constexpr int kQBlockBytes = kRows * kRowBytes;
  static constexpr int kOBlockBytes = kRows * kBlockRowBytes;
  /// O is staged in its query tile's memory, which holds the larger of the two. Or it has buffers
  /// of a block each, which a CTA's blocks take by turns.
  static constexpr bool kOOverQ = Config::kOBuffers == 0;
  static constexpr int kQBytes =
      kQkBlocks * kQBlockBytes + (kSeparateRope ? kRows * kBlockRowBytes : 0);
  static constexpr int kQTileBytes =
      kOOverQ && kQBytes < kOutputBlocks * kOBlockBytes ? kOutputBlocks * kOBlockBytes : kQBytes;
  /// What a CTA has of a tile of K, its rows, and of V, its columns.
  static constexpr int kKRows = Config::kTileN / kCtas;
  static constexpr int kVBlocks = kOvBlocks / kCtas;
  static_assert(kKRows * kCtas == Config::kTileN && kVBlocks * kCtas == kOvBlocks,
                "the CTAs of a pair have as much of K and of V");
  static constexpr int kKBlockBytes = kKRows * kRowBytes;
  static constexpr int kVBlockBytes = Config::kTileN * kRowBytes;
  /// Blocks of K that lie in its stage; the others, its rope part, in a buffer of their own. A rope
  /// part of its own type follows them in a ring of K alone.
  static constexpr int kKStageBlocks = Config::kRopeBuffers > 0 ? kOvBlocks : kQkBlocks;
  static constexpr int kRopeBytes =
      kSeparateRope ? kKRows * kBlockRowBytes : (kQkBlocks - kKStageBlocks) * kKBlockBytes;
  static constexpr int kKTileBytes = kQkBlocks * kKBlockBytes + (kSeparateRope ? kRopeBytes : 0);
  static_assert(Config::kRopeBuffers == 0 || Config::kFusedKv,
                "in a ring of its own K has its rope part in its stage");
  static_assert(Config::kKStageBytes >=
                        (Config::kRopeBuffers > 0 ? kKStageBlocks * kKBlockBytes : kKTileBytes) &&
                    Config::kVStageBytes >= kVBlocks * kVBlockBytes,
                "a stage holds a tile");
  static_assert(Config::kQOffset % kSwizzlePeriod == 0 && Config::kOOffset % kSwizzlePeriod == 0 &&
                    Config::kKOffset % kSwizzlePeriod == 0 &&
                    Config::kVOffset % kSwizzlePeriod == 0 &&
                    Config::kKRopeOffset % kSwizzlePeriod == 0 &&
                    Config::kKStageBytes % kSwizzlePeriod == 0 &&
                    Config::kVStageBytes % kSwizzlePeriod == 0 &&
                    kKBlockBytes % kSwizzlePeriod == 0 && kVBlockBytes % kSwizzlePeriod == 0,
                "the swizzles repeat every 1024 bytes or 512: tiles begin at multiples of that");
  static_assert(Config::kTmemColumns >= Config::kTmemO1 + kPvColumns &&
                    (kSingleAccumulator ? Config::kTmemO1 == Config::kTmemO0
                                        : Config::kTmemO1 >= Config::kTmemO0 + kPvColumns) &&
                    Config::kTmemO0 >= Config::kTmemS1 + Config::kTileN &&
                    Config::kTmemS1 >= Config::kTmemS0 + Config::kTileN,
                "S and O of both warpgroups fit the allocated columns");
  static_assert(!kQInTmem || (Config::kTmemQ >= Config::kTmemO1 + kPvColumns &&
                              Config::kTmemColumns >= Config::kTmemQ + 8 * kQkSteps),
                "Q fits behind O");

  /// Rows of a box of K or V, which are of one page: a tile is one box or several.
  static constexpr bool kPaged = Config::kPageSize > 0;
  static constexpr int kBoxRows = Config::kBoxRows;
  /// K and V come by TMA. Elsewhere threads load them.
  static constexpr bool kBoxesOfKeys = !Config::kRowCopies && !Config::kUpcastsKv;
  static_assert(!kBoxesOfKeys || (Config::kTileN % kBoxRows == 0 && kBoxRows % 8 == 0 &&
                                  (!kPaged || Config::kPageSize % kBoxRows == 0)),
                "a tile and a page are whole boxes, of whole swizzle patterns");
  /// Sequences differ in kv_len.
  static constexpr bool kKvLens = kPaged || Config::kRagged || Config::kRaggedKv;
  /// V's rows past a sequence's end are zeroed when TMA has brought them.
  static constexpr bool kTails = kKvLens && kBoxesOfKeys;
  static_assert(!kPair ||
                    ((Config::kNumQo == 2 || kSingleAccumulator) && !kQInTmem && kBoxesOfKeys &&
                     !Config::kPublished && !Config::kBlockMask && !Config::kSwitchTo1Q),
                "a pair's keys come by TMA, and its work is not published");

  /// A CTA has one work tile, or walks several: then what one used is released to the next.
  static_assert(!Config::kCounted || (Config::kPublished && !kKvLens && !Config::kSplit),
                "a warp that counts work tiles off publishes them");
  static_assert(!steals_tiles<Config>() || (Config::kCounted && !Config::kUpcastsKv),
                "the load warp's thread asks for a work tile, and a warp publishes it");
  static_assert(!Config::kSkipsTiles || Config::kOneWorkTile || Config::kPublished,
                "one warp asks what an expression shows");
  static_assert(!Config::kOneWorkTile || !Config::kPublished,
                "work is published for CTAs with several work tiles");
  static_assert(!kKvLens || Config::kOneWorkTile || Config::kPublished,
                "where sequences differ in length a CTA finds no second work tile by counting");
  /// A buffer of O holds several blocks of a CTA, one after another.
  static constexpr bool kReusesO =
      !kOOverQ && (!Config::kOneWorkTile || Config::kNumQo * kOutputBlocks > Config::kOBuffers);

  static_assert(Config::kBarSCons >= 0 && Config::kBarC >= 0 && Config::kBarSProd >= 0 &&
                    Config::kBarQProd >= 0 && Config::kBarKProd >= 0 && Config::kBarKCons >= 0 &&
                    Config::kBarVProd >= 0 && Config::kBarVCons >= 0 && Config::kBarOProd >= 0 &&
                    Config::kBarOStaged >= 0 && (Config::kBarQCons >= 0) == !Config::kOneWorkTile &&
                    (Config::kBarOCons >= 0) == kReusesO && (Config::kBarVTail >= 0) == kTails &&
                    (Config::kBarPairTail >= 0) == (kTails && kPair) &&
                    (Config::kBarWork >= 0) == Config::kPublished,
                "the plan has every barrier that the kernel names");

  /// Positions of the sequence in 128 rows: with fused heads, kGroup rows are of one position.
  static constexpr int kFused = Config::kFuseGqa ? Config::kGroup : 1;
  static constexpr int kPositions = kRows / kFused;
  /// From a CTA's query tile to its second one: a pair's tiles alternate.
  static constexpr int kTileStep = kPositions * kCtas;
  /// Rows of a box of Q or O; those behind them belong to nobody.
  static constexpr int kBoxQRows = kPositions * kFused;
  static_assert(kPositions > 0, "a query tile holds whole groups of heads");

  /// Where the swizzle has 16 bytes of a row of a block of Q, K or V.
  ATTNJIT_DEVICE static u32 swizzled(int row, int unit) {
    return static_cast<u32>(row * kRowBytes + ((unit ^ row / (8 / kRowUnits) % kRowUnits) << 4));
  }
};

/// Addresses in the shared window. Barriers: docs/sm100.md has who arrives and who waits.
template <class Config>
struct Smem : CtaMemory<Config> {
  using Layout = LayoutOf<Config>;
  using CtaMemory<Config>::CtaMemory;
  using CtaMemory<Config>::barrier;
  using CtaMemory<Config>::base;

  ATTNJIT_DEVICE void wait(u32 barrier, int parity) const {
    if constexpr (Config::kDebugWaits) {
      CtaMemory<Config>::wait(barrier, parity);
    } else {
      mbarrier_await(barrier, parity);
    }
  }
  /// Whether products of this CTA, or of the pair, are issued here.
  ATTNJIT_DEVICE static bool leads() {
    if constexpr (Layout::kPair) return cluster_rank() == 0;
    return true;
  }
  /// Whether a barrier hears of what this CTA loads alone: of a pair that of V's tail.
  template <bool kIsV>
  ATTNJIT_DEVICE bool is_own(u32 barrier) const {
    if constexpr (Layout::kPair && kIsV && Layout::kTails) return barrier == tail_full();
    return !Layout::kPair;
  }
  /// The barrier that hears of what is loaded, elsewhere the leader's that lies there.
  template <bool kIsV>
  ATTNJIT_DEVICE u32 hearing(u32 barrier) const {
    return is_own<kIsV>(barrier) ? barrier : shared_address_in(barrier, 0);
  }
  /// Expects bytes that are about to be loaded, by each CTA as many: the leader for both.
  template <bool kIsV>
  ATTNJIT_DEVICE void expect_bytes(u32 barrier, int bytes) const {
    if (is_own<kIsV>(barrier)) {
      mbarrier_arrive_expect_tx(barrier, bytes);
    } else if (leads()) {
      mbarrier_arrive_expect_tx(barrier, Layout::kCtas * bytes);
    }
  }
  /// One arrival for the warp at a barrier of the MMA thread, which is the leader's: says what its
  /// lanes did in tensor memory before their tcgen05.fence.
  ATTNJIT_DEVICE static void arrive_warp_at_leader(u32 barrier) {
    if constexpr (Layout::kPair) {
      __syncwarp();
      if (elect_one()) mbarrier_arrive_relaxed_at(barrier, 0);
    } else {
      arrive_warp(barrier);
    }
  }
  /// The MMA thread's wait for such arrivals, before its own tcgen05.fence.
  ATTNJIT_DEVICE void wait_for_warps(u32 barrier, int parity) const {
    if constexpr (Layout::kPair) {
      // NOTE: a bounded wait is for the phase alone: it sees no other CTA's arrivals.
      if constexpr (Config::kDebugWaits) this->wait(barrier, parity);
      mbarrier_wait_relaxed_cluster(barrier, parity);
    } else {
      this->wait(barrier, parity);
    }
  }

  /// The query tile `tile`, whose memory O takes afterwards where Layout::kOOverQ.
  ATTNJIT_DEVICE u32 q(int tile) const {
    return base + Config::kQOffset + static_cast<u32>(tile * Layout::kQTileBytes);
  }
  /// Its rope part, where that has a type of its own.
  ATTNJIT_DEVICE u32 q_rope(int tile) const {
    return q(tile) + static_cast<u32>(Layout::kQkBlocks * Layout::kQBlockBytes);
  }
  /// A buffer of a block of O, elsewhere.
  ATTNJIT_DEVICE u32 o_buffer(int buffer) const {
    return base + Config::kOOffset + static_cast<u32>(buffer * Layout::kOBlockBytes);
  }
  /// What a softmax thread publishes to the correction warps: a factor or a sum, and a maximum.
  ATTNJIT_DEVICE u32 correction_slot(int warpgroup, int which, int row) const {
    return base + Config::kCorrectionOffset +
           static_cast<u32>(4 * ((2 * warpgroup + which) * kRows + row));
  }
  /// What a softmax warpgroup knows of a KV tile's keys (sm100/scales.cuh), a float each.
  ATTNJIT_DEVICE u32 key_scales(int warpgroup, int buffer, int which) const {
    return base + Config::kKeyScalesOffset +
           static_cast<u32>(4 * ((2 * warpgroup + buffer) * kKeyNumbers + which) * Config::kTileN);
  }
  ATTNJIT_DEVICE u32 tmem_address() const { return base + Config::kTmemAddressOffset; }
  /// A work tile that is said to all roles: one that is published, or the only one of a CTA.
  ATTNJIT_DEVICE u32 work_slot(int slot) const {
    return base + Config::kWorkOffset + static_cast<u32>(slot * kWorkBytes);
  }

  /// What is known of cuts (common/cuts.cuh), where tiles are cut.
  ATTNJIT_DEVICE u32 cuts() const { return work_slot(kWorkSlots); }

  /// S of a warpgroup is in tensor memory.
  ATTNJIT_DEVICE u32 s_full(int warpgroup) const { return barrier(Config::kBarSProd + warpgroup); }
  /// Part `part` of P is in tensor memory; the first also says that O may be added to.
  ATTNJIT_DEVICE u32 p_full(int warpgroup, int part) const {
    return barrier(Config::kBarSCons + parts_of_p<Config>() * warpgroup + part);
  }
  /// The correction slot is written; has been read. Of a pair each has a phase of both. Elsewhere
  /// that a factor was read is said by the phase of a P, and only the last one has one of its own.
  ATTNJIT_DEVICE u32 correction_slot_full(int warpgroup) const {
    return barrier(Config::kBarC + 2 * warpgroup);
  }
  ATTNJIT_DEVICE u32 correction_slot_empty(int warpgroup) const {
    return barrier(Config::kBarC + 2 * warpgroup + 1);
  }
  /// O of a warpgroup is complete in tensor memory; where there is a single accumulator, for the
  /// tiles so far.
  ATTNJIT_DEVICE u32 o_full(int warpgroup) const { return barrier(Config::kBarOProd + warpgroup); }
  /// A chunk of a query tile has landed.
  ATTNJIT_DEVICE u32 q_full(int tile, int chunk) const {
    return barrier(Config::kBarQProd + tile * Config::kQkStages + chunk);
  }
  /// A query tile's memory is free: its products have read it. Where Layout::kOOverQ: the O in it
  /// has been read by its store, and the load has seen the phase before.
  ATTNJIT_DEVICE u32 q_empty(int tile) const { return barrier(Config::kBarQCons + tile); }
  /// O is in shared memory, of a query tile, or a block of it in a buffer; the buffer's has been
  /// read by its store.
  ATTNJIT_DEVICE u32 o_staged(int index) const { return barrier(Config::kBarOStaged + index); }
  ATTNJIT_DEVICE u32 o_empty(int buffer) const { return barrier(Config::kBarOCons + buffer); }
  /// The last V tile of a sequence has landed, rows past its end included.
  ATTNJIT_DEVICE u32 tail_full() const { return barrier(Config::kBarVTail); }
  /// The leader's: the pair's other CTA has cleared its columns of it.
  ATTNJIT_DEVICE u32 pair_tail() const { return barrier(Config::kBarPairTail); }
  /// A work tile is published; has been read by every role.
  ATTNJIT_DEVICE u32 work_full(int slot) const { return barrier(Config::kBarWork + slot); }
  ATTNJIT_DEVICE u32 work_empty(int slot) const {
    return barrier(Config::kBarWork + kWorkSlots + slot);
  }
  /// Where steals_tiles(): the answer to who asks for a work tile, and its barrier. Where CTAs
  /// take tiles from counters the barrier says that the next one may be taken.
  ATTNJIT_DEVICE u32 answer() const { return work_slot(kWorkSlots); }
  ATTNJIT_DEVICE u32 answer_full() const { return barrier(Config::kBarAnswer); }
};

/// Columns of tensor memory. P takes the first columns of the S it comes from.
template <class Config>
struct Tmem {
  u32 base;

  ATTNJIT_DEVICE u32 s(int warpgroup) const {
    return base + static_cast<u32>(warpgroup == 0 ? Config::kTmemS0 : Config::kTmemS1);
  }
  ATTNJIT_DEVICE u32 o(int warpgroup) const {
    return base + static_cast<u32>(warpgroup == 0 ? Config::kTmemO0 : Config::kTmemO1);
  }
  /// What step `step` of Q K^T contracts of Q.
  ATTNJIT_DEVICE u32 q(int step) const {
    return base + static_cast<u32>(Config::kTmemQ + 8 * step);
  }
  /// The lanes that this warp reaches.
  ATTNJIT_DEVICE static u32 lanes(int warp) { return static_cast<u32>(warp & 3) << 21; }
};

}  // namespace attnjit::sm100

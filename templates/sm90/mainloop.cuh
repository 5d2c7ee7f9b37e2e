// SPDX-License-Identifier: Apache-2.0
// The main loop of a consumer warpgroup: 64 query rows against all their KV tiles.
//
// Design: Shah et al., "FlashAttention-3", 2024: S = Q K^T from shared memory, P stays in registers
// as the A operand of O += P V; a tile's S and the P V of the tile before are issued together, and
// warpgroups take turns at issuing them, so that one's softmax runs under another's products
// (ping-pong).
#pragma once

#include "sm90/key_scales.cuh"
#include "sm90/origin_softmax.cuh"
#include "sm90/output.cuh"
#include "sm90/products.cuh"
#include "sm90/score_registers.cuh"
#include "sm90/softmax.cuh"
#include "sm90/tile_descriptors.cuh"

namespace attnjit::sm90 {

template <class Config, bool = keys_have_scales<Config>()>
struct SoftmaxOf : OnlineSoftmax<Config, kRowScales<Config>> {};
template <class Config>
struct SoftmaxOf<Config, true> : OriginSoftmax<Config, kRowScales<Config>> {};

/// A yes or no of a warp. NOTE: where registers lack beside scales of keys, a number that is
/// unknown to the compiler. Bools ptxas kept in vector registers, which lack there, and spilled 38
/// to 50 bytes.
struct WarpFlag {
  u32 value;
  ATTNJIT_DEVICE void operator=(bool yes) { value = opaque(yes); }
  ATTNJIT_DEVICE operator bool() const { return value != 0; }
};
template <class Config>
using WarpFlagOf = Either<rematerializes_rows<Config>(), WarpFlag, bool>;

/// A consumer's rows of one work tile, and what they have come to so far. KV tiles are walked from
/// the last to the first.
template <class Config, class ScoreMod>
struct QueryRows {
  WorkTile work;                    ///< as published: what the whole CTA walks
  WorkTile own;                     ///< with the KV tiles that these rows see
  KvRange core;                     ///< KV tiles inside it need no mask
  int index;                        ///< the KV tile that is next
  DescriptorOf<Config> descriptor;  ///< of the tile, where tiles are listed
  DescriptorOf<Config> next;        ///< of the one after it
  WarpFlagOf<Config> waits_order;   ///< listed: it is not the first of the work tile
  int first_row;                    ///< the first of the thread's two rows, which are 8 apart
  u32 q_address;
  ScoreTile scores;
  typename ScoreMod::State state[2];
  RowScales<kRowScales<Config>> scale;  ///< of the products of its rows with keys
  SoftmaxOf<Config> softmax;
  u32 (&p)[LayoutOf<Config>::kPWords];

  ATTNJIT_DEVICE bool left() const { return index >= own.tile_begin; }
  ATTNJIT_DEVICE bool in_core() const {
    const int first = index * Config::kTileN;
    return first >= core.begin && core.end - first >= Config::kTileN;
  }
};

/// A consumer: where it stands in the pipelines, and what it does with a work tile's KV tiles.
///
/// S of a tile is made while P V of the tile before is: tile(). The first tiles of a work tile
/// stand by themselves, first_tile(), and after the last one a product is left, last_product().
/// Tiles that its rows do not see, but others of the CTA do, it lets pass: skip().
template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
struct Mainloop {
  using Layout = LayoutOf<Config>;
  using Rows = QueryRows<Config, ScoreMod>;
  using Descriptor = DescriptorOf<Config>;
  using Scores = float[Config::kTileN / 2];
  using Bits = ColumnBits<Config::kTileN / 2>;
  /// Whether bits of a masked tile are found before there are scores, and not with them: of masks
  /// of intervals where a map says of some blocks that the mask is not asked.
  ATTNJIT_DEVICE static constexpr bool asks_first() {
    return !Mask::kInterval || Config::kBlockMask;
  }
  /// Whether probabilities are made in the registers of S. NOTE: not e4m3's, of which products make
  /// the sums, or polynomials some probabilities; nor where keys have scales, which each score
  /// takes. Scores are values then, read before K is released: of e4m3 it was slower otherwise
  /// (docs/performance-sm90.md).
  static constexpr bool kInPlace = !Config::kE4m3 && !keys_have_scales<Config>();
  static constexpr bool kPvBf16 = Layout::kPvOperand == WgmmaOperand::kBf16;
  /// Whether tiles after a first one look for maxima only where they must. NOTE: not where P is
  /// e4m3, which is saturated so soon that many tiles would; not where K and V are upcast, whose P
  /// has a bias; not where a row's bits must not depend on the rows beside it. With more columns of
  /// V it gains nothing, since products are the bound.
  static constexpr bool kFollows =
      !Config::kE4m3 && !Config::kUpcastsKv && !Config::kRescaleByRow && Layout::kPvColumns <= 128;
  /// Whether P V of a tile whose rows see no more is multiplied where P V before a masked tile is,
  /// for compile time. NOTE: of tiles of more keys the loop of full tiles grows by an eighth, and
  /// three consumers would spill; ptxas would serialise products beside scores or sums that are
  /// values (C7515, C7517, C7518).
  static constexpr bool kOnePv =
      kInPlace && !Config::kDebugWaits && !Config::kBlockMask && Config::kTileN <= 80;
  /// Whether the address of Q is found again with each tile. NOTE: of one that stays as it is ptxas
  /// keeps a descriptor for each step of Q, for which registers lack beside numbers that are added.
  static constexpr bool kFindsQ = stashes_work<Config>() && Config::kQStages == 1 &&
                                  Config::kQkDepth > 192 && !Config::kE4m3 && !Config::kUpcastsKv &&
                                  ScoreMod::kReads;
  /// Where O is staged: in memory of its own, if at all, or in Q's, which it then holds until it is
  /// stored.
  static constexpr bool kSeparateO = Config::kOBlocks > 0 || Layout::kOFromRegisters;

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  int rank;                     ///< among the consumers
  int kept_next_order_barrier;  ///< the next one's, where it is kept
  int lane;
  int warp;  ///< of the warpgroup's four
  Ring k_ring;
  Ring v_ring;
  Ring q_ring;
  float row_sums[4];    ///< of the last P multiplied, where rows are summed by product
  int unreleased = -1;  ///< the stage of Q whose memory holds the O of the work tile before
  KeyScales<Config> key_scales;

  ATTNJIT_DEVICE Mainloop(const Smem<Config>& memory, const Arguments& launch, const Params& user,
                          int consumer)
      : smem(memory),
        arguments(launch),
        params(user),
        rank(consumer),
        kept_next_order_barrier(rematerializes_rows<Config>() ? 0 : next_barrier<Config>(consumer)),
        lane(static_cast<int>(threadIdx.x & 31u)),
        warp(warp_uniform(static_cast<int>(threadIdx.x >> 5)) & 3),
        key_scales(memory) {}

  /// The next one's order barrier. NOTE: what ptxas knows as loop-invariant it kept in
  /// memory.
  ATTNJIT_DEVICE int next_order_barrier() const {
    if constexpr (rematerializes_rows<Config>()) {
      return next_barrier<Config>(static_cast<int>(opaque(static_cast<u32>(rank))));
    }
    return kept_next_order_barrier;
  }

  /// The warp's number and the consumer's, read again where registers lack, and then not kept.
  /// NOTE: beside scales of keys only with O of more columns, whose products need uniform
  /// registers.
  ATTNJIT_DEVICE static constexpr bool reads_rank() {
    return stashes_work<Config>() || (rematerializes_rows<Config>() && Layout::kPvColumns > 192);
  }
  ATTNJIT_DEVICE int warp_here() const {
    return reads_rank() ? warp_uniform(thread_read_again() >> 5) & 3 : warp;
  }
  ATTNJIT_DEVICE int rank_here() const {
    if constexpr (reads_rank() && Config::kConsumers > 1) {
      return warp_uniform(thread_read_again() >> 7) - Layout::kProducers;
    }
    return rank;
  }

  /// Which group's bits of a descriptor are its own. NOTE: of a number that stays as it is ptxas
  /// keeps the bits, for which registers lack where K and V are upcast and sequences differ.
  ATTNJIT_DEVICE int row_group_mask_bits() const {
    constexpr bool kMade = stashes_work<Config>() && Config::kUpcastsKv && kLengthsDiffer<Config>;
    return kMade ? static_cast<int>(opaque(static_cast<u32>(rank))) : rank;
  }

  // ---- Releasing memory. Each warp arrives for itself.

  ATTNJIT_DEVICE void release_k() {
    if (lane == 0) mbarrier_arrive(smem.k_empty(k_ring.stage));
    k_ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void release_v() {
    if (lane == 0) mbarrier_arrive(smem.v_empty(v_ring.stage));
    v_ring.advance(Config::kVStages);
  }
  /// Where O has memory of its own, Q is free once the last product has read it.
  ATTNJIT_DEVICE void release_q_early() {
    if constexpr (kSeparateO) {
      if (lane == 0) mbarrier_arrive(smem.q_empty(q_ring.stage, rank));
    }
  }
  /// Otherwise, where there is another Q to go on with, once O has been stored under its products.
  ATTNJIT_DEVICE void release_q_late() {
    if constexpr (!kSeparateO && Config::kQStages > 1) {
      if (unreleased >= 0) release_q(smem, unreleased, rank_here(), lane);
      unreleased = -1;
    }
  }

  // ---- Products

  /// NOTE: wgmma reads through the async proxy what cp.async wrote through the generic one.
  /// Who rewrites what comes has fenced.
  ATTNJIT_DEVICE void await_k() {
    smem.wait(smem.k_full(k_ring.stage), k_ring.parity);
    if constexpr (Config::kRowCopies && !kLandsRaw<Config, true>) fence_proxy_async_shared();
  }
  ATTNJIT_DEVICE void await_v() {
    smem.wait(smem.v_full(v_ring.stage), v_ring.parity);
    if constexpr (Config::kRowCopies && !kLandsRaw<Config, false>) fence_proxy_async_shared();
  }

  ATTNJIT_DEVICE void begin_qk(const Rows& rows) {
    issue_qk<Config>(rows.q_address, smem.k(k_ring.stage));
  }
  /// Finds where Q is for the next tile, behind the products of this one.
  ATTNJIT_DEVICE void find_q(Rows& rows) const {
    if constexpr (kFindsQ) rows.q_address = smem.q(0, rank_here());
  }
  ATTNJIT_DEVICE void begin_pv(Rows& rows) {
    issue_pv<Config>(rows.p, smem.v(v_ring.stage));
    if constexpr (sums_by_product<Config>()) issue_row_sums<Config>(row_sums, rows.p, smem.ones());
    wgmma_commit();
  }
  /// Behind the products of a tile.
  ATTNJIT_DEVICE void add_row_sums(Rows& rows) {
    if constexpr (sums_by_product<Config>()) {
      pin_registers(row_sums);
      rows.softmax.add(row_sums);
    }
  }
  /// Makes what earlier tiles have come to relative to the maxima that moved.
  ATTNJIT_DEVICE void correct(Rows& rows, const float (&correction)[2]) {
    OutputOf<Config>::scale(correction);
    if constexpr (sums_by_product<Config>()) rows.softmax.correct(correction);
  }
  /// NOTE: a wgmma wait covers the executing threads' products, so each warp releases for itself.
  template <int kPending>
  ATTNJIT_DEVICE void end_qk(Scores& s, const Rows& rows) {
    wgmma_wait<kPending>();
    if constexpr (!kInPlace) ScoresOf<Config>::read(s);
    if (lane == 0) mbarrier_arrive(smem.k_empty(k_ring.stage));
    if (Config::kBlockSparse ? !rows.next.is_tile() : rows.index == rows.own.tile_begin)
      release_q_early();
    k_ring.advance(Config::kStages);
  }
  ATTNJIT_DEVICE void end_pv() {
    wgmma_wait<0>();
    release_v();
  }
  /// O += P V of the tile before, by itself.
  ATTNJIT_DEVICE void product_pv(Rows& rows) {
    await_v();
    pin_probabilities(rows);
    wgmma_fence();
    begin_pv(rows);
    end_pv();
    add_row_sums(rows);
  }

  // ---- Scores to probabilities

  /// Before a product reads P, where no statement that keeps its place has made it.
  ATTNJIT_DEVICE static void pin_probabilities(Rows& rows) {
    if constexpr (!kInPlace) pin_registers(rows.p);
  }

  ATTNJIT_DEVICE bool is_masked(const Rows& rows) const {
    return Config::kBlockSparse ? !rows.descriptor.full(row_group_mask_bits()) : !rows.in_core();
  }
  /// Whether the map has bits of the tile, which these rows see in part.
  ATTNJIT_DEVICE bool has_bits(const Rows& rows) const {
    if constexpr (Config::kBlockMaskBits) return is_masked(rows) && rows.descriptor.bits != 0;
    return false;
  }
  /// Whether the mask is asked about the tile.
  ATTNJIT_DEVICE bool asks(const Rows& rows) const { return is_masked(rows) && !has_bits(rows); }
  /// Reads them: a thread's columns of a row of a block are a word (maps/block_bits.cuh).
  ATTNJIT_DEVICE void read_bits(Bits& bits, const Rows& rows) const {
    if constexpr (Config::kBlockMaskBits) {
      constexpr int kTileBits = Config::kTileN / kQuad;
      const u32* const block = arguments.block_bits +
                               static_cast<i64>(rows.descriptor.bits - 1) * kBlockWords +
                               (lane & 3);
      const int first = rows.index % (kMaskBlock / Config::kTileN) * kTileBits;
      const int first_kv = rows.index * Config::kTileN + 2 * (lane & 3);
      for_both_rows<loops_over_rows<Config>()>([&](int half) {
        // NOTE: rows that the sequence has not are read as well: they are the block's. Of keys that
        // it has not a map which was made for a longer one says anything.
        const int row = position_of<Config>(rows.first_row + 8 * half) & (kMaskBlock - 1);
        bits[half][0] = block[row * kRowWords] >> first &
                        low_bits(columns_before(rows.scores.row[half].kv_len - first_kv));
      });
    }
  }
  /// Asks a mask which scores of a tile it shows: while they are made.
  ATTNJIT_DEVICE void ask_mask(Bits& bits, Rows& rows) {
    // NOTE: a modification takes it with each tile, so that there it is kept.
    if constexpr (ScoreMod::kIdentity) place_rows(rows);
    rows.scores.first_kv = rows.index * Config::kTileN + 2 * (lane & 3);
    if constexpr (Config::kBlockMask && !Mask::kHidesNothing) {
      // Of a block that is seen whole, whatever the mask shows of it, the tile ends past the keys.
      if (rows.descriptor.in_whole_block()) {
        interval_columns<NullMask, Config::kTileN / 2>(bits, rows.scores, params);
        return;
      }
    }
    if constexpr (Mask::kInterval) {
      interval_columns<Mask, Config::kTileN / 2>(bits, rows.scores, params);
    } else if constexpr (Mask::kInterprets) {
      interpreted_columns<Mask, Config::kTileN / 2>(bits, rows.scores, params);
    } else {
      // NOTE: beside 256 columns of O more elements on their way would spill. Of tensors it takes
      // 1.08 of the time, so that is kept to where K and V are upcast.
      constexpr bool kFew =
          Layout::kPvColumns > 192 && (Mask::kLoads ? Config::kUpcastsKv : Config::kBlockMask);
      visible_columns<Mask, Config::kTileN / 2, kFew>(bits, rows.scores, params);
    }
  }

  /// Modifies and masks.
  ATTNJIT_DEVICE void finish_scores(Scores& s, Rows& rows, bool masked, Bits& bits) {
    [[maybe_unused]] const auto& row_scale = rows.softmax.log2_scale;
    if constexpr (keys_have_scales<Config>()) {
      if constexpr (ScoreMod::kIdentity) {
        const auto& origin = rows.softmax.origin;
        key_scales.multiply_and_weigh(s, {row_scale[0], row_scale[1]},
                                      {origin[0] * reciprocal_approx(row_scale[0]),
                                       origin[1] * reciprocal_approx(row_scale[1])},
                                      lane);
      } else {
        key_scales.multiply(s, lane);
      }
    }
    if constexpr (!ScoreMod::kIdentity) {
      rows.scores.first_kv = rows.index * Config::kTileN + 2 * (lane & 3);
      if constexpr (kInPlace) ScoresOf<Config>::read(s);
      modify_scores<ScoreMod>(s, rows.scores, rows.state, rows.scale, !masked, params);
      if constexpr (kInPlace) ScoresOf<Config>::write(s);
      if constexpr (keys_have_scales<Config>()) {
        key_scales.weigh(s, {row_scale[0], row_scale[1]}, rows.softmax.origin, lane);
      }
    }
    if (masked) {
      if constexpr (!asks_first()) ask_mask(bits, rows);
      if constexpr (kInPlace) {
        ScoresOf<Config>::hide(bits);
      } else if constexpr (rematerializes_rows<Config>()) {
        hide_by_keys(s, bits);
      } else {
        hide(s, bits);
      }
    }
  }

  /// Makes P of them. end() waits for the product of the tile before, which reads P's registers
  /// until then. True where earlier tiles are to be corrected yet.
  template <class End>
  ATTNJIT_DEVICE bool make_probabilities(Scores& s, Rows& rows, float (&correction)[2],
                                         const End& end) {
    bool moved = false;
    if constexpr (kInPlace) {
      moved = rows.softmax.template step<ScoresOf<Config>>(correction);
      end();
      ScoresOf<Config>::template pack<kPvBf16>(rows.p);
    } else if constexpr (keys_have_scales<Config>()) {
      // NOTE: loads stand between the exponentials, beyond which the compiler moves no wait.
      moved = rows.softmax.step(s, correction, end,
                                [&](const float(&factors)[2]) { correct(rows, factors); });
      key_scales.finish(rows.softmax.sum, s, lane);
      pack_probabilities<Config>(rows.p, s);
    } else {
      moved = rows.softmax.step(s, correction);
      end();
      pack_probabilities<Config>(rows.p, s);
    }
    return moved;
  }

  // ---- KV tiles

  // What the producer publishes with a K of the tile after it is read while there is K, and known
  // to the warp once its products are issued: nothing waits for it.
  ATTNJIT_DEVICE Descriptor read_descriptor() const {
    if constexpr (Config::kBlockSparse)
      return load_descriptor<Descriptor>(smem.descriptor(k_ring.stage), lane);
    return {};
  }
  ATTNJIT_DEVICE void look_ahead(Rows& rows, Descriptor descriptor) {
    if constexpr (Config::kBlockSparse) rows.next = descriptor_of_warp(descriptor);
  }

  /// A tile by itself: P V of the tile before, unless there is none, then S, then the softmax.
  ATTNJIT_DEVICE void first_tile(Rows& rows, bool none_before) {
    Bits bits;
    if constexpr (Config::kBlockMaskBits) {
      // NOTE: before anything is waited for: the scores are made while they come.
      if (has_bits(rows)) read_bits(bits, rows);
    }
    await_k();
    const Descriptor descriptor = read_descriptor();
    if (!none_before) {
      order_barrier_sync<Config>(rank);
      if constexpr (Config::kBlockSparse) {
        await_v();
        pin_probabilities(rows);
        wgmma_fence();
        begin_pv(rows);
      } else {
        product_pv(rows);
      }
    } else if (Config::kBlockSparse && rows.waits_order) {
      order_barrier_sync<Config>(rank);
    }
    scores_alone(rows, bits, descriptor, !none_before || (Config::kBlockSparse && rows.waits_order),
                 Config::kBlockSparse && !none_before);
  }
  /// S and the softmax of such a tile, whose K is there.
  ATTNJIT_DEVICE void scores_alone(Rows& rows, Bits& bits, Descriptor descriptor,
                                   bool arrives_order, bool releases_v) {
    Scores s;
    float correction[2];
    wgmma_fence();
    begin_qk(rows);
    if (arrives_order) order_barrier_arrive<Config>(next_order_barrier());
    find_q(rows);
    key_scales.await();
    look_ahead(rows, descriptor);
    if constexpr (asks_first()) {
      if (asks(rows)) ask_mask(bits, rows);
    }
    end_qk<0>(s, rows);
    if (releases_v) {
      release_v();
      add_row_sums(rows);
    }
    key_scales.begin(lane);
    finish_scores(s, rows, is_masked(rows), bits);
    if (make_probabilities(s, rows, correction, [] {})) correct(rows, correction);
  }

  /// A tile whose S is issued with P V of the tile before. Where there is a map, a masked one has
  /// bits.
  ATTNJIT_DEVICE void tile(Rows& rows, bool masked) {
    if constexpr (Config::kDebugWaits) {
      // NOTE: a bounded wait takes registers that ptxas does not have while a wgmma runs.
      first_tile(rows, false);
      return;
    }
    Scores s;
    Bits bits;
    float correction[2];
    if constexpr (Config::kBlockMaskBits) {
      if (masked) read_bits(bits, rows);
    }
    await_k();
    const Descriptor descriptor = read_descriptor();
    order_barrier_sync<Config>(rank);
    pin_probabilities(rows);
    wgmma_fence();
    begin_qk(rows);
    await_v();
    wgmma_fence();
    begin_pv(rows);
    order_barrier_arrive<Config>(next_order_barrier());
    find_q(rows);
    key_scales.await();
    key_scales.begin(lane);
    look_ahead(rows, descriptor);
    if constexpr (asks_first() && !Config::kBlockMaskBits) {
      if (masked) ask_mask(bits, rows);
    }
    end_qk<1>(s, rows);
    finish_scores(s, rows, masked, bits);
    bool moved;
    if constexpr (kFollows) {
      end_pv();  // whose operand P's registers are
      moved = rows.softmax.template follow<kPvBf16>(ScoresOf<Config>{}, rows.p, correction);
    } else {
      moved = make_probabilities(s, rows, correction, [&] {
        end_pv();
        add_row_sums(rows);
      });
    }
    if (moved) correct(rows, correction);
  }

  /// O += P V of the last tile.
  ATTNJIT_DEVICE void last_product(Rows& rows) { product_pv(rows); }

  /// Takes part in the pipelines of tiles that no row here sees, and in their turns: one a tile,
  /// without the first of a work tile.
  ATTNJIT_DEVICE void skip(int tiles, bool waits_order) {
    for (; tiles > 0; --tiles) {
      await_k();
      skip_tile(waits_order);
      waits_order = true;
    }
  }
  /// The same of one tile, whose K is there.
  ATTNJIT_DEVICE void skip_tile(bool waits_order) {
    // NOTE: where sequences differ, the turn is taken before V is there: the consumer that has the
    // rows of a decode multiplies with K after it. Elsewhere the memory is released first.
    constexpr bool kOrderFirst = kLengthsDiffer<Config>;
    release_k();
    key_scales.advance();
    if (kOrderFirst && waits_order) pass_order_barrier();
    await_v();
    release_v();
    if (!kOrderFirst && waits_order) pass_order_barrier();
  }
  /// The same of a listed one.
  ATTNJIT_DEVICE void pass_tile(Rows& rows, Descriptor descriptor) {
    look_ahead(rows, descriptor);
    if (!rows.next.is_tile()) release_q_early();
    skip_tile(rows.waits_order);
  }
  ATTNJIT_DEVICE void pass_order_barrier() {
    order_barrier_sync<Config>(rank);
    order_barrier_arrive<Config>(next_order_barrier());
  }

  /// The KV tiles that these rows see, and P V of the last one. NOTE: a loop for each kind of tile.
  /// A test of the kind between S and the softmax ends a basic block there; what follows is
  /// scheduled worse, and that cost 7 to 10 %. Each loop costs compile time, so there are no more
  /// than the mask can use.
  ATTNJIT_DEVICE void walk(Rows& rows) {
    if constexpr (Mask::kInterprets || ScoreMod::kInterprets) {
      // The interpreter is long, and more than anything takes: it stands at one place.
      bool first = true;
      do {
        first_tile(rows, first);
        first = false;
        --rows.index;
      } while (rows.left());
      release_q_late();
      last_product(rows);
    } else if constexpr (Mask::kFromZero && (kInPlace || !Mask::kHidesNothing)) {
      // Masked tiles come first, and beyond the first tile seldom more than one; without a mask
      // there is the first one. NOTE: for compile time one place multiplies P V by itself: before a
      // tile by itself, and at the end. Of windows, whose first tile has no loop, it would take
      // longer. So it does without a mask, where loops are shorter for it above depth 128: not
      // those of e4m3.
      for (bool first = true;; first = false) {
        const bool more = rows.left();
        if (more) await_k();
        if (!first) {
          if (more) order_barrier_sync<Config>(rank);
          product_pv(rows);
        }
        if (!more) break;
        Bits bits;
        scores_alone(rows, bits, {}, !first, false);
        --rows.index;
        release_q_late();
        if (rows.in_core()) {
          for (; rows.left(); --rows.index) tile(rows, false);
        }
      }
    } else {
      first_tile(rows, true);
      release_q_late();
      --rows.index;
      if constexpr (Mask::kHidesNothing) {
        for (; rows.left(); --rows.index) tile(rows, false);
      } else if constexpr (Mask::kHasCore) {
        // Masked tiles, full tiles, masked tiles.
        while (rows.left()) {
          for (; rows.left() && !rows.in_core(); --rows.index) tile(rows, true);
          for (; rows.left() && rows.in_core(); --rows.index) tile(rows, false);
        }
      } else {
        for (; rows.left(); --rows.index) tile(rows, true);
      }
      last_product(rows);
    }
  }

  /// The KV tiles of the producer's list, each as its descriptor says; of those that others' rows
  /// see, these may not see all. NOTE: compile time counts each copy of a tile's code. Masked tiles
  /// stand at one place, with P V of the tile before, which is also what multiplies that where
  /// these rows see no more. Full tiles have a loop of their own: what does not change within it is
  /// computed before it. So do those of which a map has bits: masks that need a map may have many.
  ATTNJIT_DEVICE void walk_list(Rows& rows) {
    WarpFlagOf<Config> left;  // P of a tile is to be multiplied yet
    left = false;
    rows.next = first_descriptor<Descriptor>(rows.work);
    rows.waits_order = false;
    if (!rows.next.is_tile()) release_q_early();
    while (rows.next.is_tile() || left) {
      rows.descriptor = rows.next;
      rows.index = rows.descriptor.tile();
      const bool sees = rows.descriptor.seen(row_group_mask_bits());
      if (!ScoreMod::kInterprets && sees && left && rows.descriptor.full(row_group_mask_bits())) {
        while (true) {
          tile(rows, false);
          if (!rows.next.full(row_group_mask_bits())) break;
          rows.index = rows.next.tile();
        }
      } else if (sees && left && has_bits(rows)) {
        tile(rows, true);
      } else if constexpr (kOnePv) {
        Bits bits;
        Descriptor descriptor = {};
        if (rows.descriptor.is_tile()) {
          await_k();
          descriptor = read_descriptor();
        }
        if (sees && rows.waits_order) order_barrier_sync<Config>(rank);
        if (left) {
          await_v();
          wgmma_fence();
          begin_pv(rows);
          if (!sees) end_pv();
        }
        if (sees) {
          scores_alone(rows, bits, descriptor, rows.waits_order, left);
          release_q_late();
        } else if (rows.descriptor.is_tile()) {
          pass_tile(rows, descriptor);
        }
        left = sees;
      } else if (sees) {
        first_tile(rows, !left);
        release_q_late();
        left = true;
      } else {
        if (left) last_product(rows);
        left = false;
        if (!rows.descriptor.is_tile()) return;
        await_k();
        pass_tile(rows, read_descriptor());
      }
      rows.waits_order = true;
    }
  }

  // ---- Rows

  /// The first of a thread's two rows of a work tile.
  ATTNJIT_DEVICE static int first_row_of(const WorkTile& work, int thread) {
    const int consumer_thread = thread - Layout::kProducers * kWarpgroupThreads;
    return work.first_row + (consumer_thread >> 5) * kWarpRows + ((thread & 31) >> 2);
  }
  /// Finds where the thread's rows are, where that is not kept.
  ATTNJIT_DEVICE static void place_rows(Rows& rows) {
    if constexpr (rematerializes_rows<Config>()) {
      rows.first_row = first_row_of(rows.work, thread_read_again());
      for_both_rows<loops_over_rows<Config>()>([&](int half) {
        const int row = rows.first_row + 8 * half;
        Coord& place = rows.scores.row[half];
        place.h = rows.work.head + head_of_row<Config>(row);
        place.q_idx = position_of<Config>(row) + place.kv_len - place.q_len;
      });
    }
  }
};

}  // namespace attnjit::sm90

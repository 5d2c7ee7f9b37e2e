// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: 64 query rows against all KV tiles of a work tile, and half of O's columns.
//
// S of a tile is one warpgroup's: tiles are taken by turns. It makes P of it, multiplies P with its
// half of V, and passes P on to the other, which has the other half. docs/mla.md draws who waits
// for whom.
#pragma once

#include "mla/listed.cuh"
#include "mla/scales.cuh"
#include "mla/tile_status.cuh"
#include "sm90/products.cuh"
#include "sm90/score_registers.cuh"
#include "sm90/softmax.cuh"
#include "sm90_mla/cluster_reduce.cuh"

namespace attnjit::sm90_mla {

using mla::OutputRow;
using sm90::OnlineSoftmax;

/// A warpgroup: where it stands among the KV tiles, and what it knows of its rows.
///
/// NOTE: the record through which P goes is one, and needs no other guard than the signals: its
/// writers take turns, by the parity of a KV tile's stage over all work tiles, and each has read
/// the other's before it writes its own.
template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
struct Consumer {
  using Layout = LayoutOf<Config>;
  using O = Output<Config>;
  using Scores = sm90::ScoreRegisters<Config::kTileN, kScoreSet>;
  using Probabilities = u32[Config::kTileN / 4];
  static constexpr int kBlocks = Layout::kHalfBlocks;
  static constexpr int kSteps = kBlockColumns / kStepColumns;

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  int rank;
  int lane;
  int warp;           ///< of the warpgroup's four
  float score_scale;  ///< with scales, of the work tile
  float log2_scale;
  Ring ring = {};  ///< at the KV tile whose product with V is next
  int q_parity = 0;
  int work_parity = 0;

  /// The rows of a work tile.
  struct Rows {
    WorkTile work;
    KvRange core;            ///< KV tiles inside it need no mask
    mla::TileStatus status;  ///< where an expression decides tiles
    u32 shown;               ///< of the tile by a mask that loads: 16 columns of each row
    OutputRow output[2];
    sm90::ScoreTile scores;
    typename ScoreMod::State state[2];
    OnlineSoftmax<Config> softmax;  ///< after the last tile that either warpgroup made P of
  };

  ATTNJIT_DEVICE Consumer(const Smem<Config>& memory, const Arguments& launch, const Params& user,
                          int consumer)
      : smem(memory),
        arguments(launch),
        params(user),
        rank(consumer),
        lane(static_cast<int>(threadIdx.x & 31u)),
        warp(warp_uniform(static_cast<int>(threadIdx.x >> 5)) & 3),
        score_scale(launch.scale),
        log2_scale(ScoreMod::kIdentity ? launch.scale * kLog2e : exponent_factor<ScoreMod>()) {}

  // ---- Memory that TMA fills. Each warp releases for itself.

  ATTNJIT_DEVICE void release_block(const Ring& at, int block) const {
    if (lane == 0) mbarrier_arrive(smem.kv_empty(at.stage, block));
  }
  /// Releases the blocks of a product with V to the CTA that stores them. Where that may be
  /// another one, whose wait is for both CTAs, what was read is released for the cluster.
  ATTNJIT_DEVICE void release_v(const Ring& at, int first) const {
    if (lane != 0) return;
    if constexpr (Layout::kUpcastsForPeer) fence_release_shared();
#pragma unroll
    for (int block = first; block < first + O::kWide; ++block) {
      const u32 empty = smem.kv_empty(at.stage, block);
      if constexpr (Layout::kUpcastsForPeer) {
        mbarrier_arrive_relaxed_at(empty, Layout::upcaster_of(block));
      } else {
        mbarrier_arrive(empty);
      }
    }
  }
  /// Releases what S alone reads: the rope's block; where V is a tensor of its own, all of K, a
  /// lane each block.
  ATTNJIT_DEVICE void release_scored(const Ring& at) const {
    if constexpr (Config::kSeparateV) {
      if (lane < Layout::kQkBlocks) mbarrier_arrive(smem.kv_empty(at.stage, lane));
    } else if constexpr (Layout::kRopeBlocks > 0) {
      release_block(at, Layout::kOvBlocks);
    }
  }
  /// The first of the warpgroup's blocks of V in a stage.
  ATTNJIT_DEVICE int first_of_v() const { return Layout::kFirstOfV + Layout::first_block(rank); }
  /// Waits for V of its own.
  ATTNJIT_DEVICE void await_v(const Ring& at) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i)
      smem.wait(smem.kv_full(at.stage, first_of_v() + i), at.parity);
    if constexpr (Config::kRowCopies) fence_proxy_async_shared();
  }
  ATTNJIT_DEVICE void release_q() const {
    if (lane == 0) mbarrier_arrive(smem.q_empty());
  }

  // ---- The order barrier. Products are made in the order in which they are issued. Were both S
  // issued at once, both would end late, and the tensor cores would idle during the first softmax.
  // So the follower's S waits for the leader's but in a work tile's first pair of tiles, where K is
  // on its way to both. Kernels of head_dim above 256, whose V is on its way too, gain nothing by
  // it.

  static constexpr bool kOrdered = !Config::kSeparateV;
  /// The block of S before which the other may issue its own. NOTE: not behind the last one: the
  /// products that are still to be issued take as long as it takes to hear of it.
  static constexpr int kOrderBlock = 2 * Layout::kQkBlocks / 3;

  ATTNJIT_DEVICE void order_barrier_arrive() const {
    if constexpr (kOrdered) named_barrier_arrive(kOrderBarrier + warp, kSignalThreads);
  }
  ATTNJIT_DEVICE void order_barrier_sync() const {
    if constexpr (kOrdered) named_barrier_sync(kOrderBarrier + warp, kSignalThreads);
  }

  // ---- Products

  /// Blocks that threads copied, and did not upcast: who does that fences.
  static constexpr bool kFencesLatent = Config::kRowCopies && !Layout::kUpcast;
  static constexpr bool kFencesRope =
      Config::kRowCopies && Config::kUpcastBlocks < Layout::kQkBlocks;

  /// Where a tile's blocks lie in the order in which this warpgroup multiplies them. Their places
  /// differ by constants: a block's products take 128 cycles, and what is computed between two
  /// blocks takes time from them.
  template <class Place>
  struct Walk {
    Place rope, own, others;

    /// Of the i-th block; `step` from one block to the next.
    ATTNJIT_DEVICE Place at(int i, int step) const {
      const int j = i - Layout::kRopeBlocks;
      if (j < 0) return rope + i * step;
      return j < kBlocks ? own + j * step : others + (j - kBlocks) * step;
    }
  };
  /// The same of head_dim above 256, whose K lands as it is multiplied: each place is computed by
  /// itself.
  template <class PlaceOf>
  struct PlainWalk {
    PlaceOf place_of;
    ATTNJIT_DEVICE auto at(int i, int) const { return place_of(Layout::block_at(i)); }
  };
  template <class PlaceOf>
  ATTNJIT_DEVICE auto walk_of(const PlaceOf& place_of) const {
    if constexpr (Config::kSeparateV) {
      return PlainWalk<PlaceOf>{place_of};
    } else {
      constexpr int kFirst = Layout::kRopeBlocks;
      using Place = decltype(place_of(0));
      return Walk<Place>{place_of(Layout::kOvBlocks), place_of(Layout::block_at(kFirst, rank)),
                         place_of(Layout::block_at(kFirst + kBlocks, rank))};
    }
  }

  /// Makes S = Q K^T, block by block as they land. `first`: Q may still be on its way.
  /// `arrives_order`: the other warpgroup waits until most of these products are issued.
  ///
  /// NOTE: whether the next block has landed is asked before this one's products are issued, for
  /// the answer takes as long as two of them. Not of head_dim above 256, whose K lands as it is
  /// multiplied: each block would be asked for twice.
  ATTNJIT_DEVICE void make_scores(mla::ListedKeys& listed, const Ring& at, bool first,
                                  bool arrives_order) const {
    // NOTE: opaque: the compiler would keep each block's addresses over all tiles, in registers
    // that a consumer has not.
    Smem<Config> here = smem;
    here.base = opaque(smem.base);
    using Product = sm90::ScoreWgmma<Config::kTileN>;
    constexpr int kStep = 2 * kStepColumns / 16;
    constexpr int kBlockStep = Layout::kBlockBytes / 16;
    const auto q = walk_of([&](int block) { return matrix_descriptor<16>(here.q(block)); });
    const auto k =
        walk_of([&](int block) { return matrix_descriptor<16>(here.kv(at.stage, block)); });
    const auto full = walk_of([&](int block) { return here.kv_full(at.stage, block); });
    const auto has_landed = [&](int i) {
      return !Config::kSeparateV && mbarrier_test(full.at(i, 8), at.parity);
    };
    bool landed = !first && has_landed(0);
#pragma unroll
    for (int i = 0; i < Layout::kQkBlocks; ++i) {
      if (!landed) {
        if (first) smem.wait(here.q_full(Layout::block_at(i, rank)), q_parity);
        smem.wait(full.at(i, 8), at.parity);
      }
      // NOTE: wgmma reads through the async proxy what cp.async wrote through the generic one.
      if (i < Layout::kRopeBlocks ? kFencesRope : kFencesLatent) fence_proxy_async_shared();
      if constexpr (Config::kTopk > 0) {
        if (i == 0) listed = mla::load_listed<Config>(smem, at.stage, lane);
      }
      if (i + 1 < Layout::kQkBlocks) landed = !first && has_landed(i + 1);
      if (i == kOrderBlock && arrives_order) order_barrier_arrive();
      // NOTE: for each block: after the loop of a wait ptxas would set its own, and serialise all.
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const u64 a = q.at(i, kBlockStep) + step * kStep;
        const u64 b = k.at(i, kBlockStep) + step * kStep;
        if (i == 0 && step == 0) {
          Product::template ss<Layout::kOperand, false, kScoreSet>(a, b);
        } else {
          Product::template ss<Layout::kOperand, true, kScoreSet>(a, b);
        }
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    release_scored(at);
  }

  /// Issues O += P V of a tile.
  ATTNJIT_DEVICE void issue_pv(Probabilities& p, const Ring& at) const {
    pin_registers(p);
    wgmma_fence();
    const u32 first = smem.kv(at.stage, first_of_v());
    const u64 descriptor = matrix_descriptor<Layout::kBlockBytes>(first);
    O::multiply(p, [&](int block) {
      // As in make_scores(): of head_dim above 256 each place by itself.
      return Config::kSeparateV
                 ? matrix_descriptor<Layout::kBlockBytes>(first + block * Layout::kBlockBytes)
                 : descriptor + block * (Layout::kBlockBytes / 16);
    });
  }

  /// Waits for the products of O and releases the memory of V, as it is multiplied. NOTE:
  /// unrolled by hand: the number of groups that still run is part of the instruction.
  template <int kBlock = 0>
  ATTNJIT_DEVICE void end_pv() {
    if constexpr (kBlock < kBlocks) {
      wgmma_wait<(kBlocks - kBlock) / O::kWide - 1>();
      release_v(ring, first_of_v() + kBlock);
      end_pv<kBlock + O::kWide>();
    } else {
      ring.advance(Config::kStages);
    }
  }

  // ---- P, from one warpgroup to the other

  ATTNJIT_DEVICE int thread() const { return warp * 32 + lane; }

  /// NOTE: of eight keys a thread has two that are neighbours: bits 0, 1, 8, 9, .. from its own on.
  ATTNJIT_DEVICE void hide_unlisted(const mla::ListedKeys& listed) const {
    const auto own = [&](u32 word) {
      const u32 pairs = word >> 2 * (lane & 3) & 0x03030303u;
      return (pairs | pairs >> 6 | pairs >> 12 | pairs >> 18) & 0xffu;
    };
    const u32 columns = own(listed.low) | own(listed.high) << 8;
    const sm90::ColumnBits<Config::kTileN / 2> bits = {{columns}, {columns}};
    Scores::hide(bits);
  }

  static constexpr bool kAsksTiles = mla::kAsksTiles<Config, Mask>;
  /// How many tiles of this warpgroup come after one in the walk.
  ATTNJIT_DEVICE static int place_of(const Rows& rows, int tile) {
    return (tile - rows.work.tile_begin) >> 1;
  }
  static constexpr bool kLoads = Mask::kLoads && Config::kTopk == 0;
  /// The thread's first column of a tile.
  ATTNJIT_DEVICE int first_column(int tile) const { return tile * Config::kTileN + 2 * (lane & 3); }
  /// Asks the mask about this tile and others, where that is not known, and one that loads about
  /// the scores. NOTE: before S is made, whose registers what is asked may take.
  ATTNJIT_DEVICE void ask_mask(Rows& rows, int tile, bool first) const {
    const int place = place_of(rows, tile);
    if constexpr (kAsksTiles) {
      if (first || mla::TileStatus::asks(place)) {
        const TileCoord at = mla::rows_of_warp(rows.scores.row[0], rows.scores.row[1]);
        rows.status.template ask<Config::kTileN, Mask>(at, tile, place, 2, lane, params);
      }
    }
    if constexpr (kLoads) {
      rows.shown = 0;
      if (kAsksTiles && (rows.status.whole(place) || !rows.status.seen(place))) return;
      rows.scores.first_kv = first_column(tile);
      sm90::ColumnBits<Config::kTileN / 2> bits{};
      sm90::visible_columns<Mask, Config::kTileN / 2>(bits, rows.scores, params);
      rows.shown = bits[0][0] | bits[1][0] << 16;
    }
  }

  /// Makes P of S. True, in the whole warp, where earlier outputs are to be multiplied by
  /// `correction`.
  ATTNJIT_DEVICE bool softmax(Probabilities& p, const mla::ListedKeys& listed, Rows& rows, int tile,
                              float (&correction)[2]) {
    const int first = tile * Config::kTileN;
    rows.scores.first_kv = first_column(tile);
    if constexpr (!ScoreMod::kIdentity) {
      float s[Scores::kCount];
      Scores::read(s);
      sm90::modify_scores<ScoreMod>(s, rows.scores, rows.state, sm90::RowScales<1>{score_scale},
                                    false, params);
      Scores::write(s);
    }
    if constexpr (Config::kTopk > 0) {
      // No mask beside the list, whose tiles are whole.
      if (!listed.all()) hide_unlisted(listed);
      return make_probabilities(p, rows, correction);
    }
    bool whole = first >= rows.core.begin && rows.core.end - first >= Config::kTileN;
    if constexpr (kAsksTiles) whole = rows.status.whole(place_of(rows, tile));
    if (!whole) {
      sm90::ColumnBits<Config::kTileN / 2> bits{};
      if constexpr (kLoads) {
        bits[0][0] = rows.shown;
        bits[1][0] = rows.shown >> 16;
      } else if constexpr (Mask::kInterval) {
        sm90::interval_columns<Mask, Config::kTileN / 2>(bits, rows.scores, params);
      } else if (!kAsksTiles || rows.status.seen(place_of(rows, tile))) {
        sm90::visible_columns<Mask, Config::kTileN / 2>(bits, rows.scores, params);
      }
      Scores::hide(bits);
    }
    return make_probabilities(p, rows, correction);
  }
  /// Whether no maximum is looked for in most tiles: the tensor cores wait for P. NOTE: launches
  /// took 1 to 3 % longer with one of each tile. Those of head_dim above 256, which wait for K and
  /// V, take 2 to 4 % longer without. What is loaded for scores takes the registers: 32 bytes were
  /// spilled.
  static constexpr bool kFollows =
      !Config::kRescaleByRow && !Config::kSeparateV && ScoreMod::kIdentity && !Mask::kLoads;

  ATTNJIT_DEVICE bool make_probabilities(Probabilities& p, Rows& rows,
                                         float (&correction)[2]) const {
    if constexpr (kFollows) {
      return rows.softmax.template follow<Config::kBf16>(Scores{}, p, correction);
    } else {
      // NOTE: as an array: by statements kernels of head_dim above 256 took 0.3 to 1.4 % more
      // cycles (the clock).
      float s[Scores::kCount];
      Scores::read(s);
      const bool moved = rows.softmax.step(s, correction);
      pack_pairs<Config::kBf16>(p, s);
      return moved;
    }
  }

  /// Passes P and what is known of the rows on to the other warpgroup.
  ATTNJIT_DEVICE void give(const Probabilities& p, const Rows& rows) const {
    const u32 record = smem.record(thread());
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_shared_v4(record + i * Layout::kPartBytes, p[4 * i], p[4 * i + 1], p[4 * i + 2],
                      p[4 * i + 3]);
    }
    const OnlineSoftmax<Config>& state = rows.softmax;
    store_shared_v4(record + 4 * Layout::kPartBytes, __float_as_uint(state.maximum[0]),
                    __float_as_uint(state.maximum[1]), __float_as_uint(state.sum[0]),
                    __float_as_uint(state.sum[1]));
    named_barrier_arrive(kSignalBarrier + 4 * rank + warp, kSignalThreads);
  }

  /// Takes what the other warpgroup passes on, and makes O relative to its maximum.
  ATTNJIT_DEVICE void take(Probabilities& p, Rows& rows) const {
    named_barrier_sync(kSignalBarrier + 4 * (1 - rank) + warp, kSignalThreads);
    const u32 record = smem.record(thread());
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_shared_v4(record + i * Layout::kPartBytes, p[4 * i], p[4 * i + 1], p[4 * i + 2],
                     p[4 * i + 3]);
    }
    u32 words[4];
    load_shared_v4(record + 4 * Layout::kPartBytes, words);
    OnlineSoftmax<Config>& state = rows.softmax;
    float correction[2];
    bool same = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float maximum = __uint_as_float(words[half]);
      correction[half] = exp2_approx((state.maximum[half] - maximum) * log2_scale);
      same = same && state.maximum[half] == maximum;
      state.maximum[half] = maximum;
      state.sum[half] = __uint_as_float(words[2 + half]);
    }
    if (!__all_sync(0xffffffffu, same)) O::scale(correction);
  }

  /// The product with V of a tile whose P the other warpgroup made.
  ATTNJIT_DEVICE void begin_other(Rows& rows) const {
    Probabilities p;
    take(p, rows);
    if constexpr (Config::kSeparateV) {
      await_v(ring);
    } else if constexpr (kFencesLatent) {
      // Who made P has seen all of K land.
      fence_proxy_async_shared();
    }
    issue_pv(p, ring);
  }

  /// Passes the P of this warpgroup on and multiplies with it.
  ATTNJIT_DEVICE void product_alone(Probabilities& p, const Rows& rows, bool moved,
                                    const float (&correction)[2]) {
    give(p, rows);
    if (moved) O::scale(correction);
    if constexpr (Config::kSeparateV) await_v(ring);
    issue_pv(p, ring);
    end_pv();
  }

  // ---- The KV tiles of a work tile, from the last to the first

  /// Both warpgroups, of which one leads: it makes P of the first tile, and of every second one
  /// from there on. The softmax of the other one, which follows, runs under its product of the tile
  /// before.
  ///
  /// NOTE: one body for both, for compile time (docs/compile.md).
  ATTNJIT_DEVICE void walk(Rows& rows) {
    const bool leads = (ring.stage & 1) == rank;
    const int begin = rows.work.tile_begin;
    int tile = rows.work.tile_end - (leads ? 1 : 2);
    if (tile < begin) {
      // NOTE: it makes no S, and waits all the same: one of its warps must not release this Q
      // while another has yet to release the one before.
      smem.wait(smem.q_full(Layout::block_at(0, rank)), q_parity);
      release_q();
    }
    bool first = true;
    while (true) {
      if (tile >= begin) {
        ask_mask(rows, tile, first);
        Probabilities p;
        float correction[2];
        mla::ListedKeys listed;
        Ring at = ring;
        if (!leads) at.advance(Config::kStages);
        if (!leads && !first) order_barrier_sync();
        make_scores(listed, at, first, leads && !first && tile > begin);
        first = false;
        if (tile < begin + 2) release_q();
        bool moved;
        if (leads) {
          moved = softmax(p, listed, rows, tile, correction);
        } else {
          // NOTE: not under the product of K: ptxas would have it end before O is touched.
          begin_other(rows);
          moved = softmax(p, listed, rows, tile, correction);
          end_pv();
        }
        product_alone(p, rows, moved, correction);
        tile -= 2;
      }
      if (leads ? tile + 1 >= begin : tile + 1 == begin) {
        begin_other(rows);
        end_pv();
      }
      if (tile < begin) break;
    }
  }

  // ---- Work tiles

  /// The LSE of a row is written by one lane of the first warpgroup.
  ATTNJIT_DEVICE bool writes_lse() const { return rank == 0 && (lane & 3) == 0; }
  /// A thread's row, counted from the sequence's first.
  ATTNJIT_DEVICE int row_of(const WorkTile& work, int half) const {
    return work.first_row + warp * kWarpRows + (lane >> 2) + 8 * half;
  }
  ATTNJIT_DEVICE i64 part_row(const Rows& rows, int half) const {
    return attnjit::part_row<Config>(rows.work, mla::row_of_tile<Config>(row_of(rows.work, half)),
                                     rows.output[half].head, rows.output[half].position, arguments);
  }

  /// Ends the rows: LSE and O.
  ATTNJIT_DEVICE void finish(Rows& rows, Ending<Config>& ending) {
    float output_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sink = 0.0f;
      if constexpr (Config::kSink) sink = arguments.sink[rows.output[half].head];
      float lse;
      output_scale[half] = finish_row<Config>(ending.rows[half], sink, lse) *
                           mla::value_scale<Config>(rows.work, arguments);
      if constexpr (Config::kReturnLse) {
        if (writes_lse() && ending.ends(0) && rows.output[half].real) {
          arguments.lse[lse_row<Config>(rows.work, rows.output[half].head,
                                        rows.output[half].position, arguments)] = lse;
        }
      }
    }
    const int own = 2 * (ending.first_column() + 8 * (lane & 3));
    unsigned char* const addresses[2] = {
        mla::output_address<Config>(rows.work, rows.output[0], arguments) + own,
        mla::output_address<Config>(rows.work, rows.output[1], arguments) + own};
    ending.pack(output_scale, [&](int column, u32(&pairs)[2][4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_columns(pairs[half], addresses[half] + 2 * column, rows.output[half].real, lane);
      }
    });
  }

  /// Ends the rows of a partition, whose sink is the merge's.
  ATTNJIT_DEVICE void finish_part(Rows& rows, Ending<Config>& ending) {
    float output_scale[2];
    bool seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float lse;
      output_scale[half] = finish_row<Config, false>(ending.rows[half], 0.0f, lse) *
                           mla::value_scale<Config>(rows.work, arguments);
      // What no key was seen of nobody reads.
      seen[half] = rows.output[half].real && lse != -infinity();
      if (writes_lse() && ending.ends(0)) {
        store_part_lse<Config>(rows.work, mla::row_of_tile<Config>(row_of(rows.work, half)),
                               rows.output[half].real, rows.output[half].head,
                               rows.output[half].position, lse, arguments);
      }
    }
    if (ending.ends(0)) empty_parts(rows);
    float* addresses[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      addresses[half] = arguments.partial_o + part_row(rows, half) * Config::kOvDepth +
                        ending.first_column() + 4 * (lane & 3);
    }
    ending.read(output_scale, [&](int column, const float(&o)[8]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (seen[half]) store_partial_columns(o, half, addresses[half] + column);
      }
    });
  }

  /// Says that the partitions which are no work for the sequence saw no key, with its first one.
  /// The merge reads the LSE of each.
  ATTNJIT_DEVICE void empty_parts(const Rows& rows) const {
    if constexpr (Config::kPartitionTiles == 0) return;
    const PartRange parts =
        parts_of<Config, Mask>(lengths_of<Config>(rows.work, arguments), arguments, params);
    if (rank != 0 || rows.work.partition != parts.begin) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!rows.output[half].real) continue;
      store_no_keys(parts,
                    packed_row<Config>(rows.work, rows.output[half].head,
                                       rows.output[half].position, arguments),
                    lane & 3, 4, arguments);
    }
  }

  /// Where the thread's rows belong.
  ATTNJIT_DEVICE void find_outputs(Rows& rows) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.output[half] = mla::output_row<Config>(rows.work, row_of(rows.work, half), arguments);
    }
  }

  /// Keeps a work tile in shared memory while its keys are multiplied. NOTE: what the compiler
  /// would keep in registers that a consumer has not, it would spill. NOTE: lane 0 alone reads it
  /// again; but where the warp does not meet here, kernels whose K is e4m3 spilled 8 to 28 bytes.
  ATTNJIT_DEVICE void stash(const WorkTile& work) const {
    if (lane == 0) store_work<Config>(smem.stashed_work(4 * rank + warp), work);
    __syncwarp();
  }

  ATTNJIT_DEVICE void work_tile(const WorkTile& work) {
    if constexpr (mla::kHasScales<Config>) {
      score_scale = arguments.scale * mla::key_scale<Config>(work, arguments);
      if constexpr (ScoreMod::kIdentity) log2_scale = exponent_scale(score_scale);
    }
    Rows rows{.work = work, .softmax = {{log2_scale}}};
    const Lengths lengths = lengths_of<Config>(work, arguments);
    const int first_q_idx = lengths.first_q_idx();
    const int last = min((work.first_row + kConsumerRows - 1) >> Config::kGqaShift, lengths.q - 1);
    rows.core = Mask::core((work.first_row >> Config::kGqaShift) + first_q_idx, last + first_q_idx,
                           lengths.kv, params);
    find_outputs(rows);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.scores.row[half] = {work.batch,
                               rows.output[half].head,
                               mla::kv_head_of<Config>(work.head),
                               rows.output[half].position + first_q_idx,
                               0,
                               lengths.q,
                               lengths.kv};
      rows.state[half] = ScoreMod::prepare(rows.scores.row[half].h, arguments.num_q_heads, params);
    }
    O::zero();
    stash(work);
    if (work.tile_begin < work.tile_end) {
      walk(rows);
      q_parity ^= 1;
    }
    rows.work = load_work<Config>(smem.stashed_work(4 * rank + warp), lane);
    find_outputs(rows);
    Ending<Config> ending{{rows.softmax.max_sum(0), rows.softmax.max_sum(1)}, rank};
    if constexpr (may_reduce_cluster<Config>()) {
      if (rows.work.partition >= kClusterReduced / 2) {
        rows.work.partition -= kClusterReduced;
        ending.reduce(smem, thread());
      }
    }
    if constexpr (Config::kSplit) {
      if (is_merged<Config>(rows.work, arguments)) return finish_part(rows, ending);
    }
    finish(rows, ending);
  }

  /// All work tiles that the producer publishes.
  ATTNJIT_DEVICE void run() {
    while (true) {
      const WorkTile work = next_work<Config>(smem, work_parity, lane);
      if (work.batch < 0) break;
      work_tile(work);
    }
  }
};

}  // namespace attnjit::sm90_mla

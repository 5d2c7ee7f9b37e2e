// SPDX-License-Identifier: Apache-2.0
// The MMA warp's thread: every product of the CTA, in one order.
//
// With two query tiles a and b, KV tiles n = 0, 1, ..: Sa = Qa K0, Sb = Qb K0; then for each n
// Oa += Pa Vn, Sa = Qa K(n+1), Ob += Pb Vn, Sb = Qb K(n+1): a softmax has two products' time before
// the tensor cores need it. With one query tile the warpgroups take KV tiles by turns and the order
// is the same. With a single accumulator its products follow one another: S of the next tile stands
// between them, so that correction has a product's time to rescale O. Sources: FlashAttention-4
// (Dao et al., 2026); Modular's SM100MHA2Q.
#pragma once

#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// NOTE: warpgroups are counted at run time: one copy of each product's code serves both, and both
/// numbers of query tiles. It costs the issuing thread a few selects a product, of a kernel whose
/// compile time it halves.
template <class Config>
struct Products {
  using Layout = LayoutOf<Config>;
  using RowsDescriptor = SmemDescriptor<16, Layout::kRowBytes>;  // of Q and K
  const Smem<Config>& smem;
  Tmem<Config> tmem;
  u32 q_parity = 0;  // a bit a query tile
  u32 p_parity = 0;  // a bit a warpgroup

  /// NOTE: the tensor cores read through the async proxy what cp.async wrote through the generic
  /// one.
  template <bool kIsK>
  ATTNJIT_DEVICE void await(const KvTile<Config, kIsK>& tile, int chunk) const {
    tile.wait(smem, chunk);
    if constexpr (Config::kRowCopies) fence_proxy_async_shared();
  }

  /// Copies a chunk of Q to tensor memory. NOTE: products of the same thread that come after a copy
  /// see it (9.7.16.6.2). Those before it have read the Q that it replaces: its memory was loaded
  /// when the O that they are about had been stored.
  ATTNJIT_DEVICE void copy_q(RowsDescriptor q, int chunk) const {
#pragma unroll
    for (int i = 0; i < Layout::kChunkSteps; ++i) {
      const int step = chunk * Layout::kChunkSteps + i;
      if (step >= Layout::kQkSteps) break;
      tcgen05_cp_128x256b(tmem.q(step), q.at(step / Layout::kBlockSteps * Layout::kQBlockBytes +
                                             step % Layout::kBlockSteps * 32));
    }
  }

  /// Adds the products of rope parts that have a type of their own to S, which e4m3 has begun.
  /// NOTE: in-order issue, as below: PTX orders those of one accumulator that are of one kind.
  ATTNJIT_DEVICE void add_rope(u32 s, const KvTile<Config, true>& k, int tile) const {
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Layout::kRopeOperand, kRows, Config::kTileN, false>();
    const SmemDescriptor<16> a(opaque(smem.q_rope(tile)));
    const SmemDescriptor<16> b(k.separate_rope());
#pragma unroll
    for (int step = 0; step < Layout::kRopeSteps; ++step) {
      tcgen05_mma_ss<Layout::kRopeOperand>(s, a.at(step * 32), b.at(step * 32), kInstruction, 1);
    }
  }

  /// S = Q K^T of one warpgroup and one KV tile. `product` false: the warpgroup's rows see nothing
  /// of the tile, which is only released.
  ATTNJIT_DEVICE void qk(const KvTile<Config, true>& k, int warpgroup, int tile, bool product,
                         bool new_q, bool last_of_q, bool release) {
    constexpr u32 kInstruction = mma_instruction_descriptor<Layout::kOperand, kRows * Layout::kCtas,
                                                            Config::kTileN, false>();
    // NOTE: opaque: each step's address is one addition here, and would be one register each where
    // the compiler computed them before the loop over KV tiles.
    const RowsDescriptor a(opaque(smem.q(tile)));
    const u32 s = tmem.s(warpgroup);
#pragma unroll
    for (int chunk = 0; chunk < Config::kQkStages; ++chunk) {
      await(k, chunk);
      if (product) {
        if (new_q) {
          smem.wait(smem.q_full(tile, chunk), static_cast<int>(q_parity >> tile & 1u));
        }
        tcgen05_fence_after();
        if constexpr (Layout::kQInTmem) {
          if (new_q) copy_q(a, chunk);
        }
#pragma unroll
        for (int i = 0; i < Layout::kChunkSteps; i += 2) {
          const int step = chunk * Layout::kChunkSteps + i;
          if (step >= Layout::kQkSteps) break;
          const bool twice = step + 1 < Layout::kQkSteps;  // a block has an even number of steps
          const int block = step / Layout::kBlockSteps;
          const int bytes = step % Layout::kBlockSteps * 32;
          const RowsDescriptor b(k.block(block));
          // NOTE: in-order issue. S takes the columns of the P that the product before this one
          // reads: products of one thread execute in the order of their issue, which PTX says only
          // of those with the same accumulator. Every kernel of this design relies on it; the plan
          // declares it as the waiver in-order-mma.
          if constexpr (Layout::kQInTmem) {
            if (twice) {
              tcgen05_mma_ts_twice<Layout::kOperand, false, b.kHigh, 8, 2>(
                  s, tmem.q(step), b.low_at(bytes), kInstruction, step > 0);
            } else {
              tcgen05_mma_ts<Layout::kOperand>(s, tmem.q(step), b.at(bytes), kInstruction,
                                               step > 0);
            }
          } else {
            const int in_q = block * Layout::kQBlockBytes + bytes;
            if (twice) {
              tcgen05_mma_ss_twice<Layout::kOperand, Layout::kPair, b.kHigh, 2, 2>(
                  s, a.low_at(in_q), b.low_at(bytes), kInstruction, step > 0);
            } else {
              tcgen05_mma_ss<Layout::kOperand, Layout::kPair>(s, a.at(in_q), b.at(bytes),
                                                              kInstruction, step > 0);
            }
          }
        }
      }
      if constexpr (Layout::kSeparateRope) {
        if (product) add_rope(s, k, tile);
      }
      if (release) k.release(chunk);
    }
    if (product) tcgen05_commit<Layout::kPair>(smem.s_full(warpgroup));
    if constexpr (!Config::kOneWorkTile) {
      if (!Layout::kOOverQ && last_of_q) tcgen05_commit<Layout::kPair>(smem.q_empty(tile));
    }
    // NOTE: also where a CTA has one work tile. With a constant parity the compiler keeps more in
    // registers, and kernels that upcast K and V spilt 96 bytes.
    if (product && new_q) q_parity ^= 1u << tile;
  }

  /// O += P V of one warpgroup and one KV tile.
  ATTNJIT_DEVICE void pv(const KvTile<Config, false>& v, int warpgroup, bool product, bool first,
                         bool last, bool release) {
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Layout::kPvOperand, kRows * Layout::kCtas, Layout::kPvColumns,
                                   true>();
    await(v, 0);
    if (product) {
      const SmemDescriptor<Layout::kVBlockBytes, Layout::kRowBytes> b(v.block(0));
      const u32 p = opaque(tmem.s(warpgroup));
      const u32 o = tmem.o(warpgroup);
      const int parity = static_cast<int>(p_parity >> warpgroup & 1u);
      p_parity ^= 1u << warpgroup;
#pragma unroll
      for (int part = 0; part < parts_of_p<Config>(); ++part) {
        smem.wait_for_warps(smem.p_full(warpgroup, part), parity);
        tcgen05_fence_after();
        const int begin = Layout::steps_before_part(part);
        const int end = Layout::steps_before_part(part + 1);
#pragma unroll
        for (int step = begin; step < end; step += 2) {
          constexpr int kStepBytes = Layout::kStepColumns * Layout::kRowBytes;
          if (step + 1 < end) {
            tcgen05_mma_ts_twice<Layout::kPvOperand, Layout::kPair, b.kHigh, 8, kStepBytes / 16>(
                o, p + 8 * step, b.low_at(step * kStepBytes), kInstruction, step > 0 || !first);
          } else {
            tcgen05_mma_ts<Layout::kPvOperand, Layout::kPair>(
                o, p + 8 * step, b.at(step * kStepBytes), kInstruction, step > 0 || !first);
          }
        }
      }
    }
    if (release) v.release(0);
    if (last)
      tcgen05_commit<Layout::kPair>(smem.o_full(Layout::kSingleAccumulator ? 0 : warpgroup));
  }
};

/// A round of the products with K, as the round that multiplies its P has to know it. NOTE: bits:
/// the thread has few registers.
struct RoundOfP {
  u32 bits = 0;

  static constexpr u32 kIs = 1, kShared = 2;  ///< there is one; its warpgroups share a query tile
  // Of warpgroup 0, and above them of warpgroup 1:
  static constexpr u32 kHas = 4, kFirst = 16, kLast = 64;  ///< it has a P, of its first, last step

  ATTNJIT_DEVICE bool is() const { return bits != 0; }
  ATTNJIT_DEVICE bool shared() const { return (bits & kShared) != 0; }
  ATTNJIT_DEVICE bool has(int warpgroup) const { return (bits >> warpgroup & kHas) != 0; }
  ATTNJIT_DEVICE bool first(int warpgroup) const { return (bits >> warpgroup & kFirst) != 0; }
  ATTNJIT_DEVICE bool last(int warpgroup) const { return (bits >> warpgroup & kLast) != 0; }
  ATTNJIT_DEVICE void add(int warpgroup, bool is_first, bool is_last) {
    bits |= (kHas | (is_first ? kFirst : 0) | (is_last ? kLast : 0)) << warpgroup;
  }
};

/// P of a round is multiplied in the next one. Where O has memory of its own, a work tile's last
/// products with V and the first with K of the next are one round, so that each softmax has S of
/// the next work tile while its O is read. NOTE: not where the warpgroups share the query tile: K
/// and V would not come in the order of their loads.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void multiply(const Smem<Config>& smem, const Tmem<Config>& tmem,
                             const Arguments& arguments, const Params& params) {
  using Layout = LayoutOf<Config>;
  using List = SchedulerOf<false, Config, Mask, Arguments, Params>;
  Products<Config> products{smem, tmem};
  KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  KvTile<Config, true> k{};
  KvTile<Config, false> v{};
  RoundOfP p;  // the round before
  List list(smem, arguments, params);
  bool more = true;
  while (more) {
    more = !list.done();
    bool shared = Layout::kAlwaysOne;  // the warpgroups share the query tile
    Share share_0{0, 0}, share_1{0, 0};
    int rounds = 0;
    if (more) {
      const WorkTile work = list.tile();
      shared = work.num_qo == 1;
      share_0 = work.share(0);
      share_1 = work.share(1);
      rounds = work.rounds();
    }
    const bool apart = Layout::kOOverQ || p.shared() || rounds == 0;
    // A CTA's only work tile has its last P V in a round of its own, behind the others.
    const int end = Config::kOneWorkTile ? rounds + 1 : rounds;
#pragma unroll 1
    for (int round = !Config::kOneWorkTile && apart && p.is() ? -1 : 0; round < end; ++round) {
      // Negative in a round that has products with V alone.
      const int with_k = Config::kOneWorkTile ? rounds - 1 - round : round;
      RoundOfP next;
      if (with_k >= 0) next.bits = shared ? RoundOfP::kIs | RoundOfP::kShared : RoundOfP::kIs;
#pragma unroll 1
      for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
        const Share share = warpgroup == 0 ? share_0 : share_1;
        const int step = share.step(round);
        const bool has_s = share.has(step);
        const bool has_p = p.has(warpgroup);
        // With two query tiles the first warpgroup takes a tile and the second gives it back, with
        // one each has its own.
        const bool takes_v = p.shared() ? has_p : warpgroup == 0 && p.is();
        const bool gives_v = p.shared() ? has_p : warpgroup == 1 && p.is();
        const bool takes_k = shared ? has_s : warpgroup == 0 && with_k >= 0;
        const bool gives_k = shared ? has_s : warpgroup == 1 && with_k >= 0;
        if (takes_v) v = kv.template next<false>();
        if (has_p || gives_v) {
          products.pv(v, warpgroup, has_p,
                      p.first(warpgroup) && (!Layout::kSingleAccumulator || warpgroup == 0),
                      has_p && (Layout::kSingleAccumulator || p.last(warpgroup)), gives_v);
        }
        if (takes_k) k = kv.template next<true>();
        if (has_s || gives_k) {
          // A query tile that the warpgroups share is waited for once, and released once.
          const bool last_of_q = shared ? 2 * step + warpgroup == share_0.steps + share_1.steps - 1
                                        : step == share.steps - 1;
          products.qk(k, warpgroup, shared ? 0 : warpgroup, has_s,
                      step == 0 && !(shared && warpgroup == 1), has_s && last_of_q, gives_k);
        }
        if (has_s) next.add(warpgroup, step == 0, step == share.steps - 1);
      }
      p = next;
    }
    if constexpr (Config::kOneWorkTile) return;
    if (more) list.advance();
  }
}

}  // namespace attnjit::sm100

// The MMA warp's thread: every product of the CTA, in one order.
//
// With two query tiles a and b, KV tiles n = 0, 1, ..: Sa = Qa K0, Sb = Qb K0; then for each n
// Oa += Pa Vn, Sa = Qa K(n+1), Ob += Pb Vn, Sb = Qb K(n+1): a softmax has two products' time before
// the tensor cores need it. With one query tile the warpgroups take KV tiles by turns and the order
// is the same. Sources: FlashAttention-4 (Dao et al., 2026); Modular's SM100MHA2Q.
#pragma once

#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

template <class Config>
struct Products {
  using L = Layout<Config>;
  Smem<Config> smem;
  Tmem<Config> tmem;
  KvSequence<Config> kv;
  KvTile<Config, true> k;
  KvTile<Config, false> v;
  int q_parity = 0;
  int p_parity[2] = {0, 0};

  ATTNJIT_DEVICE Products(const Smem<Config>& memory, const Tmem<Config>& columns)
      : smem(memory), tmem(columns), kv(memory), k{memory, 0, 0, 0}, v{memory, 0, 0, 0} {}

  /// A warpgroup whose products take a K or V tile that no one has taken before; that are its last.
  template <int kWarpgroup>
  static constexpr bool kTakes = Config::kNumQo == 1 || kWarpgroup == 0;
  template <int kWarpgroup>
  static constexpr bool kReleases = Config::kNumQo == 1 || kWarpgroup == 1;

  /// S = Q K^T of one warpgroup and one KV tile.
  template <int kWarpgroup>
  ATTNJIT_DEVICE void qk(bool first) {
    constexpr int kTile = Config::kNumQo == 1 ? 0 : kWarpgroup;
    // With one query tile the other warpgroup's first product has waited for it.
    const bool new_q = first && (Config::kNumQo == 2 || kWarpgroup == 0);
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Config::kBf16, kRows, Config::kTileN, false>();
    if constexpr (kTakes<kWarpgroup>) k = kv.template next<true>();
    // NOTE: opaque: each step's address is one addition here, and would be one register each where
    // the compiler computed them before the loop over KV tiles.
    const SmemDescriptor<16> a(opaque(smem.q(kTile)));
    const u32 s = tmem.s(kWarpgroup);
#pragma unroll
    for (int chunk = 0; chunk < Config::kQkStages; ++chunk) {
      if constexpr (kTakes<kWarpgroup>) k.wait(chunk);
      if (new_q) mbarrier_wait(smem.q_full(kTile, chunk), q_parity);
      tcgen05_fence_after();
#pragma unroll
      for (int i = 0; i < L::kChunkSteps; ++i) {
        const int step = chunk * L::kChunkSteps + i;
        if (step >= L::kQkSteps) break;
        const int block = step / 4;
        const SmemDescriptor<16> b(k.block(block));
        // NOTE: in-order issue. S takes the columns of the P that the product before this one
        // reads: products of one thread execute in the order of their issue, which PTX says only
        // of those with the same accumulator. Every kernel of this design relies on it.
        tcgen05_mma_ss(s, a.at(block * L::kQBlockBytes + step % 4 * 32), b.at(step % 4 * 32),
                       kInstruction, step > 0);
      }
      if constexpr (kReleases<kWarpgroup>) k.release(chunk);
    }
    tcgen05_commit(smem.s_full(kWarpgroup));
  }

  /// O += P V of one warpgroup and one KV tile.
  template <int kWarpgroup>
  ATTNJIT_DEVICE void pv(bool first, bool last) {
    constexpr u32 kInstruction =
        mma_instruction_descriptor<Config::kBf16, kRows, L::kPvColumns, true>();
    if constexpr (kTakes<kWarpgroup>) {
      v = kv.template next<false>();
      v.wait(0);
    }
    const SmemDescriptor<L::kKvBlockBytes> b(v.block(0));
    const u32 p = opaque(tmem.s(kWarpgroup));
    const u32 o = tmem.o(kWarpgroup);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      mbarrier_wait(smem.p_full(kWarpgroup, part), p_parity[kWarpgroup]);
      tcgen05_fence_after();
      const int begin = part == 0 ? 0 : L::kPvSteps0;
      const int end = part == 0 ? L::kPvSteps0 : L::kPvSteps;
#pragma unroll
      for (int step = begin; step < end; ++step) {
        tcgen05_mma_ts(o, p + 8 * step, b.at(step * 16 * 128), kInstruction, step > 0 || !first);
      }
    }
    p_parity[kWarpgroup] ^= 1;
    if constexpr (kReleases<kWarpgroup>) v.release(0);
    if (last) tcgen05_commit(smem.o_full(kWarpgroup));
  }
};

template <class Config, class Mask, class Arguments, class P>
ATTNJIT_DEVICE void multiply(const Smem<Config>& smem, const Tmem<Config>& tmem,
                             const Arguments& arguments, const P& params) {
  Products<Config> products(smem, tmem);
  for (WorkList<Config, Mask, Arguments, P> list(arguments, params); !list.done(); list.advance()) {
    const int tiles = list.tile().tiles();
    if (tiles == 0) continue;
    const int steps_0 = steps_of(tiles, 0, Config::kNumQo);
    const int steps_1 = steps_of(tiles, 1, Config::kNumQo);
#pragma unroll 1
    for (int step = 0; step <= steps_0; ++step) {
      if (step > 0) products.template pv<0>(step == 1, step == steps_0);
      if (step < steps_0) products.template qk<0>(step == 0);
      if (step > 0 && step <= steps_1) products.template pv<1>(step == 1, step == steps_1);
      if (step < steps_1) products.template qk<1>(step == 0);
    }
    products.q_parity ^= 1;
  }
}

}  // namespace attnjit::sm100

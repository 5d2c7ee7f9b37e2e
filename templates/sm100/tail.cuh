// SPDX-License-Identifier: Apache-2.0
// The end of V where sequences differ in length: rows past it are zeroed before they are
// multiplied.
#pragma once

#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// Zeroes the rows of V that are past the end of the sequence, and then says that the tile has
/// landed. They are multiplied with P = 0, and what a page holds there may be NaN. (Where all have
/// one length they are out of the tensor's bounds, and TMA gives zeros.) A converged warp; `kv` is
/// where the work tile begins, `all` its KV tiles, `parity` the barrier's.
template <class Config>
ATTNJIT_DEVICE void clear_tail(const Smem<Config>& smem, KvSequence<Config> kv,
                               const WorkTile& work, KvTiles all, int parity) {
  using Layout = LayoutOf<Config>;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  // The first V follows one K, or with one query tile two.
  kv.template next<true>();
  if (work.num_qo == 1 && all.count() > 1) kv.template next<true>();
  const KvTile<Config, false> v = kv.template next<false>();
  smem.wait(smem.tail_full(), parity);
  const int first = work.kv_len - work.template first_walked<Config>() * Config::kTileN;
#pragma unroll 1
  for (int row = first + lane / Layout::kRowUnits; row < Config::kTileN;
       row += 32 / Layout::kRowUnits) {
    // Pairs of rows of 64 bytes share 128: the swizzle stays within a row in either case.
#pragma unroll
    for (int block = 0; block < Layout::kVBlocks; ++block) {
      store_shared_v4(v.block(block) +
                          static_cast<u32>(row * Layout::kRowBytes + lane % Layout::kRowUnits * 16),
                      0, 0, 0, 0);
    }
  }
  fence_proxy_async_shared();
  if constexpr (Layout::kPair) {
    // Both have cleared their columns when the leader says that the tile has landed. The other says
    // so to its own load warp.
    if (smem.leads()) {
      // NOTE: a bounded wait is for the phase alone: it acquires nothing of the other CTA.
      if constexpr (Config::kDebugWaits) smem.wait(smem.pair_tail(), 0);
      mbarrier_wait_cluster(smem.pair_tail(), 0);
    } else {
      __syncwarp();
      if (elect_one()) mbarrier_arrive_at(smem.pair_tail(), 0);
    }
  }
  arrive_warp(v.full(0));
}

/// The scheduler warp, where a CTA has one work tile.
template <class Config, class Arguments, class Params>
ATTNJIT_DEVICE void clear_only_tail(const Smem<Config>& smem, const Arguments& arguments,
                                    const Params& params) {
  const OnlyWork<Config> list(smem, arguments, params);
  if (list.done()) return;
  const WorkTile work = list.tile();
  if (!work.template ends_past<Config>()) return;
  const KvTiles all = work.all();
  const KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  clear_tail(smem, kv, work, all, 0);
}

}  // namespace attnjit::sm100

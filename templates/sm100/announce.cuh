// SPDX-License-Identifier: Apache-2.0
// The spare warp where it finds a CTA's work tiles: it announces them to every other role.
#pragma once

#include "common/sequences.cuh"
#include "sm100/tail.cuh"

namespace attnjit::sm100 {

/// A work tile, or the part of one that is a partition's.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE WorkTile work_of(const SequenceTile& tile, const Arguments& arguments,
                                const Params& params) {
  using Layout = LayoutOf<Config>;
  WorkTile work;
  work.batch = tile.batch;
  work.head = tile.head * Layout::kFused;
  work.q_len = tile.lengths.q;
  work.kv_len = tile.lengths.kv;
  work.q_begin = tile.q_begin;
  work.kv_begin = tile.kv_begin;
  const int tiles = SequenceTiling<Config>::tiles(work.q_len, arguments);
  work.first_position = (tiles - 1 - tile.rank) * work_positions<Config>(arguments);
  const int second = work.first_position + Layout::kTileStep;
  const bool has_second = !one_query_launch<Config>(arguments) && second < work.q_len;
  work.num_qo = has_second || Layout::kAlwaysTwo ? 2 : 1;
  work.partition = tile.partition;
  find_seen<Config, Mask>(work, has_second, arguments, params);
  if constexpr (Config::kSplit) {
    const KvTiles part = part_of<Config>(work, arguments);
    work.seen_0 = intersect(work.seen_0, part);
    work.seen_1 = intersect(work.seen_1, part);
  }
  find_last_tile<Config>(work, arguments);
  return work;
}

/// Announces every work tile, and at last that there is none: batch -1. Where sequences differ in
/// length it clears V's tail of each as well, before it announces the next one: the barrier of the
/// tail is waited for before it is used again.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void announce(const Smem<Config>& smem, const Arguments& arguments,
                             const Params& params) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  SequenceList<Config, Mask, SequenceTiling<Config>, Arguments, Params> list(arguments, params,
                                                                             lane);
  KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  Ring ring;
  int tail_parity = 0;
  while (true) {
    const bool done = list.done();
    WorkTile work{};
    if (!done) work = work_of<Config, Mask>(list.tile(), arguments, params);
    smem.wait(smem.work_empty(ring.stage), ring.parity ^ 1);
    if (lane == 0) {
      const u32 slot = smem.work_slot(ring.stage);
      const auto word = [](int value) { return static_cast<u32>(value); };
      store_shared_v4(slot, word(done ? -1 : work.batch), word(work.head), word(work.q_len),
                      word(work.kv_len));
      store_shared_v4(slot + 16, word(work.q_begin), word(work.first_position), word(work.num_qo),
                      word(work.partition));
      store_shared_v4(slot + 32, word(work.seen_0.begin), word(work.seen_0.end),
                      word(work.seen_1.begin), word(work.seen_1.end));
      if constexpr (Config::kRaggedKv) store_shared_word(slot + 48, word(work.kv_begin));
      if constexpr (Config::kMapped) {
        store_shared_word(slot + 52, word(work.list_row));
        store_shared_word(slot + 56, word(work.last_tile));
      }
      mbarrier_arrive(smem.work_full(ring.stage));
    }
    __syncwarp();
    ring.advance(kWorkSlots);
    if (done) return;
    if constexpr (LayoutOf<Config>::kTails) {
      const KvTiles all = work.all();
      if (work.template ends_past<Config>()) {
        clear_tail(smem, kv, work, all, tail_parity);
        tail_parity ^= 1;
      }
      kv.skip(all.count());
    }
    list.advance();
  }
}

}  // namespace attnjit::sm100

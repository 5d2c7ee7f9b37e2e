// SPDX-License-Identifier: Apache-2.0
// The scheduler warp where it finds a CTA's work tiles, or its only one: it publishes them to every
// other role.
#pragma once

#include "common/decode_ranges.cuh"
#include "common/launch_control.cuh"
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
  if constexpr (Config::kSplit && !cuts_tiles<Config>()) {
    const KvTiles part = part_of<Config>(work, arguments);
    work.seen_0 = intersect(work.seen_0, part);
    work.seen_1 = intersect(work.seen_1, part);
  }
  find_last_tile<Config>(work, arguments);
  // What a pair sees is both CTAs': each has every second tile of 128 rows.
  if constexpr (Layout::kPair) work.first_position += cluster_rank() * Layout::kPositions;
  return work;
}

/// Finds the only work tile of a CTA, and publishes it to all roles, which begin behind a barrier.
/// One warp. NOTE: for compile time: where each role counted for itself that was five copies of
/// code.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void find_only_work(const Smem<Config>& smem, const Arguments& arguments,
                                   const Params& params) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  WorkTile work{};
  bool none = false;
  if constexpr (Config::kRagged) {
    // The grid has a CTA for each tile that the rows can fill, and may have more.
    SequenceList<Config, Mask, SequenceTiling<Config>, Arguments, Params> list(arguments, params,
                                                                               lane, CutWords{});
    list.find();
    none = list.done();
    if (!none) work = work_of<Config, Mask>(list.tile(), arguments, params);
  } else {
    work = work_tile_at<Config, Mask>(worker<Config>(), arguments, params);
  }
  if (lane == 0) store_work<Config>(smem.work_slot(0), work, none);
}

/// The tiles of sequences as work tiles, where some are cut.
template <class Config, class Mask, class Arguments, class Params>
struct SequenceWork : SequenceList<Config, Mask, SequenceTiling<Config>, Arguments, Params> {
  using Base = SequenceList<Config, Mask, SequenceTiling<Config>, Arguments, Params>;
  using Base::Base;

  ATTNJIT_DEVICE WorkTile whole(const SequenceTile& tile) const {
    return work_of<Config, Mask>(tile, this->arguments, this->params);
  }
  ATTNJIT_DEVICE static void keep(WorkTile& work, int first, int end) {
    const KvTiles kept = from_last(work.all(), first, end);
    work.seen_0 = intersect(work.seen_0, kept);
    work.seen_1 = intersect(work.seen_1, kept);
  }
};

/// A CTA's own work tile, and then those of CTAs that have not started, for which the load warp's
/// thread asks (sm100/load.cuh). One warp.
template <class Config, class Mask, class Arguments, class Params>
struct StealingScheduler {
  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  int index = worker<Config>();
  int parity = 0;

  ATTNJIT_DEVICE bool done() const { return index < 0; }
  ATTNJIT_DEVICE void advance() {
    smem.wait(smem.answer_full(), parity);
    parity ^= 1;
    index = answered_cta(smem.answer());
    // NOTE: the next answer is written over this one by the async proxy. It is asked for by a
    // thread that has read what is published, which follows.
    fence_proxy_async_shared();
    __syncwarp();
  }
  ATTNJIT_DEVICE WorkTile tile() const {
    smem.next_work_tile();
    return work_tile_at<Config, Mask>(index, arguments, params);
  }
};

/// Walks what is published: work tiles that are counted off, or the launch's sequences.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE auto scheduler_to_publish(const Smem<Config>& smem, const Arguments& arguments,
                                         const Params& params) {
  if constexpr (steals_tiles<Config>()) {
    return StealingScheduler<Config, Mask, Arguments, Params>{smem, arguments, params};
  } else if constexpr (Config::kCounted) {
    return StaticScheduler<Config, Mask, Arguments, Params>(smem, arguments, params);
  } else if constexpr (cuts_tiles<Config>()) {
    using List = SequenceWork<Config, Mask, Arguments, Params>;
    return CutTileList<Config, Mask, SequenceTiling<Config>, Arguments, Params, List>(
        arguments, params, static_cast<int>(threadIdx.x & 31u), CutWords{smem.cuts()});
  } else {
    SequenceList<Config, Mask, SequenceTiling<Config>, Arguments, Params> list(
        arguments, params, static_cast<int>(threadIdx.x & 31u), CutWords{});
    list.begin_walk();
    return list;
  }
}

/// Publishes every work tile, and at last that there is none: batch -1. Where sequences differ in
/// length it clears V's tail of each as well, before it publishes the next one: the barrier of the
/// tail is waited for before it is used again. NOTE: the list searches sequences in one place, for
/// the first tile and for those that follow, for compile time.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void publish(const Smem<Config>& smem, const Arguments& arguments,
                            const Params& params) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  auto list = scheduler_to_publish<Config, Mask>(smem, arguments, params);
  KvSequence<Config> kv(smem, one_query_launch<Config>(arguments));
  Ring ring;
  int tail_parity = 0;
  [[maybe_unused]] int asked_parity = 0;
  while (true) {
    bool done;
    if constexpr (cuts_tiles<Config>()) {
      done = !list.next();
    } else {
      if constexpr (!Config::kCounted) list.find();
      done = list.done();
    }
    WorkTile work{};
    if constexpr (Config::kCounted || cuts_tiles<Config>()) {
      if (!done) work = list.tile();
    } else {
      if (!done) work = work_of<Config, Mask>(list.tile(), arguments, params);
    }
    smem.wait(smem.work_empty(ring.stage), ring.parity ^ 1);
    if (lane == 0) {
      store_work<Config>(smem.work_slot(ring.stage), work, done);
      mbarrier_arrive(smem.work_full(ring.stage));
    }
    __syncwarp();
    ring.advance(kWorkSlots);
    if (done) {
      if constexpr (cuts_tiles<Config>()) list.end();
      return;
    }
    if constexpr (LayoutOf<Config>::kTails) {
      const KvTiles all = work.all();
      if (work.template ends_past<Config>()) {
        clear_tail(smem, kv, work, all, tail_parity);
        tail_parity ^= 1;
      }
      kv.skip(all.count());
    }
    if constexpr (takes_whole<Config>()) {
      // The next one goes to who is free first.
      smem.wait(smem.answer_full(), asked_parity);
      asked_parity ^= 1;
    } else if constexpr (Config::kCounted) {
      list.advance();
    } else if constexpr (!cuts_tiles<Config>()) {
      list.go_on();
    }
  }
}

}  // namespace attnjit::sm100

// SPDX-License-Identifier: Apache-2.0
// The producer where sequences differ in length: it finds its work on the device, announces it, and
// loads Q; its Copies load K and V.
#pragma once

#include "sm90/query_copies.cuh"
#include "sm90/sequences.cuh"

namespace attnjit::sm90 {

/// As Producer (sm90/producer.cuh), which is one thread. A warp, or several that all find the same
/// work and copy their parts of K and V; the first does the rest.
template <class Config, class Mask, class Copies, class Arguments, class Params>
struct SequenceProducer {
  using Layout = LayoutOf<Config>;

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  Copies copies;
  int warp;
  int lane;
  Ring q_ring = {};
  WorkTile work = {};

  /// Hands Q's memory over to each consumer, with the work tile. NOTE: also where there are no keys
  /// and Q is not loaded: O is staged in it.
  ATTNJIT_DEVICE void load_q(bool no_keys) {
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      announce(work, consumer);
      if (warp != 0 || lane != 0) continue;
      load_q_rows(smem, arguments, work, q_ring.stage, consumer, no_keys);
    }
    __syncwarp();
    q_ring.advance(Config::kQStages);
  }

  /// The first warp tells a consumer of a work tile when it has given Q's memory back.
  ATTNJIT_DEVICE void announce(const WorkTile& tile, int consumer) {
    if (warp != 0) return;
    smem.wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
    if (lane == 0) store_work<Config>(smem.work(q_ring.stage, consumer), tile);
  }

  ATTNJIT_DEVICE void run() {
    SequenceList<Config, Mask, Arguments, Params> list(arguments, params, lane);
    for (; !list.done(); list.advance()) {
      work = list.tile();
      smem.next_work_tile();
      copies.begin(work);
      const bool no_keys = work.tile_begin >= work.tile_end;
      int place = no_keys ? 0 : copies.place_of(work.tile_end - 1);
      if (!no_keys) copies.load_k(work.tile_end - 1, place);
      load_q(no_keys);
      if (no_keys) continue;
      for (int tile = work.tile_end - 2; tile >= work.tile_begin; --tile) {
        const int next = copies.place_of(tile);
        copies.load_k(tile, next);
        copies.load_v(tile + 1, place);
        place = next;
      }
      copies.load_v(work.tile_begin, place);
      copies.finish();
    }
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      announce({-1, 0, 0, 0, 0}, consumer);
      if (warp == 0 && lane == 0) mbarrier_arrive(smem.q_full(q_ring.stage, consumer));
    }
  }
};

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// The producer: one thread that loads Q, K and V of every work tile by TMA, as far ahead as the
// pipelines allow.
#pragma once

#include "sm90/query_copies.cuh"

namespace attnjit::sm90 {

/// KV tiles are walked from the last to the first: the tiles that a causal mask cuts come first.
/// V lags K by one tile, in the order in which the consumers need them. Each work tile is published
/// to each consumer with its Q, and the end after the last: the arithmetic of the list would stand
/// between a consumer's tiles.
template <class Config, class Mask, class Arguments, class Params>
struct Producer {
  using Layout = LayoutOf<Config>;

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  Ring k_ring = {};
  Ring v_ring = {};
  Ring q_ring = {};
  WorkTile work = {};
  int kv_head = 0;
  u64 policy = kv_policy(kPackedHeads<Config> == Config::kGroup && arguments.m_tiles == 1);

  /// Loads a KV tile to the stage that `ring` is at, when it is free.
  template <class Copies>
  ATTNJIT_DEVICE void load_kv(Ring& ring, const TensorMap* map, int tile) {
    const u32 data = Copies::data(smem, ring.stage), full = Copies::full(smem, ring.stage);
    smem.wait(Copies::empty(smem, ring.stage), ring.parity ^ 1);
    Copies::publish(smem, ring.stage, Config::kTileN, work, kv_head, tile, arguments);
    Copies::load(data, map, full, tile, kv_head, work.batch, policy);
    ring.advance(Copies::kStages);
  }
  ATTNJIT_DEVICE void load_k(int tile) {
    load_kv<CopiesOf<Config, true>>(k_ring, arguments.k_map, tile);
  }
  ATTNJIT_DEVICE void load_v(int tile) {
    load_kv<CopiesOf<Config, false>>(v_ring, arguments.v_map, tile);
  }

  /// Gives Q's memory to each consumer, with the work tile. NOTE: also where there are no keys
  /// and Q is not loaded: O is staged in it. A loop: compile time counts each copy of the code.
  ATTNJIT_DEVICE void load_q(bool no_keys) {
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      publish_work(work, consumer);
      load_q_rows(smem, arguments, work, q_ring.stage, consumer, no_keys);
    }
    q_ring.advance(Config::kQStages);
  }

  /// Publishes a work tile to a consumer when that has released Q's memory.
  ATTNJIT_DEVICE void publish_work(const WorkTile& tile, int consumer) {
    smem.wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
    store_work<Config>(smem.work(q_ring.stage, consumer), for_consumer<Config>(tile, consumer));
  }

  ATTNJIT_DEVICE void run() { load_all<StaticScheduler<Config, Mask, Arguments, Params>>(); }
  /// The work tiles of a list from its begin on, and then the end.
  template <class List>
  ATTNJIT_DEVICE void load_all() {
    if constexpr (stashes_cursor<Config>()) {
      load_stashed<List>();
    } else {
      List list(arguments, params);
      load_all(list);
    }
  }
  /// Those of a list, and then the end.
  template <class List>
  ATTNJIT_DEVICE void load_all(List& list) {
    for (; !list.done(); list.advance()) {
      work = list.tile();
      load_tile();
    }
    end();
  }

 private:
  /// The same of a list that stands in shared memory while a work tile is loaded. NOTE: what the
  /// compiler would keep in registers that the thread has not, it would spill.
  template <class List>
  ATTNJIT_DEVICE void load_stashed() {
    stash_cursor(smem.cursor(0), List(arguments, params).cursor());
    while (true) {
      const Arguments launch = numbers_read_again(arguments);
      List list(launch, params);
      list.resume(stashed_cursor(smem.cursor(0)));
      if (list.done()) break;
      work = list.tile();
      list.advance();
      stash_cursor(smem.cursor(0), list.cursor());
      load_tile();
    }
    end();
  }

  /// Loads a work tile.
  ATTNJIT_DEVICE void load_tile() {
    smem.next_work_tile();
    kv_head = work.head / Config::kGroup;
    const bool no_keys = work.tile_begin >= work.tile_end;
    // One place each loads K and V: Q comes where the V of a tile before the first one would.
    int tile = no_keys ? work.tile_begin : work.tile_end;
    bool first = true;
    do {
      --tile;
      if (!no_keys && tile >= work.tile_begin) load_k(tile);
      if (first) {
        load_q(no_keys);
      } else {
        load_v(tile + 1);
      }
      first = false;
    } while (!no_keys && tile >= work.tile_begin);
  }

  /// Publishes the end.
  ATTNJIT_DEVICE void end() {
    if constexpr (Config::kUpcastsKv) RawTilesOf<Config, true>::end(smem, k_ring);
    if constexpr (Layout::kHasRawTiles) RawTilesOf<Config, false>::end(smem, v_ring);
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      publish_work({-1, 0, 0, 0, 0}, consumer);
      mbarrier_arrive(smem.q_full(q_ring.stage, consumer));
    }
  }
};

}  // namespace attnjit::sm90

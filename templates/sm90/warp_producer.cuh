// SPDX-License-Identifier: Apache-2.0
// The producer as a warp, where sequences differ in length and work is found on the device, and
// where KV tiles are listed by what the mask says of them: it publishes its work and loads Q; its
// Copies load K and V.
#pragma once

#include "common/sequence_ranges.cuh"
#include "common/sequence_tiles.cuh"
#include "sm90/published_list.cuh"
#include "sm90/query_copies.cuh"
#include "sm90/tile_copies.cuh"
#include "sm90/tile_descriptors.cuh"
#include "sm90/warp_scheduler.cuh"

namespace attnjit::sm90 {

/// As Producer (sm90/producer.cuh), which is one thread. A warp, or several that all find the same
/// work and copy their parts of K and V; the first does the rest.
template <class Config, class Mask, class Copies, class List, class Arguments, class Params>
struct WarpProducer {
  using Layout = LayoutOf<Config>;
  using Descriptor = DescriptorOf<Config>;

  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  Copies copies;
  int warp;
  int lane;
  Ring q_ring = {};
  WorkTile work = {};

  /// Gives Q's memory to each consumer, with the work tile. NOTE: also where there are no keys
  /// and Q is not loaded: O is staged in it.
  ATTNJIT_DEVICE void load_q(bool no_keys) {
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      publish_work(work, consumer);
      if (warp != 0 || lane != 0) continue;
      load_q_rows(smem, arguments, work, q_ring.stage, consumer, no_keys);
    }
    __syncwarp();
    q_ring.advance(Config::kQStages);
  }

  /// The first warp publishes a work tile to a consumer when that has released Q's memory.
  ATTNJIT_DEVICE void publish_work(const WorkTile& tile, int consumer) {
    if (warp != 0) return;
    smem.wait(smem.q_empty(q_ring.stage, consumer), q_ring.parity ^ 1);
    if (lane != 0) return;
    store_work<Config>(smem.work(q_ring.stage, consumer), for_consumer<Config>(tile, consumer));
  }

  /// Says with the K that is loaded next which tile comes after it.
  ATTNJIT_DEVICE void publish_descriptor(Descriptor after) {
    const int stage = copies.k_ring.stage;
    smem.wait(smem.k_empty(stage), copies.k_ring.parity ^ 1);
    if (warp != 0 || lane != 0) return;
    store_descriptor(smem.descriptor(stage), after);
    // NOTE: copies of rows arrive when they are there, which says nothing of this store. TMA's
    // bytes are expected by this thread, after it; so are rows that are rewritten.
    if constexpr (Config::kRowCopies && !kLandsRaw<Config, true>) {
      mbarrier_arrive(smem.k_full(stage));
    }
  }

  /// The KV tiles of a work tile that the mask does not hide from all its rows.
  template <class Rows>
  ATTNJIT_DEVICE auto list_of(const Rows& rows) const {
    if constexpr (Config::kBlockMask) {
      const i64 row = map_row<Config>(work, arguments);
      const int places = arguments.map_kv_blocks;
      const int* descriptors = nullptr;
      int bit_blocks = 0;
      if constexpr (Config::kBlockMaskBits) {
        descriptors = arguments.kv_bits + row * places;
        bit_blocks = arguments.bit_blocks;
      }
      using Blocks = BlockMaskList<Config::kTileN, Descriptor, Mask, Rows, Params>;
      Blocks list(
          rows, params, lane, {work.tile_begin, work.tile_end},
          BlockEntries::of(arguments.kv_num_blocks, arguments.kv_indices, row, places),
          BlockEntries::of(arguments.full_kv_num_blocks, arguments.full_kv_indices, row, places),
          descriptors, bit_blocks);
      if constexpr (kPartsOfMap<Config>) {
        list.share = part_of<Config>(list.share, work.partition, arguments);
      }
      // Where partitions have fixed keys a row's bits are its own.
      if constexpr (Config::kPartitionTiles > 0) {
        return SortedBlockMaskList<Blocks>(list);
      } else {
        return list;
      }
    } else {
      const int own =
          rematerializes<Config>() ? static_cast<int>(opaque(static_cast<u32>(lane))) : lane;
      return TileList<Config::kTileN, Mask, Rows, Params>(rows, params, own, work.tile_begin,
                                                          work.tile_end);
    }
  }

  /// Where a KV tile lies, without the pages that no row sees.
  ATTNJIT_DEVICE auto place_of(int tile) const {
    return copies.place_of(tile,
                           [&](int key, int count) { return may_see<Mask>(work, key, count); });
  }
  /// The same of a listed one, of which an expression says more. NOTE: a tile that some rows see
  /// whole is not asked about, nor is one of which a map says so, whatever the mask shows.
  template <class Rows>
  ATTNJIT_DEVICE auto place_of_listed(const Rows& rows, Descriptor descriptor) const {
    bool whole = Config::kBlockMask && descriptor.in_whole_block();
    if constexpr (!Config::kBlockMask) {
#pragma unroll
      for (int group = 0; group < Rows::kGroups; ++group) whole |= descriptor.full(group);
    }
    return copies.place_of(descriptor.tile(), [&](int key, int count) {
      if (Mask::kFromZero || whole) return true;
      TileCoord at = rows.tile();
      at.q_idx = rows.all_q_idx();
      at.kv_idx = {key, key + min(count, at.kv_len - key) - 1};
      return Mask::tiles(at, params).hi != 0;
    });
  }

  /// Loads the KV tiles that the mask does not hide, and Q. Consumers hear of the first tile with
  /// the work tile, and of each other one with the K before it.
  ATTNJIT_DEVICE void load_listed() {
    const ConsumerRows<Config, Arguments> rows{work, arguments};
    auto tiles = list_of(rows);
    Descriptor descriptor = {},
               next = {};  // K of `descriptor` is on its way, that of `next` is to be loaded
    typename Copies::Place place = {};
    bool begun = false, q_loaded = false;
#pragma unroll 1
    while (true) {
      const Descriptor after = tiles.take();
      if (!begun) {
        begun = true;
        next = after;
        set_first_descriptor(work, next);
        continue;
      }
      typename Copies::Place next_place = {};
      if (next.is_tile()) {
        next_place = place_of_listed(rows, next);
        publish_descriptor(after);
        copies.load_k(next.tile(), next_place);
      }
      if (!q_loaded) load_q(!next.is_tile());
      q_loaded = true;
      if (descriptor.is_tile()) copies.load_v(descriptor.tile(), place);
      if (!next.is_tile()) break;
      descriptor = next;
      next = after;
      place = next_place;
    }
    copies.finish();
  }

  /// All the work tiles of the CTA, as one run of KV tiles: the next work tile is taken and its
  /// list begun, and its first K is loaded, before there is room for the last V of this one.
  ATTNJIT_DEVICE void load_run(List& list) {
    TilePlace last;  // of the K whose V is to be loaded
    for (; !list.done(); list.advance()) {
      work = list.tile();
      smem.next_work_tile();
      const ConsumerRows<Config, Arguments> rows{work, arguments};
      auto tiles = list_of(rows);
      Descriptor next = {};  // of the K that is to be loaded
      bool begun = false, q_loaded = false;
#pragma unroll 1
      while (true) {
        const Descriptor after = tiles.take();
        if (!begun) {
          begun = true;
          next = after;
          set_first_descriptor(work, next);
          if (next.is_tile()) continue;
        }
        if constexpr (requires { list.fetch_next(); }) {
          if (!after.is_tile()) list.fetch_next();
        }
        TilePlace place;  // nowhere: the work tile has no keys
        if (next.is_tile()) {
          place = {next.tile(), work.head / Config::kGroup, work.batch};
          copies.load_k(place, after);
        }
        if (last.is_tile()) copies.load_v(last);
        last = place;
        // NOTE: where there are no keys Q's memory comes back after the product with that V.
        if (!q_loaded) load_q(!next.is_tile());
        q_loaded = true;
        if (!after.is_tile()) break;
        next = after;
      }
    }
    if (last.is_tile()) copies.load_v(last);
  }

  /// How many tiles ahead of its copy a tile's place is asked for. NOTE: where rows have pages of
  /// their own a tile's copies take less than a read of the table.
  static constexpr int kAhead = Config::kRowCopies ? 2 : 1;

  /// Whether such a list stands in shared memory while a work tile is loaded.
  template <class Works>
  static constexpr bool stashes() {
    return stashes_cursor<Config>() && requires(const Works& list) { list.cursor(); };
  }

  /// All the work tiles of the CTA, one after another.
  template <class Works>
  ATTNJIT_DEVICE void load_each(Works& list) {
    if constexpr (requires { list.next(); }) {
      while (list.next()) load_one(list);
    } else {
      for (; !list.done(); go_on(list)) load_one(list);
    }
  }
  /// The one that a list is at.
  template <class Works>
  ATTNJIT_DEVICE void load_one(Works& list) {
    work = list.tile();
    smem.next_work_tile();
    if constexpr (stashes<Works>()) {
      if (lane == 0) stash_cursor(smem.cursor(warp), list.cursor());
      __syncwarp();
    }
    copies.begin(work);
    if constexpr (Config::kBlockSparse) {
      load_listed();
    } else {
      const bool no_keys = work.tile_begin >= work.tile_end;
      using Place = typename Copies::Place;
      Place place = no_keys ? Place{} : place_of(work.tile_end - 1);
      Place next = no_keys ? Place{} : place_of(max(work.tile_end - 2, work.tile_begin));
      [[maybe_unused]] Place far = {};
      if constexpr (kAhead > 1) {
        if (!no_keys) far = place_of(max(work.tile_end - 3, work.tile_begin));
      }
      if (!no_keys) copies.load_k(work.tile_end - 1, place);
      load_q(no_keys);
      if (no_keys) return;
      for (int tile = work.tile_end - 2; tile >= work.tile_begin; --tile) {
        const Place after = place_of(max(tile - kAhead, work.tile_begin));
        copies.load_k(tile, next);
        copies.load_v(tile + 1, place);
        place = next;
        if constexpr (kAhead > 1) {
          next = far;
          far = after;
        } else {
          next = after;
        }
      }
      copies.load_v(work.tile_begin, place);
      copies.finish();
    }
  }
  template <class Works>
  ATTNJIT_DEVICE void go_on(Works& list) const {
    if constexpr (stashes<Works>()) {
      list.resume(stashed_cursor(smem.cursor(warp)));
      __syncwarp();
    }
    if constexpr (requires { list.fetch_next(); }) list.fetch_next();
    list.advance();
  }

  /// All the work tiles of a list, which are the CTA's, and then the end.
  template <class Works>
  ATTNJIT_DEVICE void load_all(Works list) {
    if constexpr (kListsBoxes<Config> && !deals_head_ranges<Config>()) {
      load_run(list);
    } else {
      load_each(list);
    }
    if constexpr (requires { copies.end(); }) copies.end();
#pragma unroll 1
    for (int consumer = 0; consumer < Config::kConsumers; ++consumer) {
      publish_work({-1, 0, 0, 0, 0}, consumer);
      if (warp == 0 && lane == 0) mbarrier_arrive(smem.q_full(q_ring.stage, consumer));
    }
    // Consumers do not wait until the launch's CTAs are counted off.
    if constexpr (requires { list.end(); }) list.end();
  }

  ATTNJIT_DEVICE void run() {
    if constexpr (deals_head_ranges<Config>()) {
      load_all(SequenceRangeList<Config, Mask, Arguments, Params>(
          arguments, params, stashed_cursor(smem.cursor(warp))));
    } else if constexpr (publishes_work<Config>()) {
      load_all(PublishedList<Config, List>{List(arguments, params, lane, CutWords{smem.cursor(0)}),
                                           smem, warp, lane});
    } else if constexpr (cuts_tiles<Config>()) {
      load_all(List(arguments, params, lane, CutWords{smem.cursor(0)}));
    } else {
      load_all(List(arguments, params, lane));
    }
  }
};

}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// The work of a CTA: which tiles of queries it computes, in which order, over which keys.
#pragma once

#include "common/cut_table.cuh"
#include "common/partitions.cuh"
#include "common/ring.cuh"
#include "common/sequence_lengths.cuh"
#include "maps/block_bits.cuh"
#include "maps/listed_block.cuh"
#include "maps/map_rows.cuh"
#include "sm100/layout.cuh"
#include "sm100/seen_tiles.cuh"

namespace attnjit::sm100 {

/// What a softmax warpgroup does of a work tile: `steps` KV tiles, the first of them in round
/// `lead`.
struct Share {
  int lead, steps;

  /// Which of its KV tiles it is at in a round; any number that has() denies where it is at none.
  ATTNJIT_DEVICE int step(int round) const { return round - lead; }
  ATTNJIT_DEVICE bool has(int step) const { return 0 <= step && step < steps; }
};

/// The same KV tiles by their places: the first, and how far before each the next one is.
struct Walk {
  int place, stride, steps;
};

/// One or two query tiles of 128 rows of one head, or of one group of heads. KV tiles are walked
/// from the last to the first: those that a causal mask cuts come first.
///
/// With two, warpgroup w has the query tile w, and a round is a KV tile, for both or for the one
/// whose rows see it. With one the warpgroups share its KV tiles, and a round is two of them: the
/// first is warpgroup 0's. A pair's query tiles alternate, so that warpgroups w of both have 256
/// rows that follow one another, and what one of them sees is walked by both.
struct WorkTile {
  int batch, head, kv_head;  ///< head: the group's first where heads are fused
  int q_len, kv_len;         ///< of the sequence
  int q_begin;               ///< ragged: the row of q and o where the sequence begins
  int first_position;
  int num_qo;
  KvTiles seen_0, seen_1;  ///< by each query tile's rows, of the partition's keys
  int partition = 0;       ///< of the keys, where Config::kSplit
  int kv_begin = 0;        ///< ragged_kv: the row of k and v where the sequence begins
  int first_key = 0;       ///< paged, where Config::kSkipsTiles: no row sees one before it
  // Where Config::kBlockMask, KV tiles are counted among those of a list, of which all are walked.
  int list_row = 0;   ///< which list
  int last_tile = 0;  ///< the KV tile that is walked first
  // Where Config::kSkipsTiles, they are counted without those that no row sees
  // (sm100/seen_tiles.cuh): `gap` tiles from gap_begin on; or, where `shown` is not 0, of the runs
  // of 1 << gap tiles from gap_begin on those whose bit is 0.
  int gap_begin = 0;
  int gap = 0;
  u32 shown = 0;

  /// What is loaded.
  ATTNJIT_DEVICE KvTiles all() const {
    if (num_qo == 1 || seen_1.count() == 0) return seen_0;
    if (seen_0.count() == 0) return seen_1;
    return {min(seen_0.begin, seen_1.begin), max(seen_0.end, seen_1.end)};
  }
  ATTNJIT_DEVICE int rounds() const {
    const int tiles = all().count();
    return num_qo == 1 ? (tiles + 1) >> 1 : tiles;
  }
  ATTNJIT_DEVICE Share share(int warpgroup) const {
    if (num_qo == 1) return {0, (seen_0.count() + 1 - warpgroup) >> 1};
    const KvTiles own = warpgroup == 0 ? seen_0 : seen_1;
    return {all().end - own.end, own.count()};
  }
  /// The KV tile that is walked first.
  template <class Config>
  ATTNJIT_DEVICE int first_walked() const {
    if constexpr (Config::kBlockMask) return last_tile;
    return behind_gap<Config>(all().end - 1);
  }
  /// The KV tile at a place among those that are counted.
  template <class Config>
  ATTNJIT_DEVICE int behind_gap(int place) const {
    if constexpr (!Config::kSkipsTiles) return place;
    if (kManyGaps<Config> && shown != 0) {
      const int run = place >> gap;
      return gap_begin + (nth_bit(shown, run) << gap) + place - (run << gap);
    }
    return place < gap_begin ? place : place + gap;
  }
  /// How many of those that are counted come before a KV tile.
  template <class Config>
  ATTNJIT_DEVICE int before_gap(int tile) const {
    if constexpr (!Config::kSkipsTiles) return tile;
    if (kManyGaps<Config> && shown != 0) {
      const int behind = max(tile - gap_begin, 0), run = behind >> gap;
      const int before = __popc(shown & low_bits(run)) << gap;
      return run < 32 && (shown >> run & 1u) != 0 ? before + behind - (run << gap) : before;
    }
    return tile <= gap_begin ? tile : max(tile - gap, gap_begin);
  }
  template <class Config>
  ATTNJIT_DEVICE KvTiles without_gap(KvTiles tiles) const {
    return {before_gap<Config>(tiles.begin), before_gap<Config>(tiles.end)};
  }
  /// Whether it ends past the sequence.
  template <class Config>
  ATTNJIT_DEVICE bool ends_past() const {
    return all().count() > 0 && kv_len - first_walked<Config>() * Config::kTileN < Config::kTileN;
  }
  /// Which KV tiles a softmax warpgroup takes, one a step. Where there is a single accumulator it
  /// has all.
  template <class Config>
  ATTNJIT_DEVICE Walk walk(int warpgroup) const {
    if constexpr (LayoutOf<Config>::kSingleAccumulator) return {seen_0.end - 1, 1, seen_0.count()};
    const int steps = share(warpgroup).steps;
    if (num_qo == 1) return {seen_0.end - 1 - warpgroup, 2, steps};
    return {(warpgroup == 0 ? seen_0 : seen_1).end - 1, 1, steps};
  }
};

/// The block of a mapped work tile's list that a KV tile is of. Tiles of a block follow one
/// another.
template <class Config, class Arguments>
ATTNJIT_DEVICE ListedBlock listed_block(const WorkTile& work, int place,
                                        const Arguments& arguments) {
  constexpr int kParts = kMaskBlock / Config::kTileN;
  const i64 first = static_cast<i64>(work.list_row) * arguments.list_places;
  return {static_cast<u32>(arguments.list[first + place / kParts])};
}
/// What the map knows of that block, for one of the work tile's rows of blocks.
template <class Config, class Arguments>
ATTNJIT_DEVICE BlockDescriptor listed_descriptor(const WorkTile& work, int place, int block_row,
                                                 const Arguments& arguments) {
  constexpr int kParts = kMaskBlock / Config::kTileN;
  const i64 block = static_cast<i64>(work.list_row) * arguments.list_places + place / kParts;
  return {
      static_cast<u32>(arguments.list_descriptors[block * arguments.rows_per_list + block_row])};
}
/// The KV tile at a place of what a work tile walks: of its list, where it has one.
template <class Config, class Arguments>
ATTNJIT_DEVICE int tile_at(const WorkTile& work, int place, const Arguments& arguments) {
  if constexpr (Config::kBlockMask) {
    constexpr int kParts = kMaskBlock / Config::kTileN;
    return listed_block<Config>(work, place, arguments).block() * kParts + place % kParts;
  } else {
    return work.template behind_gap<Config>(place);
  }
}

/// The key of a KV tile before which no row sees one: the work tile's `first_key`, unless the tile
/// is of a block that rows see whole by a map, whatever the mask shows.
template <class Config, class Mask, class Arguments>
ATTNJIT_DEVICE int seen_from_key(int first_key, const WorkTile& work, int place,
                                 const Arguments& arguments) {
  if constexpr (Mask::kFromZero) return 0;
  if constexpr (Config::kBlockMask) {
    const ListedBlock block = listed_block<Config>(work, place, arguments);
    if (block.is_whole(0) || block.is_whole(1)) return 0;
  }
  return first_key;
}

/// Whether a launch has one query tile a CTA.
template <class Config, class Arguments>
ATTNJIT_DEVICE bool one_query_launch(const Arguments& arguments) {
  if constexpr (LayoutOf<Config>::kAlwaysOne) return true;
  if constexpr (Config::kSwitchTo1Q) return arguments.one_query != 0;
  return Config::kNumQo == 1;
}

/// Positions of the query tiles of a CTA, or of a pair.
template <class Config, class Arguments>
ATTNJIT_DEVICE int work_positions(const Arguments& arguments) {
  return (one_query_launch<Config>(arguments) ? 1 : Config::kNumQo) * LayoutOf<Config>::kTileStep;
}

/// The work tiles of a head with so many positions. NOTE: divided by a constant: a division by what
/// the launch says is long, and stands at several places.
template <class Config, class Arguments>
ATTNJIT_DEVICE int tiles_of(int positions, const Arguments& arguments) {
  const int tiles =
      quotient(positions + LayoutOf<Config>::kTileStep - 1, LayoutOf<Config>::kTileStep);
  return one_query_launch<Config>(arguments) ? tiles
                                             : quotient(tiles + Config::kNumQo - 1, Config::kNumQo);
}

/// Rows of a sequence that CTAs take at a time; fused heads share them.
template <class Config>
struct SequenceTiling {
  static constexpr bool kKvLens = LayoutOf<Config>::kKvLens;
  static constexpr bool kPairTiles = cuts_tiles<Config>();
  static constexpr bool kPartsOutside = false;
  // NOTE: not variables, which kernels that do not ask for them would have, too.
  enum : bool { kHeadsInside = Config::kOneWorkTile };
  enum : int { kTilePositions = Config::kNumQo * LayoutOf<Config>::kTileStep };
  // By the clock, of launches of equal tiles.
  enum : int {
    kFewTicks = Config::kUpcastsKv ? 6 : 9,
    kFullTicks = 10,
    kTileTicks = LayoutOf<Config>::kOOverQ ? 30 : 6,
    // Tiles are taken in their order, so that a long one may begin late.
    kLongPercent = 50
  };
  template <class Arguments>
  ATTNJIT_DEVICE static int heads(const Arguments& arguments) {
    return arguments.num_q_heads / LayoutOf<Config>::kFused;
  }
  template <class Arguments>
  ATTNJIT_DEVICE static int tiles(int q_len, const Arguments& arguments) {
    return tiles_of<Config>(q_len, arguments);
  }
  ATTNJIT_DEVICE static bool few_rows(int q_len) { return q_len <= LayoutOf<Config>::kTileStep; }
};

template <class Config, class Arguments>
using Sequences = SequenceLengths<Config, LayoutOf<Config>::kKvLens, Arguments>;

/// The KV tiles that a query tile reaches, or a pair's two.
template <class Config, class Mask, class Params>
ATTNJIT_DEVICE KvTiles reached_by(const WorkTile& work, int position, const Params& params) {
  const int last = min(position + LayoutOf<Config>::kTileStep, work.q_len) - 1;
  const int first_q_idx = work.kv_len - work.q_len;  // of position 0
  return tiles_of_keys<Config::kTileN>(
      Mask::reach(position + first_q_idx, last + first_q_idx, work.kv_len, params));
}

/// Whether who asks an expression about tiles says where what it shows begins.
template <class Config>
inline constexpr bool kPublishesFirstKey = Config::kSkipsTiles&& Config::kPageSize > 0;

/// The first key that some row of a work tile sees, of a pair's of both, by the mask's reach; where
/// what lies before it is passed over.
template <class Config, class Mask, class Params>
ATTNJIT_DEVICE int first_key_of(const WorkTile& work, const Params& params) {
  using Layout = LayoutOf<Config>;
  if constexpr (Mask::kFromZero || !(Layout::kPaged || Config::kUpcastsKv)) return 0;
  if constexpr (kPublishesFirstKey<Config>) return work.first_key;
  int first = work.first_position;
  if constexpr (Layout::kPair) first -= cluster_rank() * Layout::kPositions;
  const int last = min(first + work.num_qo * Layout::kTileStep, work.q_len) - 1;
  const int first_q_idx = work.kv_len - work.q_len;  // of position 0
  return Mask::reach(first + first_q_idx, last + first_q_idx, work.kv_len, params).begin;
}

/// How many of the first `tiles` KV tiles of a list, which ascend, come before `end`.
template <class Config, class Arguments>
ATTNJIT_DEVICE int tiles_before(const WorkTile& work, int tiles, int end,
                                const Arguments& arguments) {
  if (tiles == 0 || tile_at<Config>(work, tiles - 1, arguments) < end) return tiles;
  int before = 0;
#pragma unroll 1
  while (before < tiles) {
    const int middle = (before + tiles) >> 1;
    if (tile_at<Config>(work, middle, arguments) < end) {
      before = middle + 1;
    } else {
      tiles = middle;
    }
  }
  return before;
}

/// How many of a list's KV tiles have keys of the sequence. The last block may have tiles past the
/// last key; and where sequences differ in length, a map that the launch is given may have blocks
/// there.
template <class Config, class Arguments>
ATTNJIT_DEVICE int tiles_with_keys(const WorkTile& work, int tiles, const Arguments& arguments) {
  return tiles_before<Config>(work, tiles, ceil_div(work.kv_len, Config::kTileN), arguments);
}

/// What a work tile's partition has of all that its rows see. Where partitions have fixed keys, a
/// list's share of one is wherever its keys are.
template <class Config, class Arguments>
ATTNJIT_DEVICE KvTiles part_of(const WorkTile& work, const Arguments& arguments) {
  const KvTiles all = work.all();
  if constexpr (Config::kBlockMask && Config::kPartitionTiles > 0) {
    const int begin = work.partition * Config::kPartitionTiles;
    return {tiles_before<Config>(work, all.end, begin, arguments),
            tiles_before<Config>(work, all.end, begin + Config::kPartitionTiles, arguments)};
  } else if constexpr (Config::kPartitionTiles > 0) {
    const int begin = work.partition * Config::kPartitionTiles;
    return intersect(all,
                     work.template without_gap<Config>({begin, begin + Config::kPartitionTiles}));
  } else {
    return attnjit::part_of<Config>(all, work.partition, arguments);
  }
}

/// `work` with what both its query tiles see: where there is a list, all of it, for each.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void find_seen(WorkTile& work, bool has_second, const Arguments& arguments,
                              const Params& params) {
  const int second = work.first_position + LayoutOf<Config>::kTileStep;
  if constexpr (Config::kBlockMask) {
    constexpr int kParts = kMaskBlock / Config::kTileN;
    const int batch = arguments.map_batches == 1 ? 0 : work.batch;
    const int map = batch * arguments.map_heads + work.head / arguments.heads_per_map;
    work.list_row = map * arguments.lists_per_map +
                    work.first_position / (kMaskBlock * arguments.rows_per_list);
    const int tiles =
        tiles_with_keys<Config>(work, arguments.list_counts[work.list_row] * kParts, arguments);
    work.seen_0 = {0, tiles};
    work.seen_1 = {0, has_second ? tiles : 0};
  } else {
    work.seen_0 = reached_by<Config, Mask>(work, work.first_position, params);
    work.seen_1 = has_second ? reached_by<Config, Mask>(work, second, params) : KvTiles{0, 0};
    if constexpr (Config::kSkipsTiles) find_shown<Config, Mask>(work, params);
  }
}

/// Asks the list which KV tile is walked first.
template <class Config, class Arguments>
ATTNJIT_DEVICE void find_last_tile(WorkTile& work, const Arguments& arguments) {
  if constexpr (Config::kBlockMask) {
    const KvTiles all = work.all();
    work.last_tile = all.count() > 0 ? tile_at<Config>(work, all.end - 1, arguments) : 0;
  }
}

/// The work tile of CTA or pair `index`, of sequences of one length. Heads come in sections whose
/// keys and values fit L2 together; within a section the last queries, the longest under a causal
/// mask, come first, and its heads follow one another.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE WorkTile work_tile_at(int index, const Arguments& arguments, const Params& params) {
  using Layout = LayoutOf<Config>;
  WorkTile work;
  const int heads = arguments.num_q_heads / Layout::kFused;
  const int section_tiles = arguments.section_heads * arguments.m_tiles;
  const int section = quotient(index, section_tiles);
  const int in_section = index - section * section_tiles;
  const int first = section * arguments.section_heads;
  const int heads_here = min(arguments.section_heads, arguments.total_heads - first);
  const int place = quotient(in_section, heads_here);
  const int item = first + in_section - place * heads_here;
  const int rank = arguments.m_tiles - 1 - place;
  work.batch = quotient(item, heads);
  work.head = (item - work.batch * heads) * Layout::kFused;
  work.q_begin = 0;
  work.q_len = arguments.q_len;
  work.kv_head = quotient(work.head, Config::kGroup);
  work.kv_len = Sequences<Config, Arguments>{arguments}.keys(work.batch, work.q_len);
  work.first_position = rank * work_positions<Config>(arguments);
  const int second = work.first_position + Layout::kTileStep;
  // A second query tile past q_len is no work: the warpgroups share the first.
  work.num_qo = one_query_launch<Config>(arguments) || second >= work.q_len ? 1 : 2;
  find_seen<Config, Mask>(work, work.num_qo == 2, arguments, params);
  find_last_tile<Config>(work, arguments);
  // What a pair sees is both CTAs': each has every second tile of 128 rows.
  if constexpr (Layout::kPair) work.first_position += cluster_rank() * Layout::kPositions;
  return work;
}

/// Says a work tile in shared memory, kWorkBytes at `address`, or that there is none: batch -1. One
/// thread.
template <class Config>
ATTNJIT_DEVICE void store_work(u32 address, const WorkTile& work, bool none) {
  const auto word = [](int value) { return static_cast<u32>(value); };
  store_shared_v4(address, word(none ? -1 : work.batch), word(work.head), word(work.q_len),
                  word(work.kv_len));
  store_shared_v4(address + 16, word(work.q_begin), word(work.first_position), word(work.num_qo),
                  word(work.partition));
  store_shared_v4(address + 32, word(work.seen_0.begin), word(work.seen_0.end),
                  word(work.seen_1.begin), word(work.seen_1.end));
  if constexpr (Config::kRaggedKv) store_shared_word(address + 48, word(work.kv_begin));
  if constexpr (kPublishesFirstKey<Config>) store_shared_word(address + 48, word(work.first_key));
  if constexpr (Config::kBlockMask) {
    store_shared_word(address + 52, word(work.list_row));
    store_shared_word(address + 56, word(work.last_tile));
  }
  if constexpr (Config::kSkipsTiles) {
    store_shared_word(address + 52, word(work.gap_begin));
    store_shared_word(address + 56, word(work.gap));
    if constexpr (kManyGaps<Config>) store_shared_word(address + 60, work.shown);
  }
}

/// What was said there.
template <class Config>
struct PublishedWork {
  u32 address;

  ATTNJIT_DEVICE bool none() const { return word(0) < 0; }
  /// NOTE: four words a statement, for compile time: each role reads it.
  ATTNJIT_DEVICE WorkTile all() const {
    WorkTile work;
    load(0, work.batch, work.head, work.q_len, work.kv_len);
    work.kv_head = work.head / Config::kGroup;
    load(16, work.q_begin, work.first_position, work.num_qo, work.partition);
    // NOTE: said twice, so that what is shared by one query tile's warpgroups is not compiled.
    if constexpr (LayoutOf<Config>::kAlwaysTwo) work.num_qo = 2;
    if constexpr (LayoutOf<Config>::kAlwaysOne) work.num_qo = 1;
    load(32, work.seen_0.begin, work.seen_0.end, work.seen_1.begin, work.seen_1.end);
    if constexpr (Config::kRaggedKv) work.kv_begin = word(12);
    if constexpr (kPublishesFirstKey<Config>) work.first_key = word(12);
    if constexpr (Config::kBlockMask) {
      work.list_row = word(13);
      work.last_tile = word(14);
    }
    if constexpr (Config::kSkipsTiles) {
      work.gap_begin = word(13);
      work.gap = word(14);
      if constexpr (kManyGaps<Config>) work.shown = static_cast<u32>(word(15));
    }
    return work;
  }
  /// Where its keys lie.
  ATTNJIT_DEVICE WorkTile keys() const {
    WorkTile work;
    work.batch = word(0);
    work.kv_head = word(1) / Config::kGroup;
    work.kv_len = word(3);
    if constexpr (Config::kRaggedKv) work.kv_begin = word(12);
    return work;
  }

 private:
  ATTNJIT_DEVICE void load(u32 from, int& a, int& b, int& c, int& d) const {
    u32 words[4];
    load_shared_v4(address + from, words[0], words[1], words[2], words[3]);
    a = static_cast<int>(words[0]);
    b = static_cast<int>(words[1]);
    c = static_cast<int>(words[2]);
    d = static_cast<int>(words[3]);
  }
  ATTNJIT_DEVICE int word(int i) const {
    return static_cast<int>(load_shared_word(address + static_cast<u32>(4 * i)));
  }
};

/// The only work tile of a CTA, which was found.
template <class Config>
struct OnlyWork {
  const Smem<Config>& smem;
  bool over = false;  ///< it is done, or there is none

  template <class Arguments, class Params>
  ATTNJIT_DEVICE OnlyWork(const Smem<Config>& memory, const Arguments&, const Params&)
      : smem(memory) {
    if constexpr (Config::kRagged) over = published().none();
  }

  ATTNJIT_DEVICE bool done() const { return over; }
  ATTNJIT_DEVICE void advance() { over = true; }
  ATTNJIT_DEVICE WorkTile tile() const {
    smem.next_work_tile();
    return published().all();
  }
  /// As those of StaticScheduler.
  ATTNJIT_DEVICE const WorkTile& again(const WorkTile& work) const { return work; }
  ATTNJIT_DEVICE const WorkTile& keys(const WorkTile& work) const { return work; }

 private:
  ATTNJIT_DEVICE PublishedWork<Config> published() const { return {smem.work_slot(0)}; }
};

/// Walks a CTA's share of the grid: every gridDim.x-th tile.
template <class Config, class Mask, class Arguments, class Params>
struct StaticScheduler {
  const Smem<Config>& smem;
  const Arguments& arguments;
  const Params& params;
  int index;
  int round_end;  ///< of the tiles that all CTAs take at a time

  ATTNJIT_DEVICE StaticScheduler(const Smem<Config>& memory, const Arguments& launch,
                                 const Params& user)
      : smem(memory),
        arguments(launch),
        params(user),
        index(worker<Config>()),
        round_end(workers<Config>()) {}

  ATTNJIT_DEVICE bool done() const { return index >= arguments.total_tiles; }
  ATTNJIT_DEVICE void advance() {
    // The CTA that had the last of a round has the first of the next: tiles come longest first.
    index = round_end + (round_end - 1 - index);
    round_end += workers<Config>();
  }

  /// The work tile that the list is at; asked for once.
  ATTNJIT_DEVICE WorkTile tile() const {
    smem.next_work_tile();
    return work_tile_at<Config, Mask>(index, arguments, params);
  }
  /// The same again, or what of it says where its keys lie, in registers that need not be kept
  /// until then.
  ATTNJIT_DEVICE const WorkTile& again(const WorkTile& work) const { return work; }
  ATTNJIT_DEVICE const WorkTile& keys(const WorkTile& work) const { return work; }
};

/// Walks the work tiles that the scheduler warp publishes (sm100/publish.cuh). kWarp: a converged
/// warp walks it, otherwise one thread. A slot is released when the role is done with the work
/// tile.
template <class Config, bool kWarp>
struct PublishedList {
  const Smem<Config>& smem;
  /// Work tiles before this one. NOTE: its lowest bits are the slot and the phase, and are made of
  /// it again: softmax warps have no registers to keep both.
  int count = 0;

  template <class Arguments, class Params>
  ATTNJIT_DEVICE PublishedList(const Smem<Config>& memory, const Arguments&, const Params&)
      : smem(memory) {
    smem.wait(smem.work_full(slot()), phase());
  }

  ATTNJIT_DEVICE bool done() const { return published().none(); }
  ATTNJIT_DEVICE void advance() {
    count = static_cast<int>(opaque(static_cast<u32>(count)));
    if constexpr (kWarp) {
      arrive_warp(smem.work_empty(slot()));
    } else {
      mbarrier_arrive(smem.work_empty(slot()));
    }
    ++count;
    smem.wait(smem.work_full(slot()), phase());
  }
  ATTNJIT_DEVICE WorkTile tile() const {
    smem.next_work_tile();
    return published().all();
  }
  ATTNJIT_DEVICE WorkTile again(const WorkTile&) const { return published().all(); }
  ATTNJIT_DEVICE WorkTile keys(const WorkTile&) const { return published().keys(); }

 private:
  static_assert(kWorkSlots == 2, "a slot is a bit");
  ATTNJIT_DEVICE int slot() const { return count & 1; }
  ATTNJIT_DEVICE int phase() const { return count >> 1 & 1; }
  ATTNJIT_DEVICE PublishedWork<Config> published() const { return {smem.work_slot(slot())}; }
};

/// The list that a role walks which is a warp (kWarp), or one thread.
template <bool kWarp, class Config, class... Types>
using SchedulerOf =
    Either<Config::kPublished, PublishedList<Config, kWarp>,
           Either<Config::kOneWorkTile, OnlyWork<Config>, StaticScheduler<Config, Types...>>>;

}  // namespace attnjit::sm100

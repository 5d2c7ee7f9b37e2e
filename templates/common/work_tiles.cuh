// SPDX-License-Identifier: Apache-2.0
// The work of a CTA of the kernels whose tiles are groups of 64 rows: which tiles of queries it
// computes, in which order, over which keys.
#pragma once

#include "common/ptx.cuh"
#include "common/scheduler_cursor.cuh"
#include "common/walk_ends.cuh"

namespace attnjit {

/// Rows of a tile in a group, which is a consumer's, or a CTA's.
constexpr int kConsumerRows = 64;
constexpr int kConsumerRowsShift = 6;

/// Warps of the producer that copy K and V where Config::kRowCopies.
constexpr int kRowCopyWarps = 4;

/// Sequences differ in length: a work tile says how long its own is.
template <class Config>
inline constexpr bool kLengthsDiffer =
    Config::kPageSize > 0 || Config::kRagged || Config::kRaggedKv;

/// Whether rows of all the heads of a group are packed by units of kConsumerRows: each has
/// kUnitPositions whole positions of as many rows as there are heads, and the rows left are
/// nobody's. So are groups that do not divide a unit.
template <class Config>
constexpr bool packs_units() {
  return Config::kUnitPositions > 0;
}

/// Query heads in the rows of one position: those of a group, or one. Without units the rows are a
/// power of two; where the heads are not, the last rows of each position have no head.
template <class Config>
inline constexpr int kPackedHeads = Config::kGqaShift > 0 || packs_units<Config>() ? Config::kGroup
                                                                                   : 1;
template <class Config>
inline constexpr bool kRowsWithoutHead = kPackedHeads<Config> != 1 << Config::kGqaShift;

/// The rows of so many positions; whole units of them.
template <class Config>
ATTNJIT_DEVICE int rows_of_positions(int positions) {
  if constexpr (packs_units<Config>()) {
    return ceil_div(positions, Config::kUnitPositions) * kConsumerRows;
  } else {
    return positions << Config::kGqaShift;
  }
}
/// The position of a unit's first row, and of its last one, which may be past the sequence's end.
template <class Config>
ATTNJIT_DEVICE int first_position(int row) {
  if constexpr (packs_units<Config>()) {
    return (row >> kConsumerRowsShift) * Config::kUnitPositions;
  } else {
    return row >> Config::kGqaShift;
  }
}
template <class Config>
ATTNJIT_DEVICE int last_position(int row) {
  if constexpr (packs_units<Config>()) {
    return ((row >> kConsumerRowsShift) + 1) * Config::kUnitPositions - 1;
  } else {
    return row >> Config::kGqaShift;
  }
}
/// The position of a row; of a unit's rows that are nobody's the one after its last.
template <class Config>
ATTNJIT_DEVICE int position_of(int row) {
  if constexpr (packs_units<Config>()) {
    return first_position<Config>(row) + quotient(row & (kConsumerRows - 1), Config::kGroup);
  } else {
    return row >> Config::kGqaShift;
  }
}

/// kTileM query rows, and the KV tiles [tile_begin, tile_end) that their mask reaches. A row is
/// position << kGqaShift | head, of the query heads that share a key-value head, or they are packed
/// by units (packs_units); where heads share no tiles, kGqaShift is 0.
struct WorkTile {
  int batch;
  int head;       ///< of packed heads the first
  int first_row;  ///< negative in a head's first tile, where its rows are no whole number of tiles
  int tile_begin, tile_end;
  // As published where tiles are listed, they are the first one's descriptor
  // (sm90/tile_descriptors.cuh). Where sequences differ in length (kLengthsDiffer): the tile's own.
  int q_begin = 0;  ///< ragged: its first row in q and o
  int q_len = 0, kv_len = 0;
  int kv_begin = 0;   ///< ragged_kv: its first row in k and v; the producer's alone
  int first_key = 0;  ///< no row sees one before it, by the mask's reach; the producer's alone
  int partition = 0;  ///< of the KV tiles that the rows reach, where Config::kSplit; or as
                      ///< cut_table.cuh says
  int idle = 0;  ///< consumers before the first that has rows of the tile; the producer's alone
};

/// The first of a consumer's rows of a work tile; negative where it has none.
template <class Config>
ATTNJIT_DEVICE int first_row_of(const WorkTile& work, int consumer) {
  const int first_row = work.first_row + consumer * kConsumerRows;
  if constexpr (kLengthsDiffer<Config>) return first_row;
  return consumer < work.idle ? -kConsumerRows : first_row;
}

/// The work tile as it is published to a consumer.
template <class Config>
ATTNJIT_DEVICE WorkTile for_consumer(WorkTile work, int consumer) {
  work.first_row = first_row_of<Config>(work, consumer) - consumer * kConsumerRows;
  return work;
}

/// How long a work tile's sequence is.
template <class Config, class Arguments>
ATTNJIT_DEVICE Lengths lengths_of(const WorkTile& work, const Arguments& arguments) {
  if constexpr (kLengthsDiffer<Config>) {
    return {work.q_len, work.kv_len};
  } else {
    return {arguments.q_len, arguments.kv_len};
  }
}

/// The batch's coordinate in the maps of Q and O: a ragged batch is one run of rows.
template <class Config>
ATTNJIT_DEVICE int q_batch(const WorkTile& work) {
  return Config::kRagged ? 0 : work.batch;
}

/// Whether a work tile's rows may see one of `count` keys from `key` on, by the mask's reach.
template <class Mask>
ATTNJIT_DEVICE bool may_see(const WorkTile& work, int key, int count) {
  if constexpr (Mask::kFromZero) return true;
  return work.first_key - key < count;
}

/// The page that holds `count` keys from `key` on; -1 where the first is past the sequence's end,
/// whose pages alone have an entry in the table, or where the work tile's rows see none. NOTE: a
/// page behind a window may be another's by then, and hold NaN. `sees(key, count)`: whether they
/// may see one.
template <class Config, class Sees, class Arguments>
ATTNJIT_DEVICE int page_of(int key, int count, const Sees& sees, const WorkTile& work,
                           const Arguments& arguments) {
  if (key >= work.kv_len || !sees(key, count)) return -1;
  return arguments
      .page_table[static_cast<i64>(work.batch) * arguments.max_pages + key / Config::kPageSize];
}

/// Which of the packed heads a row is of. A row that is nobody's counts as one's.
template <class Config>
ATTNJIT_DEVICE int head_of_row(int row) {
  if constexpr (packs_units<Config>()) {
    const int unit_row = row & (kConsumerRows - 1);
    return unit_row - quotient(unit_row, Config::kGroup) * Config::kGroup;
  } else {
    const int head = row & ((1 << Config::kGqaShift) - 1);
    return kRowsWithoutHead<Config> ? min(head, Config::kGroup - 1) : head;
  }
}
template <class Config>
ATTNJIT_DEVICE bool has_head(int row) {
  if constexpr (packs_units<Config>()) {
    return (row & (kConsumerRows - 1)) < Config::kUnitPositions * Config::kGroup;
  } else {
    return !kRowsWithoutHead<Config> || (row & ((1 << Config::kGqaShift) - 1)) < Config::kGroup;
  }
}

/// Whether a row is of a sequence with so many positions, and of a head.
template <class Config>
ATTNJIT_DEVICE bool is_row_of(int row, int q_len) {
  const bool before_end =
      packs_units<Config>() ? position_of<Config>(row) < q_len : row < q_len << Config::kGqaShift;
  return row >= 0 && before_end && has_head<Config>(row);
}
/// Whether all rows of a consumer from `first_row` on are, but for those that are nobody's.
template <class Config>
ATTNJIT_DEVICE bool are_rows_of(int first_row, int q_len) {
  if constexpr (packs_units<Config>()) return last_position<Config>(first_row) < q_len;
  return first_row + kConsumerRows <= q_len << Config::kGqaShift;
}

/// Publishes a work tile, in kWorkBytes at `address`, to the consumer that reads it there.
template <class Config>
ATTNJIT_DEVICE void store_work(u32 address, const WorkTile& work) {
  store_shared_v4(address, work.batch, work.head, work.first_row, work.tile_begin);
  store_shared_v4(address + 16, work.tile_end, work.q_begin, work.q_len, work.kv_len);
  if constexpr (Config::kSplit) store_shared_word(address + 32, static_cast<u32>(work.partition));
}
/// What the producer published, for a converged warp; batch is -1 after the last tile. NOTE: lane 0
/// alone reads, because it is lane 0 that releases the memory: an arrival orders its own thread's
/// reads.
template <class Config>
ATTNJIT_DEVICE WorkTile load_work(u32 address, int lane) {
  const auto word = [&](int i) {
    u32 value = 0;
    if (lane == 0) value = load_shared_word(address + 4 * i);
    return warp_uniform(static_cast<int>(value));
  };
  WorkTile work{word(0), word(1), word(2), word(3), word(4)};
  if constexpr (kLengthsDiffer<Config>) {
    work.q_begin = word(5);
    work.q_len = word(6);
    work.kv_len = word(7);
  }
  if constexpr (Config::kSplit) work.partition = word(8);
  return work;
}

/// How many times the packed heads go into `heads`, and the first head of the n-th time.
template <class Config>
ATTNJIT_DEVICE int packs_of(int heads) {
  return kRowsWithoutHead<Config> ? quotient(heads, Config::kGroup) : heads >> Config::kGqaShift;
}
template <class Config>
ATTNJIT_DEVICE int first_head_of(int pack) {
  return kRowsWithoutHead<Config> ? pack * Config::kGroup : pack << Config::kGqaShift;
}

/// The rows of packed heads, from `head` on, and positions [first, last]; of no keys yet.
template <class Config>
ATTNJIT_DEVICE TileCoord rows_of(int batch, int head, int first, int last, Lengths lengths) {
  TileCoord at;
  at.b = batch;
  at.kv_h = head / Config::kGroup;
  at.h = {head, head + kPackedHeads<Config> - 1};
  at.q_idx = {first + lengths.first_q_idx(), last + lengths.first_q_idx()};
  at.q_len = lengths.q;
  at.kv_len = lengths.kv;
  return at;
}

/// `work` with the KV tiles that the rows [first_row, last_row] reach, of which those before
/// position 0 and from q_len on are none; no tiles where no row is left.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE WorkTile kv_tiles_of(WorkTile work, int first_row, int last_row,
                                    const Arguments& arguments, const Params& params) {
  const Lengths lengths = lengths_of<Config>(work, arguments);
  const int first_q_idx = lengths.first_q_idx();
  const int first = first_position<Config>(max(first_row, 0));
  const int last = min(last_position<Config>(last_row), lengths.q - 1);
  const KvRange reach =
      reach_of<Config, Mask>(first + first_q_idx, last + first_q_idx, lengths.kv, params);
  if constexpr (Config::kPageSize > 0 && !Mask::kFromZero) {
    work.first_key = Mask::reach(first + first_q_idx, last + first_q_idx, lengths.kv, params).begin;
  }
  const KvTiles tiles = last < 0 ? KvTiles{0, 0} : tiles_of_keys<Config::kTileN>(reach);
  work.tile_begin = tiles.begin;
  work.tile_end = tiles.end;
  if constexpr (skips_hidden_tiles<Config>()) {
    const TileCoord rows = rows_of<Config>(work.batch, work.head, first, last, lengths);
    const KvTiles seen =
        seen_tiles<Config::kTileN, Mask>(rows, {work.tile_begin, work.tile_end}, params);
    work.tile_begin = seen.begin;
    work.tile_end = seen.end;
  }
  return work;
}

/// Whether partitions share out what a map shows of the keys, and not the keys: as many tiles of a
/// row of blocks each (sm90/warp_producer.cuh), wherever they are.
template <class Config>
inline constexpr bool kPartsOfMap = (Config::kSplit && Config::kBlockMask &&
                                     Config::kPartitionTiles == 0);

/// `work` with the KV tiles of its partition alone, where keys are shared out.
template <class Config, class Arguments>
ATTNJIT_DEVICE WorkTile part_of(WorkTile work, const Arguments& arguments) {
  if constexpr (kPartsOfMap<Config>) return work;
  const KvTiles part =
      attnjit::part_of<Config>({work.tile_begin, work.tile_end}, work.partition, arguments);
  work.tile_begin = part.begin;
  work.tile_end = part.end;
  return work;
}

/// Rows in groups of a consumer's. Tiles are whole groups, counted from the last. NOTE: TMA faults
/// on a box to store that begins before row 0. Where there is a map tiles are counted whole, so
/// that a tile's rows are of one row of its blocks; and where a cluster shares one, so that no CTA
/// of it has rows before row 0.
template <class Config>
ATTNJIT_DEVICE int groups_of(int rows) {
  constexpr bool kWhole = Config::kBlockMask || Config::kCluster > 1;
  constexpr int kGroups = kWhole ? Config::kTileM / kConsumerRows : 1;
  return ceil_div(rows, kGroups * kConsumerRows) * kGroups;
}

/// The tile of a rank among those of a head, heads counted over the whole batch.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE WorkTile tile_of_head(int batch_head, int rank, const Arguments& arguments,
                                     const Params& params) {
  const int heads_of_batch = packs_of<Config>(arguments.num_q_heads);
  WorkTile work;
  work.batch = quotient(batch_head, heads_of_batch);
  work.head = first_head_of<Config>(batch_head - work.batch * heads_of_batch);
  if constexpr (cuts_tiles<Config>()) work.partition = kWhole;
  const int past_first = max(rank + 1 - arguments.first_tiles, 0);
  const int past_second = max(rank + 1 - arguments.second_tiles, 0);
  const int groups = groups_of<Config>(rows_of_positions<Config>(arguments.q_len));
  const int groups_after =
      (rank + 1) * arguments.tile_groups + (past_first + past_second) * arguments.tile_growth;
  const int begin = (groups - groups_after) * kConsumerRows;
  const int grown = (past_first > 0 ? 1 : 0) + (past_second > 0 ? 1 : 0);
  work.idle =
      Config::kTileM / kConsumerRows - arguments.tile_groups - grown * arguments.tile_growth;
  work.first_row = begin - work.idle * kConsumerRows;
  return kv_tiles_of<Config, Mask>(work, begin, work.first_row + Config::kTileM - 1, arguments,
                                   params);
}

/// Walks a CTA's share of the grid.
///
/// A head's tiles (or those of packed heads) are ranked from its last rows to its first, and rows
/// are counted from the end, so that under a causal mask the tile that is not full is the one with
/// the fewest keys. A head's first_tiles have tile_groups groups of 64 rows, those from there to
/// second_tiles have tile_growth more, and the others twice as many more.
///
/// Where later rows see more keys (Config::kPairTiles), the work is dealt out in two parts. First
/// pairs of a long and a short tile of one head, all as long as one another; a CTA takes every
/// gridDim.x-th pair, and a head's pairs are neighbours, so that CTAs that run together share K and
/// V in L2. Then the tail, the tiles of the pairs that are left: sorted from the longest to the
/// shortest and dealt in snake order, which evens out what no number of equal pairs can. The launch
/// says where the tail begins (paired_units, a multiple of gridDim.x; negative: no
/// order by length is wanted). Otherwise a CTA takes one tile of each gridDim.x, each time the
/// place after its last one: taking the same, it might always get a head's tile that is not full,
/// or never. Heads come one after the other; but where tiles differ in height those of one rank
/// come together, the tall ones first.
///
/// Where the launch has several partitions it takes every gridDim.x-th part of a tile. A tile's
/// parts are neighbours.
template <class Config, class Mask, class Arguments, class Params>
struct StaticScheduler {
  const Arguments& arguments;
  const Params& params;
  int unit;  ///< a pair; from paired_units on, a place in a round of the tail; or a tile's part
  bool second = false;  ///< at the shorter tile of a pair; in the tail: in a round dealt fro
  int to_wrap = workers<Config>() - 1 - worker<Config>();  ///< rounds until its turn is the first

  ATTNJIT_DEVICE StaticScheduler(const Arguments& launch, const Params& user, int = 0)
      : arguments(launch), params(user), unit(worker<Config>()) {}

  ATTNJIT_DEVICE SchedulerCursor cursor() const { return {{unit, second, to_wrap, 0}}; }
  ATTNJIT_DEVICE void resume(const SchedulerCursor& at) {
    unit = at.words[0];
    second = at.words[1] != 0;
    to_wrap = at.words[2];
  }

  ATTNJIT_DEVICE bool done() const {
    if constexpr (kParts) {
      // NOTE: divided first: all the partitions of all the tiles, which the launch counts, are an
      // int.
      const int tiles = quotient(arguments.total_tiles, arguments.partitions);
      if (split()) return unit >= tiles * parts().count();
    }
    if (!pairs()) return unit >= arguments.total_tiles;
    return unit >= arguments.paired_units && tail_tile() >= tail_tiles();
  }
  ATTNJIT_DEVICE void advance() {
    if constexpr (kParts) {
      if (split()) {
        unit += workers<Config>();
        return;
      }
    }
    if (pairs()) {
      const bool tail = unit >= arguments.paired_units;
      // With an odd number of tiles the longest is a pair by itself.
      const bool alone =
          (arguments.m_tiles & 1) != 0 && unit == quotient(unit, pairs_of_head()) * pairs_of_head();
      second = !second && (tail || !alone);
      if (!tail && second) return;
    }
    unit += workers<Config>();
    if (pairs()) return;
    ++unit;
    if (to_wrap-- == 0) {
      unit -= workers<Config>();
      to_wrap = workers<Config>() - 1;
    }
  }

  ATTNJIT_DEVICE WorkTile tile() const {
    if constexpr (kParts) {
      if (split()) return tile_of_part();
    }
    int batch_head, rank;
    if (pairs()) {
      const int pairs = pairs_of_head();
      bool shorter = second;
      if (unit < arguments.paired_units) {
        batch_head = quotient(unit, pairs);
        rank = unit - batch_head * pairs;
      } else {
        // The pairs left are those from `begun` on of one head, and all those of later heads.
        const int head = quotient(arguments.paired_units, pairs);
        const int begun = arguments.paired_units - head * pairs;
        const int later_heads = heads() - 1 - head;
        const int left = heads() * pairs - arguments.paired_units;
        const int place = tail_tile();
        shorter = place >= left;
        int item = shorter ? 2 * left - 1 - place : place;
        const bool only_later = item < begun * later_heads;
        if (!only_later) item -= begun * later_heads;
        const int rank_size = only_later ? later_heads : later_heads + 1;
        rank = quotient(item, rank_size);
        batch_head = item - rank * rank_size + (only_later ? head + 1 : head);
        if (!only_later) rank += begun;
      }
      if (shorter) rank = 2 * pairs - 1 - rank;
    } else if (arguments.first_tiles < arguments.m_tiles) {
      rank = quotient(unit, heads());
      batch_head = unit - rank * heads();
    } else {
      batch_head = quotient(unit, arguments.m_tiles);
      rank = unit - batch_head * arguments.m_tiles;
    }
    return tile_of_head<Config, Mask>(batch_head, rank, arguments, params);
  }

 private:
  /// Runs are a list of their own (common/work_ranges.cuh).
  static constexpr bool kParts = Config::kSplit && !cuts_tiles<Config>();
  ATTNJIT_DEVICE bool split() const { return arguments.partitions > 1; }
  /// Of each tile.
  ATTNJIT_DEVICE PartRange parts() const {
    return parts_of<Config, Mask>({arguments.q_len, arguments.kv_len}, arguments, params);
  }
  ATTNJIT_DEVICE WorkTile tile_of_part() const {
    const PartRange parts = this->parts();
    const int tile = quotient(unit, parts.count());
    const int batch_head = quotient(tile, arguments.m_tiles);
    WorkTile work = tile_of_head<Config, Mask>(batch_head, tile - batch_head * arguments.m_tiles,
                                               arguments, params);
    work.partition = parts.begin + unit - tile * parts.count();
    return part_of<Config>(work, arguments);
  }
  ATTNJIT_DEVICE bool pairs() const { return Config::kPairTiles && arguments.paired_units >= 0; }
  ATTNJIT_DEVICE int heads() const { return quotient(arguments.total_tiles, arguments.m_tiles); }
  ATTNJIT_DEVICE int pairs_of_head() const { return (arguments.m_tiles + 1) >> 1; }
  ATTNJIT_DEVICE int tail_tiles() const {
    const int pairs = pairs_of_head();
    const int single =
        (arguments.m_tiles & 1) * quotient(arguments.paired_units + pairs - 1, pairs);
    return arguments.total_tiles - 2 * arguments.paired_units + single;
  }
  ATTNJIT_DEVICE int tail_tile() const {
    const int place = unit - arguments.paired_units;
    const int cta = worker<Config>();
    return second ? place - 2 * cta + workers<Config>() - 1 : place;
  }
};

/// The launch's arguments, with the numbers that these lists ask for as numbers that the compiler
/// does not know: what follows from them is computed after here, and not kept from before.
template <class Arguments>
ATTNJIT_DEVICE Arguments numbers_read_again(Arguments launch) {
  const auto read = [](int& number) {
    number = static_cast<int>(opaque(static_cast<u32>(number)));
  };
  read(launch.num_q_heads);
  read(launch.q_len);
  read(launch.kv_len);
  read(launch.m_tiles);
  read(launch.total_tiles);
  read(launch.paired_units);
  read(launch.tile_groups);
  read(launch.first_tiles);
  read(launch.second_tiles);
  read(launch.tile_growth);
  if constexpr (requires { launch.partitions; }) read(launch.partitions);
  return launch;
}

}  // namespace attnjit

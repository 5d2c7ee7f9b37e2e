// SPDX-License-Identifier: Apache-2.0
// Partitions of a sequence's keys: which KV tiles each has, and where its part of O and of the LSE
// is written. A merge follows (partials/merge.cuh).
#pragma once

#include "common/cut_table.cuh"
#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/sequence_lengths.cuh"

namespace attnjit {

/// Those that share the work of a grid, CTAs or clusters of them: how many there are, and which one
/// this is.
template <class Config>
ATTNJIT_DEVICE int workers() {
  return static_cast<int>(gridDim.x / Config::kCluster);
}
template <class Config>
ATTNJIT_DEVICE int worker() {
  return static_cast<int>(blockIdx.x / Config::kCluster);
}

/// KV tiles begin <= tile < end.
struct KvTiles {
  int begin, end;
  ATTNJIT_DEVICE int count() const { return max(end - begin, 0); }
};

ATTNJIT_DEVICE KvTiles intersect(KvTiles a, KvTiles b) {
  return {max(a.begin, b.begin), min(a.end, b.end)};
}

/// Those of a range of keys.
template <int kTileN>
ATTNJIT_DEVICE KvTiles tiles_of_keys(KvRange keys) {
  // NOTE: rounds up without forming end + kTileN, which may overflow.
  return keys.empty() ? KvTiles{0, 0}
                      : KvTiles{quotient(keys.begin, kTileN), quotient(keys.end - 1, kTileN) + 1};
}

/// The keys that rows [first, last] reach. NOTE: of a map of the mask all: who brings one says
/// which blocks are seen whole, whatever the mask shows of them.
template <class Config, class Mask, class Params>
ATTNJIT_DEVICE KvRange reach_of(int first, int last, int kv_len, const Params& params) {
  if constexpr (Config::kBlockMask) {
    return {0, kv_len};
  } else {
    return Mask::reach(first, last, kv_len, params);
  }
}

/// The KV tiles of a partition, for rows that reach `reached`. Where Config::kPartitionTiles is
/// set, a partition is so many tiles, counted from key 0; otherwise it has as many of the tiles
/// that are reached as the others have, but for the last ones, which may have fewer or none.
template <class Config, class Arguments>
ATTNJIT_DEVICE KvTiles part_of(KvTiles reached, int partition, const Arguments& arguments) {
  if constexpr (Config::kPartitionTiles > 0) {
    const int begin = partition * Config::kPartitionTiles;
    return {max(reached.begin, begin), min(reached.end, begin + Config::kPartitionTiles)};
  } else {
    const int each = ceil_div(reached.end - reached.begin, arguments.partitions);
    const int begin = reached.begin + partition * each;
    return {begin, min(reached.end, begin + each)};
  }
}

/// Partitions begin <= partition < end.
struct PartRange {
  int begin, end;
  ATTNJIT_DEVICE int count() const { return end - begin; }
};

/// The partitions that are work for a sequence's tiles: those with keys that its rows reach, where
/// the partitions' keys are fixed, and at least one. The others have no keys (store_no_keys).
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE PartRange parts_of(Lengths lengths, const Arguments& arguments,
                                  const Params& params) {
  if constexpr (Config::kPartitionTiles > 0) {
    constexpr int kKeys = Config::kPartitionTiles * Config::kTileN;
    const KvRange reach =
        reach_of<Config, Mask>(lengths.first_q_idx(), lengths.kv - 1, lengths.kv, params);
    if (reach.empty()) return {0, 1};
    return {quotient(reach.begin, kKeys), quotient(reach.end - 1, kKeys) + 1};
  } else {
    return {0, arguments.partitions};
  }
}

/// Whether a merge follows, which the rows of work tiles are left to.
template <class Config, class Arguments>
ATTNJIT_DEVICE bool is_merged(const Arguments& arguments) {
  if constexpr (!Config::kSplit) {
    return false;
  } else {
    return Config::kMergeOnePart || arguments.partitions > 1;
  }
}

/// The same of one work tile.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE bool is_merged(const Work& work, const Arguments& arguments) {
  if constexpr (cuts_tiles<Config>() || deals_ranges<Config>()) return work.partition != kWhole;
  return is_merged<Config>(arguments);
}

/// Where a row of a head stands among all rows of O, in the order of the LSE. Work: a work tile.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE i64 lse_row(const Work& work, int head, int position, const Arguments& arguments) {
  if constexpr (Config::kRagged) {
    return static_cast<i64>(head) * arguments.total_q + work.q_begin + position;
  } else {
    const i64 head_row = static_cast<i64>(work.batch) * arguments.num_q_heads + head;
    return head_row * arguments.q_len + position;
  }
}

/// And in the order of O, where rows lie one behind another.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE i64 packed_row(const Work& work, int head, int position,
                              const Arguments& arguments) {
  i64 row = work.q_begin + position;
  if constexpr (!Config::kRagged) row += static_cast<i64>(work.batch) * arguments.q_len;
  return row * arguments.num_q_heads + head;
}

/// Where a row of a work tile's part stands among all partial results. `tile_row`: which of the
/// tile's it is.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE i64 part_row(const Work& work, int tile_row, int head, int position,
                            const Arguments& arguments) {
  if constexpr (cuts_tiles<Config>() || deals_ranges<Config>()) {
    if (has_slots<Config>(arguments)) {
      return CutTable<cut_rows<Config>()>::lse(worker<Config>(), is_first(work.partition),
                                               tile_row);
    }
  }
  return work.partition * arguments.rows + packed_row<Config>(work, head, position, arguments);
}

/// Writes the LSE of such a row, if it is `real`; and with the first part of a cut tile which row
/// that is.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE void store_part_lse(const Work& work, int tile_row, bool real, int head,
                                   int position, float lse, const Arguments& arguments) {
  if (real) {
    arguments.partial_lse[part_row<Config>(work, tile_row, head, position, arguments)] = lse;
  }
  if constexpr (cuts_tiles<Config>() || deals_ranges<Config>()) {
    if (!has_slots<Config>(arguments) || !is_first(work.partition)) return;
    const CutTable<cut_rows<Config>()> table{arguments.partitions};
    const int range = worker<Config>();
    u32* const words = reinterpret_cast<u32*>(arguments.partial_lse);
    if (tile_row == 0) words[table.parts(range)] = static_cast<u32>(-work.partition);
    if (real) {
      words[table.row(range, tile_row)] =
          static_cast<u32>(lse_row<Config>(work, head, position, arguments));
    }
  }
}

/// Says of a packed row that the partitions which are no work for its sequence saw no key: those
/// from `first` on, every `step`-th. The merge reads the LSE of each. Where partitions have fixed
/// keys, with the first that is work.
template <class Arguments>
ATTNJIT_DEVICE void store_no_keys(PartRange parts, i64 row, int first, int step,
                                  const Arguments& arguments) {
#pragma unroll 1
  for (int part = first; part < arguments.partitions; part += step) {
    if (part >= parts.begin && part < parts.end) continue;
    arguments.partial_lse[part * arguments.rows + row] = -infinity();
  }
}

}  // namespace attnjit

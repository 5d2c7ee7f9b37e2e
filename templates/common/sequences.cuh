// SPDX-License-Identifier: Apache-2.0
// The work of a CTA where sequences differ in length: found on the device, by one warp.
#pragma once

#include "common/partitions.cuh"

namespace attnjit {

/// A query tile of a sequence, or the part of one that is a partition's.
struct SequenceTile {
  int batch;
  int q_begin;   ///< ragged: the sequence's first row in q and o
  int kv_begin;  ///< ragged_kv: its first row in k and v
  Lengths lengths;
  int head;  ///< of heads that share tiles the group's number
  int rank;  ///< of the head's tiles, from the last rows to the first
  int partition = 0;
};

/// Walks a CTA's share of the grid: every gridDim.x-th tile of all the sequences'. Sequences come
/// in their order, of each its heads (or those of packed heads), of a head its tiles from the last
/// rows to the first, and of a tile the parts of its keys: tiles that run together share K and V in
/// L2. A whole warp; 32 sequences at a time.
///
/// In a ragged batch the second half of the CTAs begin with the last of their tiles. Prompts, which
/// compute, and decodes, which load, stand together in a batch, and so they run together.
///
/// NOTE: what the launch's tensors say is not believed: rows are kept within total_q, and a
/// sequence's within q_len, so that no offsets can make a CTA write outside of O and the LSE, nor
/// the sum of the tiles overflow. Its keys are kept within kv_len, for which the page table has
/// entries.
///
/// Tiling: how an architecture cuts the rows of a sequence into tiles. It has
///   kKvLens             whether sequences differ in kv_len
///   heads(arguments)    heads, or groups of heads that share tiles
///   tiles(q_len, arguments)    of a head
template <class Config, class Mask, class Tiling, class Arguments, class Params>
struct SequenceList {
  static constexpr u32 kAll = 0xffffffffu;

  const Arguments& arguments;
  const Params& params;
  int lane;
  int first = 0;  ///< of the sequences at hand, a lane each
  int begin = 0;  ///< tiles of those before
  int sum = 0;    ///< tiles of the sequences at hand up to the lane's
  int index;      ///< of the tile that the list is at
  // NOTE: unsigned, as the grid is: half of a signed number takes more instructions.
  bool backward =
      Config::kRagged && blockIdx.x / Config::kCluster >= gridDim.x / Config::kCluster / 2;

  ATTNJIT_DEVICE SequenceList(const Arguments& launch, const Params& user, int lane_of_warp)
      : arguments(launch), params(user), lane(lane_of_warp), index(worker<Config>()) {
    count_tiles();
    if (backward) {
      while (first + 32 < arguments.batch) next();
      const int left = begin + at_hand() - 1 - index;
      if (left > 0) index += quotient(left, step()) * step();
    }
    find();
  }

  ATTNJIT_DEVICE bool done() const { return first >= arguments.batch || index < 0; }
  ATTNJIT_DEVICE void advance() {
    index += backward ? -step() : step();
    find();
  }

  ATTNJIT_DEVICE SequenceTile tile() const {
    const int place = index - begin;
    const int winner = __ffs(static_cast<int>(__ballot_sync(kAll, place < sum))) - 1;
    const int before = winner == 0 ? 0 : __shfl_sync(kAll, sum, winner - 1);
    SequenceTile work;
    work.batch = first + winner;
    work.q_begin = row_begin(work.batch);
    work.lengths.q = rows_of(work.batch);
    work.kv_begin = key_begin(work.batch);
    work.lengths.kv = keys_of(work.batch, work.lengths.q);
    int tile = place - before;  // of the sequence's
    if constexpr (Config::kSplit) {
      const PartRange parts = parts_of<Config, Mask>(work.lengths, arguments, params);
      tile = quotient(place - before, parts.count());
      work.partition = parts.begin + place - before - tile * parts.count();
    }
    const int tiles = Tiling::tiles(work.lengths.q, arguments);
    work.head = quotient(tile, tiles);
    work.rank = tile - work.head * tiles;
    return work;
  }

 private:
  ATTNJIT_DEVICE static int step() { return workers<Config>(); }
  /// Tiles of the sequences at hand.
  ATTNJIT_DEVICE int at_hand() const { return __shfl_sync(kAll, sum, 31); }

  /// Rows of q before a sequence, where they lie one behind another, and its own.
  ATTNJIT_DEVICE int row_begin(int sequence) const {
    if constexpr (Config::kRagged) {
      return min(max(arguments.q_offsets[sequence], 0), arguments.total_q);
    } else {
      return 0;
    }
  }
  ATTNJIT_DEVICE int rows_of(int sequence) const {
    if constexpr (Config::kRagged) {
      // NOTE: kept in order before it is subtracted, which may overflow.
      const int begin = row_begin(sequence);
      const int end = max(min(arguments.q_offsets[sequence + 1], arguments.total_q), begin);
      return min(end - begin, arguments.q_len);
    } else {
      return arguments.q_len;
    }
  }
  /// Rows of k before a sequence, where they lie one behind another, and its own: `rows` of them
  /// are this call's.
  ATTNJIT_DEVICE int key_begin(int sequence) const {
    if constexpr (Config::kRaggedKv) {
      return min(max(arguments.kv_offsets[sequence], 0), arguments.total_kv);
    } else {
      return 0;
    }
  }
  ATTNJIT_DEVICE int keys_of(int sequence, int rows) const {
    if constexpr (Config::kRaggedKv) {
      const int begin = key_begin(sequence);
      const int end = max(min(arguments.kv_offsets[sequence + 1], arguments.total_kv), begin);
      return min(end - begin, arguments.kv_len);
    } else if constexpr (!Tiling::kKvLens) {
      return arguments.kv_len;
    } else {
      const int keys = min(max(arguments.kv_lens[sequence], 0), arguments.kv_len);
      // NOTE: not keys + rows, which may overflow.
      return Config::kKvLensExcludeNew ? keys + min(rows, arguments.kv_len - keys) : keys;
    }
  }
  ATTNJIT_DEVICE void count_tiles() {
    const int sequence = first + lane;
    sum = 0;
    if (sequence < arguments.batch) {
      const int rows = rows_of(sequence);
      sum = Tiling::tiles(rows, arguments) * Tiling::heads(arguments);
      if constexpr (Config::kSplit) {
        sum *= parts_of<Config, Mask>({rows, keys_of(sequence, rows)}, arguments, params).count();
      }
    }
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int below = __shfl_up_sync(kAll, sum, static_cast<u32>(distance));
      if (lane >= distance) sum += below;
    }
  }

  /// Goes on to the next sequences.
  ATTNJIT_DEVICE void next() {
    begin += at_hand();
    first += 32;
    count_tiles();
  }

  /// Goes to the sequences among which the tile is.
  ATTNJIT_DEVICE void find() {
    while (!done()) {
      if (index < begin) {
        first -= 32;
        count_tiles();
        begin -= at_hand();
      } else if (index - begin >= at_hand()) {
        next();
      } else {
        return;
      }
    }
  }
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// How long the sequences of a launch are, and where they begin: from the launch's tensors on the
// device, within its bounds.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// How long a sequence is.
struct Lengths {
  int q, kv;
  /// q_idx of position 0.
  ATTNJIT_DEVICE int first_q_idx() const { return kv - q; }
};

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

/// NOTE: what the launch's tensors say is not believed: rows are kept within total_q, and a
/// sequence's within q_len, so that no offsets can make a CTA write outside of O and the LSE, nor
/// the sum of the tiles overflow. Its keys are kept within kv_len, for which the page table has
/// entries. kKvLens: sequences differ in kv_len.
template <class Config, bool kKvLens, class Arguments>
struct SequenceLengths {
  const Arguments& arguments;

  /// Rows of q before a sequence, where they lie one behind another, and its own.
  ATTNJIT_DEVICE int row_begin(int sequence) const {
    if constexpr (Config::kRagged) {
      return min(max(arguments.q_offsets[sequence], 0), arguments.total_q);
    } else {
      return 0;
    }
  }
  ATTNJIT_DEVICE int rows(int sequence) const {
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
  ATTNJIT_DEVICE int keys(int sequence, int rows) const {
    if constexpr (Config::kRaggedKv) {
      const int begin = key_begin(sequence);
      const int end = max(min(arguments.kv_offsets[sequence + 1], arguments.total_kv), begin);
      return min(end - begin, arguments.kv_len);
    } else if constexpr (!kKvLens) {
      return arguments.kv_len;
    } else {
      const int found = min(max(arguments.kv_lens[sequence], 0), arguments.kv_len);
      // NOTE: not found + rows, which may overflow.
      return Config::kKvLensExcludeNew ? found + min(rows, arguments.kv_len - found) : found;
    }
  }
  ATTNJIT_DEVICE Lengths lengths(int sequence) const {
    const int rows = this->rows(sequence);
    return {rows, keys(sequence, rows)};
  }
  ATTNJIT_DEVICE SequenceTile tile_of(int sequence, int head, int rank) const {
    return {sequence, row_begin(sequence), key_begin(sequence), lengths(sequence), head, rank};
  }

  /// Of a line that has units_of(sequence) of each sequence, and `between` that are nobody's
  /// between two that have some, calls visit(sequence, begin, units): `begin` is its first unit. A
  /// converged warp, a sequence a lane: of a lane without one there are none. True ends the walk.
  template <class UnitsOf, class Visit>
  ATTNJIT_DEVICE void walk_line(int between, int lane, const UnitsOf& units_of,
                                const Visit& visit) const {
    int before = -between;
#pragma unroll 1
    for (int first = 0; first < arguments.batch; first += 32) {
      const int sequence = first + lane;
      const int units = sequence < arguments.batch ? units_of(sequence) : 0;
      const int through = warp_sum_through(units > 0 ? between + units : 0, lane);
      if (visit(sequence, before + through - units, units)) return;
      before += __shfl_sync(0xffffffffu, through, 31);
    }
  }
};

}  // namespace attnjit

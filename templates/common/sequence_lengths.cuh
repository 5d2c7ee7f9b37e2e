// SPDX-License-Identifier: Apache-2.0
// How long the sequences of a launch are, and where they begin: from the launch's tensors on the
// device, within its bounds.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

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
};

}  // namespace attnjit

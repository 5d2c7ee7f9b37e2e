// SPDX-License-Identifier: Apache-2.0
// The epilogue of a consumer warpgroup: what its rows have come to, on its way to global memory.
#pragma once

#include "sm90/mainloop.cuh"

namespace attnjit::sm90 {

/// How a consumer ends the rows of a work tile: with O and LSE, or with a partition's part of them.
template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
struct Epilogue : Mainloop<Config, Mask, ScoreMod, Arguments, Params> {
  using Base = Mainloop<Config, Mask, ScoreMod, Arguments, Params>;
  using Base::arguments;
  using Base::Base;
  using Base::kSeparateO;
  using Base::lane;
  using Base::params;
  using Base::q_ring;
  using Base::rank_here;
  using Base::smem;
  using Base::unreleased;
  using typename Base::Layout;
  using typename Base::Rows;

  /// Ends the rows: LSE, and O on its way to global memory.
  ATTNJIT_DEVICE void finish(Rows& rows) {
    if constexpr (Config::kSplit) {
      if (is_merged<Config>(rows.work, arguments)) {
        finish_part(rows);
        q_ring.advance(Config::kQStages);
        return;
      }
    }
    float output_scale[2];
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      const int head = rows.scores.row[half].h;
      float sink = 0.0f;
      if constexpr (Config::kSink) sink = arguments.sink[head];
      float lse;
      output_scale[half] = finish_row<Config>(rows.softmax.max_sum(half), sink, lse);
      output_scale[half] *= value_scale<Config>(rows.work, arguments);
      if constexpr (Config::kOutputBytes == 1) output_scale[half] /= arguments.output_scale[0];
      if constexpr (Config::kReturnLse) {
        if ((lane & 3) == 0 && is_row(rows, half)) {
          const int position = position_of<Config>(rows.first_row + 8 * half);
          arguments.lse[lse_row<Config>(rows.work, head, position, arguments)] = lse;
        }
      }
    });
    this->release_q_late();
    const int thread = thread_read_again();
    if constexpr (Layout::kOFromRegisters) {
      const bool real[2] = {is_row(rows, 0), is_row(rows, 1)};
      store_direct<Config>(output_scale, arguments, rows.work, rows.first_row, real, thread & 31);
    } else {
      store_output<Config>(output_scale, smem, arguments, rows.work, q_ring.stage, rank_here(),
                           warp_uniform(thread >> 5) & 3, thread & 31);
    }
    // NOTE: a work tile ends in two ways where keys have parts, and behind the stores ptxas did not
    // take the warp for whole again. In the work tiles that follow it then kept of each lane what
    // is the same in all of them, and spilled 8 to 252 bytes: not of ranges of one length, which
    // were faster without (docs/sm90.md).
    constexpr bool kDenseRanges = cuts_tiles<Config>() && !kLengthsDiffer<Config>;
    if constexpr (Config::kSplit && !kDenseRanges) __syncwarp();
    if constexpr (!kSeparateO) {
      if (Config::kQStages == 1 || is_merged<Config>(arguments)) {
        // NOTE: also beside parts, which release nothing late: that would take registers.
        release_q(smem, q_ring.stage, rank_here(), lane);
      } else {
        unreleased = q_ring.stage;
      }
    }
    q_ring.advance(Config::kQStages);
  }

  /// Ends the rows of a partition, whose sink is the merge's.
  ATTNJIT_DEVICE void finish_part(Rows& rows) {
    if constexpr (!kSeparateO) release_q(smem, q_ring.stage, rank_here(), lane);
    float output_scale[2];
    bool seen[2];
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      float lse;
      output_scale[half] = finish_row<Config, false>(rows.softmax.max_sum(half), 0.0f, lse);
      output_scale[half] *= value_scale<Config>(rows.work, arguments);
      seen[half] = is_row(rows, half) && lse != -infinity();
      if ((lane & 3) == 0) {
        const int row = rows.first_row + 8 * half;
        store_part_lse<Config>(rows.work, row - rows.work.first_row, is_row(rows, half),
                               rows.scores.row[half].h, position_of<Config>(row), lse, arguments);
      }
    });
    if constexpr (Config::kPartitionTiles > 0) {
      const PartRange parts =
          parts_of<Config, Mask>(lengths_of<Config>(rows.work, arguments), arguments, params);
      if (rows.work.partition == parts.begin) empty_parts(rows, parts);
    }
    store_partial<Config>(output_scale, arguments, rows.work, rows.first_row, seen, lane);
  }

  /// Says that the partitions which are no work, those but `parts`, saw no key. The merge reads the
  /// LSE of each.
  ATTNJIT_DEVICE void empty_parts(const Rows& rows, PartRange parts) {
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      if (!is_row(rows, half)) return;
      const int position = position_of<Config>(rows.first_row + 8 * half);
      const i64 row = packed_row<Config>(rows.work, rows.scores.row[half].h, position, arguments);
      store_no_keys(parts, row, lane & 3, 4, arguments);
    });
  }

  /// Whether one of the thread's two rows is the sequence's, and of a head.
  ATTNJIT_DEVICE bool is_row(const Rows& rows, int half) const {
    return is_row_of<Config>(rows.first_row + 8 * half, lengths_of<Config>(rows.work, arguments).q);
  }
};

}  // namespace attnjit::sm90

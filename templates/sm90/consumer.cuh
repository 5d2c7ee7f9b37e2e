// SPDX-License-Identifier: Apache-2.0
// A consumer warpgroup: it takes the work tiles that the producer publishes, each through the main
// loop and the epilogue.
#pragma once

#include "sm90/epilogue.cuh"

namespace attnjit::sm90 {

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
struct Consumer : Epilogue<Config, Mask, ScoreMod, Arguments, Params> {
  using Base = Epilogue<Config, Mask, ScoreMod, Arguments, Params>;
  using Base::arguments;
  using Base::Base;
  using Base::first_row_of;
  using Base::lane;
  using Base::params;
  using Base::q_ring;
  using Base::rank;
  using Base::rank_here;
  using Base::skip;
  using Base::smem;
  using Base::warp_here;
  using typename Base::Layout;
  using typename Base::Rows;

  /// Keeps what is needed again of a work tile behind its last KV tile, where it is stashed.
  ATTNJIT_DEVICE void stash(const WorkTile& work, int let_pass) const {
    if constexpr (stashes_work<Config>()) {
      const int thread = thread_read_again();
      const u32 to = smem.stashed(thread >> 5);
      if ((thread & 31) == 0) {
        store_shared_v4(to, work.batch, work.head, work.first_row, q_ring.parity);
        if constexpr (kLengthsDiffer<Config> || Config::kSplit) {
          store_shared_v4(to + 16, work.q_begin, work.q_len, work.kv_len, work.partition);
        }
        store_shared_v4(to + 32, let_pass, q_ring.stage, 0, 0);
      }
      __syncwarp();
    }
  }
  /// The tiles of others' rows behind the last one of these.
  ATTNJIT_DEVICE int tiles_to_pass(const Rows& rows, const WorkTile& work) const {
    if constexpr (stashes_work<Config>()) {
      const u32 from = smem.stashed(thread_read_again() >> 5);
      return warp_uniform(static_cast<int>(load_shared_word(from + 32)));
    }
    return rows.own.tile_begin - work.tile_begin;
  }
  /// Finds it there, and what follows from it; or what is not kept of packed units.
  ATTNJIT_DEVICE void find_stashed(Rows& rows) {
    if constexpr (stashes_work<Config>()) {
      const int thread = thread_read_again();
      const u32 from = smem.stashed(thread >> 5);
      u32 words[8] = {};
      int stage = 0;
      if constexpr (Config::kQStages > 1) stage = static_cast<int>(load_shared_word(from + 36));
      load_shared_v4(from, words[0], words[1], words[2], words[3]);
      if constexpr (kLengthsDiffer<Config> || Config::kSplit) {
        load_shared_v4(from + 16, words[4], words[5], words[6], words[7]);
      }
      __syncwarp();  // a lane stashes the next one here
      const auto word = [&](int i) { return warp_uniform(static_cast<int>(words[i])); };
      WorkTile& work = rows.work;
      work.batch = word(0);
      work.head = word(1);
      work.first_row = word(2);
      q_ring.parity = word(3);
      if constexpr (Config::kQStages > 1) q_ring.stage = warp_uniform(stage);
      if constexpr (kLengthsDiffer<Config>) {
        work.q_begin = word(4);
        work.q_len = word(5);
        work.kv_len = word(6);
      }
      if constexpr (Config::kSplit) work.partition = word(7);
      find_heads(rows, thread);
    } else if constexpr (packs_units<Config>()) {
      find_heads(rows, thread_read_again());
    }
  }
  /// Finds where the thread's rows are, and whose. NOTE: of heads that are a quotient's rest ptxas
  /// would keep both, and the row, for which registers lack.
  ATTNJIT_DEVICE static void find_heads(Rows& rows, int thread) {
    rows.first_row = first_row_of(rows.work, thread);
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      rows.scores.row[half].h = rows.work.head + head_of_row<Config>(rows.first_row + 8 * half);
    });
  }

  ATTNJIT_DEVICE void work_tile(const WorkTile& work) {
    u32 p[Layout::kPWords];
    Rows rows{.work = work, .p = p};
    const int group_row = work.first_row + rank_here() * kConsumerRows;
    rows.first_row = group_row + warp_here() * kWarpRows + (lane >> 2);
    // These rows may see fewer tiles than the CTA's; before row 0 they see none.
    const Lengths lengths = lengths_of<Config>(work, arguments);
    const int last_row = min(group_row + kConsumerRows, rows_of_positions<Config>(lengths.q)) - 1;
    const int first_q_idx = lengths.first_q_idx();
    if constexpr (!Config::kBlockSparse) {
      rows.own = kv_tiles_of<Config, Mask>(work, group_row, last_row, arguments, params);
      if constexpr (Config::kSplit) {
        rows.own.tile_begin = max(rows.own.tile_begin, work.tile_begin);
        rows.own.tile_end = min(rows.own.tile_end, work.tile_end);
      }
      rows.core = Mask::core(first_position<Config>(max(group_row, 0)) + first_q_idx,
                             last_position<Config>(last_row) + first_q_idx, lengths.kv, params);
    }
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      const int row = rows.first_row + 8 * half;
      const int head = work.head + head_of_row<Config>(row);
      rows.scores.row[half] = {work.batch,
                               head,
                               work.head / Config::kGroup,
                               position_of<Config>(row) + first_q_idx,
                               0,
                               lengths.q,
                               lengths.kv};
      rows.state[half] = ScoreMod::prepare(head, arguments.num_q_heads, params);
      if constexpr (keys_have_scales<Config>()) {
        if (half >= kRowScales<Config>) return;
        // Nothing is made of a row that is nobody's.
        rows.scale.values[half] =
            this->is_row(rows, half)
                ? row_scale<Config>(work, head, position_of<Config>(row), arguments)
                : arguments.scale;
        rows.softmax.log2_scale.values[half] = ScoreMod::kIdentity
                                                   ? exponent_scale(rows.scale.values[half])
                                                   : exponent_factor<ScoreMod>();
        return;
      }
      if (half >= kRowScales<Config>) return;
      const float scale = score_scale<Config>(work, head, arguments);
      rows.scale.values[half] = scale;
      rows.softmax.log2_scale.values[half] = !ScoreMod::kIdentity ? exponent_factor<ScoreMod>()
                                             : Config::kScales == kNoScales ? scale * kLog2e
                                                                            : exponent_scale(scale);
    });
    OutputOf<Config>::zero();

    rows.q_address = smem.q(q_ring.stage, rank_here());
    hold_q<Config>(rows.q_address, warp_here(), lane);
    if constexpr (Config::kBlockSparse) {
      stash(work, 0);
      this->walk_list(rows);
    } else {
      stash(work, rows.own.tile_begin - work.tile_begin);
      const bool idle = rows.own.tile_begin >= rows.own.tile_end;
      if (idle) this->release_q_early();
      skip(work.tile_end - (idle ? work.tile_begin : rows.own.tile_end), !idle);
      if (!idle) {
        rows.index = rows.own.tile_end - 1;
        this->walk(rows);
        if constexpr (!Mask::kFromZero) skip(tiles_to_pass(rows, work), true);
      }
    }
    find_stashed(rows);
    this->place_rows(rows);
    this->finish(rows);
  }

  /// All work tiles that the producer publishes.
  ATTNJIT_DEVICE void run() {
    if (rank == Config::kConsumers - 1) order_barrier_arrive<Config>(this->next_order_barrier());
    while (true) {
      smem.next_work_tile();
      smem.wait(smem.q_full(q_ring.stage, rank_here()), q_ring.parity);
      const WorkTile work = load_work<Config>(smem.work(q_ring.stage, rank_here()), lane);
      if (work.batch < 0) break;
      work_tile(work);
    }
    // NOTE: the memory must outlive the reads of the last store.
    this->release_q_late();
    if constexpr (Config::kOBlocks > 0) {
      if (warp_here() == 0 && elect_one()) bulk_wait_group_read();
    }
  }
};

}  // namespace attnjit::sm90

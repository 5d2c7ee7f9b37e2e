// SPDX-License-Identifier: Apache-2.0
// The four softmax warps: S from tensor memory, P back to it, O kept relative to the maximum, and
// its end: normalised, to global memory.
//
// A warp has 16 rows. Two threads share a row: of S each has half of the keys, of O half of the
// columns.
#pragma once

#include "common/partitions.cuh"
#include "mla/listed.cuh"
#include "mla/scales.cuh"
#include "mla/tile_status.cuh"
#include "sm100/online_row.cuh"
#include "sm100/scores.cuh"
#include "sm100_mla/layout.cuh"

namespace attnjit::sm100_mla {

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
struct SoftmaxWarp {
  using Layout = LayoutOf<Config>;
  static constexpr u32 kAll = 0xffffffffu;

  const Smem<Config>& smem;
  Tmem<Config> tmem;
  const Arguments& arguments;
  const Params& params;
  int warp;  ///< of the four
  int lane;
  float score_scale;  ///< with scales, of the work tile
  float log2_scale;
  Ring tiles = {};  ///< buffers of S and P
  Ring keys = {};   ///< stages of K, where lists say what is seen of them
  int work_parity = 0;

  ATTNJIT_DEVICE SoftmaxWarp(const Smem<Config>& memory, Tmem<Config> tensors,
                             const Arguments& launch, const Params& user)
      : smem(memory),
        tmem(tensors),
        arguments(launch),
        params(user),
        warp(warp_uniform(static_cast<int>(threadIdx.x >> 5)) & 3),
        lane(static_cast<int>(threadIdx.x & 31u)),
        score_scale(launch.scale),
        log2_scale(ScoreMod::kIdentity ? launch.scale * kLog2e : exponent_factor<ScoreMod>()) {}

  /// Which of a row's two threads this is: its half of the keys, and of O.
  ATTNJIT_DEVICE int half() const { return lane >> 4; }

  /// What is known of the thread's row.
  struct Row {
    WorkTile work;
    mla::OutputRow output;
    Coord coord;
    KvRange core;            ///< KV tiles inside it need no mask
    mla::TileStatus status;  ///< where an expression decides tiles
    KvRange visible;         ///< where the mask has intervals
    typename ScoreMod::State state;
    sm100::OnlineRow online;  ///< the sum is of the thread's keys
  };

  /// Waits for the product of the tile two before the next one, whose buffer of P that one gets.
  ATTNJIT_DEVICE void await_output_but_one() const {
    smem.wait(smem.o_full(tiles.stage), tiles.parity ^ 1);
    tcgen05_fence_after();
  }
  /// Waits for the product of the tile before the next one: for all that were made.
  ATTNJIT_DEVICE void await_output() const {
    smem.wait(smem.o_full(tiles.stage ^ 1), tiles.parity ^ tiles.stage ^ 1);
    tcgen05_fence_after();
  }

  /// Which keys of the next tile are listed. NOTE: the warp waits for K itself: that S is there
  /// says so of what the tensor cores have read, and of nothing else.
  ATTNJIT_DEVICE mla::ListedKeys take_listed() {
    constexpr int kFirst = Layout::block_at(0);
    smem.wait(smem.kv_full(keys.stage, kFirst), keys.parity);
    const mla::ListedKeys listed = mla::load_listed<Config>(smem, keys.stage, lane);
    arrive_warp(smem.kv_empty(keys.stage, kFirst));
    keys.advance(Config::kStages);
    return listed;
  }

  /// Whether some score of a tile is hidden, and some seen, of those of the warp's rows.
  ATTNJIT_DEVICE void ask_tiles(Row& row, int index, bool first, bool& partial, bool& seen) const {
    const int place = index - row.work.tile_begin;
    if (first || mla::TileStatus::asks(place)) {
      row.status.template ask<Config::kTileN, Mask>(mla::rows_of_warp(row.coord, row.coord), index,
                                                    place, 1, lane, params);
    }
    partial = !row.status.whole(place);
    seen = row.status.seen(place);
  }

  /// Makes P of S. `first`: no product was made of O yet.
  ATTNJIT_DEVICE void tile(Row& row, int index, bool first) {
    const int first_kv = index * Config::kTileN;
    row.coord.kv_idx = first_kv + half() * kThreadKeys;
    // The mask is evaluated while the tensor cores make S.
    bool partial = first_kv < row.core.begin || row.core.end - first_kv < Config::kTileN;
    bool seen = true;
    if constexpr (mla::kAsksTiles<Config, Mask>) ask_tiles(row, index, first, partial, seen);
    u32 word = 0;
    if constexpr (Config::kTopk > 0) {
      const mla::ListedKeys listed = take_listed();
      partial = !listed.all();
      word = half() == 0 ? listed.low : listed.high;
    } else if (partial && seen) {
      word = sm100::visible_word<Mask>(row.coord, row.visible, params);
    }

    smem.wait(smem.s_full(tiles.stage), tiles.parity);
    tcgen05_fence_after();
    float s[kThreadKeys];
    tcgen05_ld_half_32<kThreadKeys>(s, tmem.s(tiles.stage) + Tmem<Config>::quarter(warp));
    tcgen05_wait_ld_32(s, 0);
    tcgen05_fence_before();
    arrive_warp(smem.s_empty(tiles.stage));

    sm100::modify<ScoreMod>(s, 0, row.coord, row.state, score_scale, params);
    if (partial) sm100::hide(s, 0, word);
    float maxima[4] = {row.online.maximum, kMaxFloor, kMaxFloor, kMaxFloor};
#pragma unroll
    for (int i = 0; i < kThreadKeys; i += 8) {
#pragma unroll
      for (int k = 0; k < 4; ++k) maxima[k] = max3(maxima[k], s[i + 2 * k], s[i + 2 * k + 1]);
    }
    float maximum = max3(fmaxf(maxima[0], maxima[1]), maxima[2], maxima[3]);
    maximum = fmaxf(maximum, __shfl_xor_sync(kAll, maximum, 16));
    const float factor = row.online.template renew<Config>(maximum, log2_scale);

    const float origin = row.online.maximum * log2_scale;
    u32 words[kThreadKeys / 2];
#pragma unroll
    for (int i = 0; i < kThreadKeys; i += 2) {
      const FloatPair x = fma_pair({s[i], s[i + 1]}, {log2_scale, log2_scale}, {-origin, -origin});
      s[i] = exp2_approx(x.x);
      s[i + 1] = exp2_approx(x.y);
      words[i / 2] = pack_pair<Config::kBf16>(s[i], s[i + 1]);
    }
    await_output_but_one();
#pragma unroll
    for (int copy = 0; copy < 2; ++copy) {
      tcgen05_st_half_16<kThreadKeys / 2>(tmem.p(tiles.stage, copy) + Tmem<Config>::quarter(warp),
                                          words);
    }
    tcgen05_wait_st();
    row.online.sum += sm100::row_sum(s);
    // NOTE: without a new maximum nobody waits for the product of the tile before: the next S is
    // read while it is still made.
    if (!first && __any_sync(kAll, factor != 1.0f)) {
      await_output();
      sm100::rescale<Layout::kHalfColumns>(tmem.o(0) + Tmem<Config>::quarter(warp), factor);
    }
    tcgen05_fence_before();
    arrive_warp(smem.p_full(tiles.stage));
    tiles.advance(kBuffers);
  }

  /// The thread's row, counted from the sequence's first. Its first thread writes its LSE.
  ATTNJIT_DEVICE int row_of(const WorkTile& work) const {
    return work.first_row + warp * kWarpRows + (lane & (kWarpRows - 1));
  }

  /// Ends the row: what its O is to be multiplied by.
  ATTNJIT_DEVICE float finish(const Row& row, RowMaxSum own) const {
    float sink = 0.0f;
    if constexpr (Config::kSink) sink = arguments.sink[row.output.head];
    float lse;
    const float scale = finish_row<Config>(own, sink, lse);
    if constexpr (Config::kReturnLse) {
      if (half() == 0 && row.output.real) {
        arguments.lse[lse_row<Config>(row.work, row.output.head, row.output.position, arguments)] =
            lse;
      }
    }
    return scale;
  }

  /// Ends the row of a partition, whose sink is the merge's. `partial`: where its O goes; nowhere
  /// if the row saw no key, which nobody reads.
  ATTNJIT_DEVICE float finish_part(const Row& row, RowMaxSum own, float*& partial) const {
    float lse;
    const float scale = finish_row<Config, false>(own, 0.0f, lse);
    const auto& [position, head, real] = row.output;
    const int tile_row = mla::row_of_tile<Config>(row_of(row.work));
    if (real && lse != -infinity()) {
      partial = arguments.partial_o +
                part_row<Config>(row.work, tile_row, head, position, arguments) * Config::kOvDepth;
    }
    if (half() == 0) {
      store_part_lse<Config>(row.work, tile_row, real, head, position, lse, arguments);
    }
    if constexpr (Config::kPartitionTiles > 0) {
      // The merge reads the LSE of partitions that are no work, too.
      const PartRange parts =
          parts_of<Config, Mask>(lengths_of<Config>(row.work, arguments), arguments, params);
      if (real && row.work.partition == parts.begin) {
        store_no_keys(parts, packed_row<Config>(row.work, head, position, arguments), half(), 2,
                      arguments);
      }
    }
    return scale;
  }

  /// Writes 16 columns of the row's O.
  ATTNJIT_DEVICE static void write(unsigned char* row, int column, const float (&o)[16]) {
    u32 words[8];
    pack_pairs<Config::kOutputBf16>(words, o);
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
      store_global_v4(row + 2 * (column + 2 * i), words[i], words[i + 1], words[i + 2],
                      words[i + 3]);
    }
  }
  ATTNJIT_DEVICE static void write_partial(float* row, int column, const float (&o)[16]) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      store_global_v4(row + column + i, __float_as_uint(o[i]), __float_as_uint(o[i + 1]),
                      __float_as_uint(o[i + 2]), __float_as_uint(o[i + 3]));
    }
  }

  /// Ends the work tile.
  ATTNJIT_DEVICE void end(Row& row) {
    const bool any = row.work.tile_begin < row.work.tile_end;
    const float sum = row.online.sum + __shfl_xor_sync(kAll, row.online.sum, 16);
    const RowMaxSum max_sum{sum, row.online.maximum * log2_scale};
    const bool merged = is_merged<Config>(row.work, arguments);
    float* partial = nullptr;
    unsigned char* output = nullptr;
    float scale = 0.0f;
    if constexpr (Config::kSplit) {
      if (merged) scale = finish_part(row, max_sum, partial);
    }
    if (!merged) {
      scale = finish(row, max_sum);
      if (row.output.real) {
        output = mla::output_address<Config>(row.work, row.output, arguments);
      }
    }
    scale *= mla::value_scale<Config>(row.work, arguments);
    // NOTE: the CTA's memory stays until its barriers have heard of all products.
    if (any) {
      await_output_but_one();
      await_output();
    }
    const int first_column = Layout::first_block(half()) * kBlockColumns;
#pragma unroll 1
    for (int column = 0; column < Layout::kHalfColumns; column += 16) {
      float values[16] = {};
      if (any) {
        tcgen05_ld_16(values, 0,
                      tmem.o(0) + Tmem<Config>::quarter(warp) + static_cast<u32>(column));
        tcgen05_wait_ld_16(values, 0);
#pragma unroll
        for (float& value : values) value *= scale;
      }
      // The block that both halves have is the first's to write.
      const bool own = !(Layout::kSharedBlock && half() == 1 && column < kBlockColumns);
      if (own && partial != nullptr) write_partial(partial, first_column + column, values);
      if (own && output != nullptr) write(output, first_column + column, values);
    }
  }

  ATTNJIT_DEVICE void work_tile(const WorkTile& work) {
    if constexpr (mla::kHasScales<Config>) {
      score_scale = arguments.scale * mla::key_scale<Config>(work, arguments);
      if constexpr (ScoreMod::kIdentity) log2_scale = exponent_scale(score_scale);
    }
    const Lengths lengths = lengths_of<Config>(work, arguments);
    const int first_q_idx = lengths.first_q_idx();
    Row row{.work = work};
    row.output = mla::output_row<Config>(work, row_of(work), arguments);
    row.coord = {work.batch,
                 row.output.head,
                 mla::kv_head_of<Config>(work.head),
                 row.output.position + first_q_idx,
                 0,
                 lengths.q,
                 lengths.kv};
    const int last = min((work.first_row + kRows - 1) >> Config::kGqaShift, lengths.q - 1);
    row.core = Mask::core((work.first_row >> Config::kGqaShift) + first_q_idx, last + first_q_idx,
                          lengths.kv, params);
    if constexpr (Mask::kInterval) {
      row.visible = Mask::row(row.coord.q_idx, row.coord.kv_len, params);
    }
    row.state = ScoreMod::prepare(row.coord.h, arguments.num_q_heads, params);
#pragma unroll 1
    for (int index = work.tile_end - 1; index >= work.tile_begin; --index) {
      tile(row, index, index == work.tile_end - 1);
    }
    end(row);
  }

  /// All work tiles that the producer publishes.
  ATTNJIT_DEVICE void run() {
    while (true) {
      const WorkTile work = next_work<Config>(smem, work_parity, lane);
      if (work.batch < 0) break;
      work_tile(work);
    }
    tcgen05_fence_before();
  }
};

}  // namespace attnjit::sm100_mla

// SPDX-License-Identifier: Apache-2.0
// A softmax warpgroup: S from tensor memory, P back to it, a row a thread.
//
// Source: FlashAttention-4 (Dao et al., 2026): O is corrected by another warpgroup, and only when
// the maximum has grown by more than a threshold.
#pragma once

#include "sm100/exponential.cuh"
#include "sm100/online_row.cuh"
#include "sm100/scales.cuh"
#include "sm100/score_registers.cuh"
#include "sm100/scores.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// The pairs of a row that polynomials are spread over: those before the last part of P, where
/// there are so many.
template <class Config>
constexpr int polynomial_pairs() {
  using Layout = LayoutOf<Config>;
  constexpr int kLast = parts_of_p<Config>() - 1;
  constexpr int kBefore = Layout::steps_before_part(kLast) * Layout::kStepColumns / 2;
  return kLast > 0 && Config::kExp2FmaPairs <= kBefore ? kBefore : Config::kTileN / 2;
}

/// Replaces scores by probabilities, hands them over to tensor memory at `p` in parts.
/// `warpgroup`: whose P it is, or which buffer's.
template <class Config>
ATTNJIT_DEVICE void exponentiate(float (&s)[Config::kTileN], float log2_scale, float origin, u32 p,
                                 const Smem<Config>& smem, int warpgroup) {
  constexpr int kSpread = polynomial_pairs<Config>();
  constexpr int kBatch = 8 * 4 / LayoutOf<Config>::kElementBytes;  // columns in eight words of P
  static_assert(Config::kPvKeys0 % kBatch == 0 && Config::kPvKeys1 % kBatch == 0,
                "a part of P is whole stores");
  const u64 factors = pair_bits({log2_scale, log2_scale});
  const u64 offsets = pair_bits({-origin, -origin});
#pragma unroll
  for (int begin = 0; begin < Config::kTileN; begin += kBatch) {
    u32 words[8];
#pragma unroll
    for (int i = 0; i < kBatch / 2; ++i) {
      const int column = begin + 2 * i;
      if (by_polynomial<Config::kExp2FmaPairs, kSpread>(column / 2)) {
        exp2_pair_by_polynomial(s[column], s[column + 1], factors, offsets);
      } else {
        exp2_pair(s[column], s[column + 1], factors, offsets);
      }
      if constexpr (!Config::kE4m3) {
        words[i] =
            pack_pair<LayoutOf<Config>::kPvOperand == MmaOperand::kBf16>(s[column], s[column + 1]);
      } else if (i % 2 == 1) {
        words[i / 2] = pack_e4m3(s[column - 2], s[column - 1], s[column], s[column + 1]);
      }
    }
    tcgen05_st_8(p + begin / (kBatch / 8), words);
    const int part = LayoutOf<Config>::part_that_ends(begin + kBatch);
    if (part >= 0) {
      tcgen05_wait_st();
      tcgen05_fence_before();
      smem.arrive_warp_at_leader(smem.p_full(warpgroup, part));
    }
  }
}

/// Which pairs of a group of eight columns are computed by polynomial, a bit each.
template <class Config>
constexpr int polynomials_of(int group) {
  constexpr int kSpread = polynomial_pairs<Config>();
  int bits = 0;
  for (int i = 0; i < 4; ++i) {
    if (by_polynomial<Config::kExp2FmaPairs, kSpread>(4 * group + i)) bits |= 1 << i;
  }
  return bits;
}

/// The same of scores in registers with names, from group kGroup on.
template <class Config, int kGroup = 0>
ATTNJIT_DEVICE void exponentiate_named(u64 factors, u64 offsets, u32 p, const Smem<Config>& smem,
                                       int warpgroup) {
  using Layout = LayoutOf<Config>;
  constexpr int kBatch = 4 / Layout::kElementBytes;  // groups in eight words of P
  constexpr int kNext = kGroup + kBatch;
  exponentiate_group<kGroup, polynomials_of<Config>(kGroup)>(factors, offsets);
  exponentiate_group<kGroup + 1, polynomials_of<Config>(kGroup + 1)>(factors, offsets);
  if constexpr (kBatch == 4) {
    exponentiate_group<kGroup + 2, polynomials_of<Config>(kGroup + 2)>(factors, offsets);
    exponentiate_group<kGroup + 3, polynomials_of<Config>(kGroup + 3)>(factors, offsets);
  }
  store_probabilities<Layout::kPvOperand, kGroup>(p + static_cast<u32>(8 * kGroup / kBatch));
  constexpr int kPart = Layout::part_that_ends(8 * kNext);
  if constexpr (kPart >= 0) {
    tcgen05_wait_st();
    tcgen05_fence_before();
    smem.arrive_warp_at_leader(smem.p_full(warpgroup, kPart));
  }
  if constexpr (8 * kNext < Config::kTileN) {
    exponentiate_named<Config, kNext>(factors, offsets, p, smem, warpgroup);
  }
}

/// Batches of 32 columns of a row of S, which are loaded one ahead of the other.
template <class Config>
struct ScoreBatches {
  u32 columns;  ///< of S, in this warp's lanes

  ATTNJIT_DEVICE void load(float (&s)[Config::kTileN], int begin) {
    tcgen05_ld_32(s, begin, columns + static_cast<u32>(begin));
  }
  /// Waits for a batch, and loads the next one.
  ATTNJIT_DEVICE void next(float (&s)[Config::kTileN], int begin) {
    tcgen05_wait_ld_32(s, begin);
    if (begin + 32 < Config::kTileN) load(s, begin + 32);
  }
};

template <class Config, class Mask, class ScoreMod, class Arguments, class Params>
ATTNJIT_DEVICE void softmax(const Smem<Config>& smem, const Tmem<Config>& tmem,
                            const Arguments& arguments, const Params& params, int warpgroup) {
  using Layout = LayoutOf<Config>;
  constexpr int kBatches = Config::kTileN / 32;
  constexpr bool kByToken = kKeysHaveScales<Config>;
  // Scores are used as they are: they lie in registers with names, and what a mask hides is hidden
  // in tensor memory, before they are loaded.
  constexpr bool kNamed = ScoreMod::kIdentity && !kByToken;
  if constexpr (kNamed) name_scores();
  const int row = static_cast<int>(threadIdx.x & 127u);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));
  const u32 lanes = Tmem<Config>::lanes(warp);
  const u32 warpgroup_columns = tmem.s(warpgroup) + lanes;
  float scale = arguments.scale;  // with e4m3's scales, of the row
  float log2_scale = ScoreMod::kIdentity ? scale * kLog2e : exponent_factor<ScoreMod>();
  // NOTE: found again beside masks whose tiles are listed, which leave no register for it.
  const auto slot = [&] {
    return smem.correction_slot(warpgroup, 0, Mask::kBlockSparse ? thread_read_again() & 127 : row);
  };
  // The phase of the last S, and of its P. Where there is a single accumulator, a bit a buffer.
  int parity = Layout::kSingleAccumulator ? 3 : 1;
  int slot_parity = 0;
  [[maybe_unused]] KeyScales<Config, Arguments> key_scales(smem, arguments, warpgroup, row);

  const auto publish_slot = [&] { arrive_warp(smem.correction_slot_full(warpgroup)); };
  // NOTE: of a pair each read has a phase, the first of which there is none: before it nothing lies
  // there.
  const auto await_slot_read = [&] {
    smem.wait(smem.correction_slot_empty(warpgroup), slot_parity ^ (Layout::kPair ? 1 : 0));
    if constexpr (!Config::kOneWorkTile || Layout::kPair) slot_parity ^= 1;
  };

  for (SchedulerOf<true, Config, Mask, Arguments, Params> list(smem, arguments, params);
       !list.done(); list.advance()) {
    const WorkTile work = list.tile();
    const int first = work.first_position + (work.num_qo == 2 ? warpgroup * Layout::kTileStep : 0);
    int last = min(first + Layout::kPositions, work.q_len) - 1;
    // A pair's second CTA may have no rows of a tile.
    if constexpr (Layout::kPair) last = max(first, last);
    const int first_q_idx = work.kv_len - work.q_len;  // of position 0
    // Tiles inside core need no mask.
    const KvRange core = Mask::core(first + first_q_idx, last + first_q_idx, work.kv_len, params);
    // NOTE: opaque: the quotient and remainder would be kept from one work tile to the next.
    int thread_row = row;
    if constexpr (Layout::kFused > 1) thread_row = static_cast<int>(opaque(static_cast<u32>(row)));
    const int position = first + thread_row / Layout::kFused;
    const int head = work.head + thread_row % Layout::kFused;
    Coord coord{work.batch, head, work.kv_head, position + first_q_idx, 0, work.q_len, work.kv_len};
    KvRange visible{0, 0};
    if constexpr (Mask::kInterval) visible = Mask::row(coord.q_idx, coord.kv_len, params);
    const typename ScoreMod::State state = ScoreMod::prepare(head, arguments.num_q_heads, params);

    if constexpr (Config::kScales != kNoScales) {
      scale = score_scale<Config>(work, head, position, arguments);
      if constexpr (ScoreMod::kIdentity) log2_scale = exponent_scale(scale);
    }
    // What the exponents of a tile are relative to: P is scaled by 2^kPBias. NOTE: to the
    // correction warps that is the row's maximum, so sums, LSE, sinks and merges need no other
    // care.
    const auto origin = [&](float maximum) {
      if constexpr (kByToken) return maximum - Config::kPBias;
      if constexpr (Config::kPBias == 0) return maximum * log2_scale;
      return fmaf(maximum, log2_scale, -Config::kPBias);
    };

    OnlineRow online;
    Walk walk = work.template walk<Config>(warpgroup);
    const int steps = walk.steps;
    if constexpr (kByToken) {
      if (steps > 0) key_scales.load(work, walk.place);
    }
    // NOTE: the place is kept from step to step: made again of the step it takes four more
    // instructions.
#pragma unroll 1
    for (int step = 0; step < steps; ++step, walk.place -= walk.stride) {
      // Where there is a single accumulator, S of the KV tiles lies in two buffers by turns.
      const int buffer = Layout::kSingleAccumulator ? step & 1 : warpgroup;
      const u32 s_columns = Layout::kSingleAccumulator ? tmem.s(buffer) + lanes : warpgroup_columns;
      const int place = walk.place;
      const int first_kv = tile_at<Config>(work, place, arguments) * Config::kTileN;
      if constexpr (kByToken) {
        key_scales.share();
        if (step + 1 < steps) key_scales.load(work, place - walk.stride);
      }
      // Masks are evaluated while the tensor cores make S.
      bool partial = first_kv < core.begin || core.end - first_kv < Config::kTileN;
      bool hidden = false;
      bool asked = true;
      [[maybe_unused]] bool whole = false;  // by the map, whatever the mask shows
      [[maybe_unused]] BlockDescriptor descriptor;
      if constexpr (Config::kBlockMask) {
        const ListedBlock block = listed_block<Config>(work, place, arguments);
        const int block_row = work.num_qo == 2 && arguments.rows_per_list == 2 ? warpgroup : 0;
        hidden = !block.is_seen(block_row);
        whole = block.is_whole(block_row);
        partial = !whole || work.kv_len - first_kv < Config::kTileN;
        asked = !whole && !hidden;
        if constexpr (Config::kBlockMaskBits) {
          if (asked) descriptor = listed_descriptor<Config>(work, place, block_row, arguments);
          if (descriptor.has_bits(arguments.bit_blocks)) {
            const IntRange shown = descriptor.visible(
                first % kMaskBlock, first % kMaskBlock + last - first, first_kv % kMaskBlock,
                first_kv % kMaskBlock + Config::kTileN - 1);
            partial = shown.lo == 0 || work.kv_len - first_kv < Config::kTileN;
            hidden = shown.hi == 0;
            asked = false;
          }
        }
      }
      if constexpr (Mask::kBlockSparse || Config::kBlockMask) {
        if (asked) {
          const IntRange shown = Mask::tiles(
              TileCoord{work.batch,
                        work.kv_head,
                        {work.head, work.head + Layout::kFused - 1},
                        {first + first_q_idx, last + first_q_idx},
                        {first_kv, min(work.kv_len - first_kv, Config::kTileN) + first_kv - 1},
                        work.q_len,
                        work.kv_len},
              params);
          partial = shown.lo == 0 || work.kv_len - first_kv < Config::kTileN;
          hidden = shown.hi == 0;
        }
      }
      u32 words[kBatches];
      bool score_by_score = partial;  // the mask is asked
      if constexpr (Config::kBlockMaskBits) {
        if (partial && descriptor.has_bits(arguments.bit_blocks)) {
          score_by_score = false;
          // NOTE: rows that the sequence has not are read as well: they are the block's.
          words_of_block(words,
                         arguments.block_bits + (static_cast<i64>(descriptor.place()) * kMaskBlock +
                                                 position % kMaskBlock) *
                                                    kRowWords,
                         first_kv % kMaskBlock, work.kv_len - first_kv);
        }
      }
      if constexpr (Config::kBlockMask) {
        if (partial && whole) {
          score_by_score = false;
#pragma unroll
          for (int batch = 0; batch < kBatches; ++batch) {
            words[batch] = low_bits(work.kv_len - first_kv - 32 * batch);
          }
        }
      }
      if constexpr (Mask::kInterprets) {
        if (score_by_score) {
          coord.kv_idx = first_kv;
          interpreted_words<Mask>(words, coord, hidden, params);
        }
      } else if (score_by_score) {
        coord.kv_idx = first_kv;
        visible_words<Mask>(words, coord, visible, hidden, params);
      }

      // The slot is free: correction arrives for a P behind its read of what was there
      // before. NOTE: this S was issued after that arrival, but a commit hands on nothing of what
      // its thread had acquired. The barriers of S and of P have a phase each step. A pair's
      // barriers of P are the leader's, and a slot's read has one of its own.
      if constexpr (Layout::kSingleAccumulator) {
        if (!Layout::kPair && step > 0) {
          smem.wait(smem.p_full(buffer ^ 1, 0), parity >> (buffer ^ 1) & 1);
        }
        parity ^= 1 << buffer;
        smem.wait(smem.s_full(buffer), parity >> buffer & 1);
      } else {
        if (!Layout::kPair && step > 0) smem.wait(smem.p_full(warpgroup, 0), parity);
        parity ^= 1;
        smem.wait(smem.s_full(warpgroup), parity);
      }
      tcgen05_fence_after();
      if constexpr (kNamed) {
        if (partial) hide_in_place(s_columns, words);
      }
      float maxima[4] = {online.maximum, kMaxFloor, kMaxFloor, kMaxFloor};
      [[maybe_unused]] float s[Config::kTileN];
      if constexpr (kNamed) {
        ScoreRegisters<Config>::read(s_columns, maxima);
      } else {
        ScoreBatches<Config> batches{s_columns};
        batches.load(s, 0);
        if constexpr (ScoreMod::kInterprets) {
#pragma unroll
          for (int begin = 0; begin < Config::kTileN; begin += 32) {
            batches.next(s, begin);
            if constexpr (kByToken) key_scales.multiply(s, begin);
          }
          coord.kv_idx = first_kv;
          modify_all<ScoreMod>(s, coord, scale, params);
        }
#pragma unroll
        for (int batch = 0; batch < kBatches; ++batch) {
          const int begin = 32 * batch;
          if constexpr (!ScoreMod::kInterprets) {
            batches.next(s, begin);
            coord.kv_idx = first_kv + begin;
            if constexpr (kByToken) key_scales.multiply(s, begin);
            modify<ScoreMod>(s, begin, coord, state, scale, params);
          }
          if constexpr (kByToken) key_scales.weigh(s, begin, log2_scale);
          if (partial) hide(s, begin, words[batch]);
#pragma unroll
          for (int i = 0; i < 32; i += 8) take_maxima(maxima, s + begin + i);
        }
      }
      const float tile_maximum = max3(fmaxf(maxima[0], maxima[1]), maxima[2], maxima[3]);
      const float to_exponents = kByToken ? 1.0f : log2_scale;
      const float factor = online.template renew<Config>(tile_maximum, to_exponents);
      if (step > 0) {
        if constexpr (Layout::kPair) await_slot_read();
        store_shared(slot(), factor);
        publish_slot();
      }
      if constexpr (kNamed) {
        const float offset = -origin(online.maximum);
        exponentiate_named<Config>(pair_bits({to_exponents, to_exponents}),
                                   pair_bits({offset, offset}), s_columns, smem, buffer);
      } else {
        exponentiate<Config>(s, to_exponents, origin(online.maximum), s_columns, smem, buffer);
      }
      // Off the critical path: P is signalled. No S follows the last factor that would say of
      // its read.
      if (step == steps - 1 && (!Config::kOneWorkTile || Layout::kPair || step > 0)) {
        await_slot_read();
      }
      if constexpr (kByToken) {
        online.sum += key_scales.row_sum(s);
      } else if constexpr (kNamed) {
        online.sum += ScoreRegisters<Config>::row_sum();
      } else {
        online.sum += row_sum(s);
      }
    }
    // NOTE: of no tiles nothing is said. Correction would read it after it released O, which is
    // what the next factor waits for.
    if (steps == 0) continue;
    const u32 place = slot();
    store_shared(place, online.sum);
    store_shared(place + 4 * kRows, origin(online.maximum));
    publish_slot();
  }
}

}  // namespace attnjit::sm100

// SPDX-License-Identifier: Apache-2.0
// Merges partial attentions over different keys: O = sum_i exp(lse_i - lse) O_i with
// lse = log(sum_i exp(lse_i)).
#pragma once

#include "common/cut_table.cuh"
#include "common/integers.cuh"
#include "common/ptx.cuh"
#include "common/quad_columns.cuh"

namespace attnjit::partials {

/// The largest of a warp's values, in every lane.
ATTNJIT_DEVICE float warp_max(float x) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

/// An LSE of which a difference can be taken: with an infinite sink it is infinite. NaN stays.
/// Parts of a launch have no sinks.
template <class Config>
ATTNJIT_DEVICE float finite(float lse) {
  if constexpr (Config::kPartialF32 && !Config::kSink && !Config::kAccumulate) return lse;
  return lse > largest_float() ? largest_float() : lse;
}

/// Columns that a lane reads and writes at a time.
constexpr int kUnitColumns = 4;

/// So many columns of a row as numbers of 16 bits, from `row` on, or zeros.
template <class Config>
ATTNJIT_DEVICE void load_16_bits(FloatPair (&pairs)[2], const unsigned char* row, long long unit,
                                 bool load) {
  u32 a, b;
  load_global_v2_or_zeros(row + 8 * unit, load, a, b);
  pairs[0] = unpack_pair<Config::kBf16>(a);
  pairs[1] = unpack_pair<Config::kBf16>(b);
}

/// The same of a partial O.
template <class Config>
ATTNJIT_DEVICE void load_partial(FloatPair (&pairs)[2], const unsigned char* partial_o,
                                 long long unit, bool load) {
  if constexpr (Config::kPartialF32) {
    u32 words[4];
    load_global_v4_or_zeros(partial_o + 16 * unit, load, words);
    pairs[0] = {__uint_as_float(words[0]), __uint_as_float(words[1])};
    pairs[1] = {__uint_as_float(words[2]), __uint_as_float(words[3])};
  } else {
    load_16_bits<Config>(pairs, partial_o, unit, load);
  }
}

/// Writes two neighbours of O, `word` pairs into its row. What e4m3 has not becomes its greatest.
template <class Config>
ATTNJIT_DEVICE void store_merged(unsigned char* o, int word, FloatPair pair) {
  if constexpr (Config::kOutputBytes == 1) {
    reinterpret_cast<unsigned short*>(o)[word] = pack_e4m3_pair(pair.x, pair.y);
  } else if constexpr (Config::kOutputBytes == 2) {
    reinterpret_cast<u32*>(o)[word] = pack_pair<Config::kBf16>(pair.x, pair.y);
  } else {
    store_global_v2(reinterpret_cast<float*>(o) + 2 * word, pair.x, pair.y);
  }
}

/// The same of two pairs, of a unit of a row.
template <class Config>
ATTNJIT_DEVICE void store_merged_unit(unsigned char* o, int unit, const FloatPair (&pairs)[2]) {
  if constexpr (Config::kQuadOrder) {
    store_merged<Config>(o, column_pair_of_quads(2 * unit), pairs[0]);
    store_merged<Config>(o, column_pair_of_quads(2 * unit + 1), pairs[1]);
  } else if constexpr (Config::kOutputBytes == 1) {
    reinterpret_cast<u32*>(o)[unit] = pack_e4m3(pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y);
  } else if constexpr (Config::kOutputBytes == 2) {
    store_global_v2(reinterpret_cast<u32*>(o) + 2 * unit,
                    pack_pair<Config::kBf16>(pairs[0].x, pairs[0].y),
                    pack_pair<Config::kBf16>(pairs[1].x, pairs[1].y));
  } else {
    store_global_v4(o + 16 * unit, __float_as_uint(pairs[0].x), __float_as_uint(pairs[0].y),
                    __float_as_uint(pairs[1].x), __float_as_uint(pairs[1].y));
  }
}

/// Where a row lies, by its number in the LSE: its head, its position in the batch's sequence or in
/// the ragged batch, its number in a packed O, and in the caller's.
struct RowPlace {
  long long head, position, o_row, o_bytes;
};

template <class Config, class Arguments>
ATTNJIT_DEVICE RowPlace place_of(long long row, const Arguments& arguments) {
  // NOTE: a launch has 2^31 - 1 rows at most. A division of 64 bits is a function of its own.
  const int head_and_batch =
      quotient(static_cast<int>(row), static_cast<int>(arguments.rows_per_head));
  const long long position = row - head_and_batch * arguments.rows_per_head;
  const long long batch = quotient(head_and_batch, Config::kHeads);
  const long long head = head_and_batch - batch * Config::kHeads;
  return {head, position, (batch * arguments.rows_per_head + position) * Config::kHeads + head,
          batch * arguments.o_batch_bytes + position * arguments.o_row_bytes +
              head * arguments.o_head_bytes};
}

/// Positions that sequences have: a ragged batch may have fewer than O has rows, and what lies
/// behind them is the caller's. A last offset that no sequence can have bounds no other's rows.
template <class Config, class Arguments>
ATTNJIT_DEVICE long long positions_of(const Arguments& arguments) {
  if constexpr (Config::kRagged) {
    const int last = arguments.q_offsets[arguments.batch];
    if (last >= arguments.q_offsets[arguments.batch - 1]) return last;
  }
  return arguments.rows_per_head;
}

/// What the LSEs of a row's parts come to, with a sink and with what O and LSE held before.
template <class Config>
struct RowWeights {
  float top;         ///< the greatest of them all
  float sum, total;  ///< of their weights; and with the sink's
  float scale;       ///< by which a part's weight is its factor

  /// A warp. `first_lse`: the lane's; lse_of(part): of those from 32 on.
  template <class LseOf, class Arguments>
  ATTNJIT_DEVICE RowWeights(float first_lse, int parts, int lane, const LseOf& lse_of,
                            float old_lse, float sink, const Arguments& arguments) {
    top = first_lse;
#pragma unroll 1
    for (int first = 32; first < parts; first += 32) top = fmaxf(top, lse_of(first + lane));
    top = fmaxf(warp_max(top), old_lse);
    if constexpr (Config::kLseIncludesSink) top = fmaxf(top, sink);
    sum = weight(first_lse);
#pragma unroll 1
    for (int first = 32; first < parts; first += 32) sum += weight(lse_of(first + lane));
    sum = warp_sum(sum) + weight(old_lse);
    total = sum + weight(sink);
    scale = nothing() ? 0.0f : reciprocal_approx(total);
    if constexpr (Config::kOutputBytes == 1) scale /= arguments.output_scale[0];
  }
  ATTNJIT_DEVICE bool nothing() const { return top == -infinity(); }
  ATTNJIT_DEVICE float weight(float lse) const {
    return nothing() ? 0.0f : exp2_approx((finite<Config>(lse) - finite<Config>(top)) * kLog2e);
  }
  ATTNJIT_DEVICE float factor(float lse) const { return weight(lse) * scale; }
  ATTNJIT_DEVICE float lse() const {
    const float shown = Config::kLseIncludesSink ? total : sum;
    return shown == 0.0f ? -infinity() : top + kLn2 * log2_approx(shown);
  }
};

/// A row's parts: where they lie among all rows of partial results.
struct PartRows {
  int count;
  int first;  ///< rows from where the others begin to count to the first one
  long long begin, step;
  ATTNJIT_DEVICE long long at(int part) const {
    return begin + part * step + (part == 0 ? first : 0);
  }
};

/// Whether the parts of a launch lie in slots of CTAs (common/cut_table.cuh); otherwise each
/// partition has one of each row.
template <class Config, class Arguments>
ATTNJIT_DEVICE bool merges_slots(const Arguments& arguments) {
  if constexpr (deals_ranges<Config>()) return arguments.m_tiles > 0;
  return cuts_tiles<Config>();
}

/// CTAs from one that has a part of a tile to that of the next.
template <class Config, class Arguments>
ATTNJIT_DEVICE int team_of(const Arguments& arguments) {
  if constexpr (deals_ranges<Config>()) return arguments.m_tiles;
  return 1;
}

/// Gives every step-th row from `begin` on, a number in the LSE, its place and its parts to
/// visit(): of slots those of the ranges' tables, of which a lane each asks for the warp's next 32,
/// so that neighbouring warps have a row each of neighbouring ranges, and a warp's rows are of
/// different ones: few ranges may have all that is to be merged. NOTE: in one loop: two would not
/// stay in the instruction cache beside the attention.
template <class Config, class Arguments, class Visit>
ATTNJIT_DEVICE void for_rows(long long begin, long long step, int lane, const Arguments& arguments,
                             const Visit& visit) {
  // NOTE: its divisions take as long as a read: the first row's come before there is one.
  RowPlace place = place_of<Config>(begin, arguments);
  const long long positions = positions_of<Config>(arguments);
  await_prerequisites();
  const bool slots = merges_slots<Config>(arguments);
  long long rows = arguments.rows;
  if constexpr (deals_ranges<Config>() || cuts_tiles<Config>()) {
    if (slots) rows = static_cast<long long>(arguments.partitions) * Config::kTileM;
  }
  for (long long first = begin; first < rows; first += slots ? 32 * step : step) {
    u32 left = 1;
    [[maybe_unused]] int range = 0, row_of_tile = 0, lane_parts = 0, number = -1;
    if constexpr (deals_ranges<Config>() || cuts_tiles<Config>()) {
      if (slots) {
        const CutTable<Config::kTileM> table{arguments.partitions};
        const u32* const words = reinterpret_cast<const u32*>(arguments.partial_lse);
        const int own = static_cast<int>(first + lane * step);
        if (own < rows) {
          row_of_tile = quotient(own, arguments.partitions);
          const int turned = own + row_of_tile;
          range = turned - quotient(turned, arguments.partitions) * arguments.partitions;
          lane_parts = static_cast<int>(words[table.parts(range)]);
          number = static_cast<int>(words[table.row(range, row_of_tile)]);
        }
        left = __ballot_sync(0xffffffffu, number >= 0);
      }
    }
    for (; left != 0; left &= left - 1) {
      long long row = first;
      if (slots) row = __shfl_sync(0xffffffffu, number, __ffs(static_cast<int>(left)) - 1);
      if (slots || row != begin) place = place_of<Config>(row, arguments);
      PartRows parts{arguments.partitions, 0, place.o_row, arguments.rows};
      if constexpr (deals_ranges<Config>() || cuts_tiles<Config>()) {
        if (slots) {
          const int from = __ffs(static_cast<int>(left)) - 1;
          const int its_range = __shfl_sync(0xffffffffu, range, from);
          const int tile_row = __shfl_sync(0xffffffffu, row_of_tile, from);
          using Table = CutTable<Config::kTileM>;
          parts = {__shfl_sync(0xffffffffu, lane_parts, from), Config::kTileM,
                   Table::lse(its_range, false, tile_row),
                   Table::lse(team_of<Config>(arguments), false, 0)};
        }
      }
      if (slots || place.position < positions) visit(row, place, parts);
    }
  }
}

/// A warp merges row after row of the partials, of which there are `partitions`, into `o`; with
/// kAccumulate what o and lse hold is one more. Rows are numbered as LSE is: batch, head, position;
/// partial_o is packed as [partition, batch, position, head, depth], or lies in slots. kBatch parts
/// are loaded together, and kEarly of the first ones before it is known which count, together with
/// their LSEs.
///
/// NOTE: the O of a pair that saw no key may be anything, a NaN too, or was never written: it is
/// not used.
template <class Config, int kBatch, int kEarly, class Arguments>
ATTNJIT_DEVICE void merge_rows(const Arguments& arguments) {
  constexpr int kWarps = Config::kThreads / 32;  // rows at a time
  constexpr int kUnits = Config::kDepth / kUnitColumns;
  constexpr int kLaneUnits = ceil_div(kUnits, 32);
  static_assert(Config::kDepth % kUnitColumns == 0);
  static_assert(!Config::kQuadOrder || (!Config::kAccumulate && Config::kDepth % 16 == 0));
  static_assert(!Config::kAccumulate || Config::kOutputBytes == 2,
                "the O before is read as 16-bit numbers");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // NOTE: of a number that the compiler does not know to be the warp's it would make two of each
  // shuffle, one for lanes that have not met again.
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
  const long long step = static_cast<long long>(gridDim.x) * kWarps;
  const long long begin = static_cast<long long>(blockIdx.x) * kWarps + warp;
  for_rows<Config>(
      begin, step, lane, arguments,
      [&](long long row, const RowPlace& place, const PartRows& part_rows) {
        unsigned char* const o = arguments.o + place.o_bytes;
        const int parts = part_rows.count;
        const auto lse_of = [&](int part) {
          // Pairs of attentions of their own have LSEs in the caller's order.
          const long long at =
              Config::kPartialF32 ? part_rows.at(part) : part * arguments.rows + row;
          return part < parts ? arguments.partial_lse[at] : -infinity();
        };
        const auto load = [&](FloatPair(&pairs)[kLaneUnits][2], int part, bool wanted) {
          const long long partial_row = part_rows.at(part);
#pragma unroll
          for (int i = 0; i < kLaneUnits; ++i) {
            const int unit = lane + 32 * i;
            load_partial<Config>(pairs[i], arguments.partial_o, partial_row * kUnits + unit,
                                 wanted && unit < kUnits);
          }
        };
        const float first_lse = lse_of(lane);
        [[maybe_unused]] FloatPair first_pairs[kEarly ? kEarly : 1][kLaneUnits][2];
        if constexpr (kEarly > 0) {
#pragma unroll
          for (int i = 0; i < kEarly; ++i) load(first_pairs[i], i, i < parts);
        }

        float old_lse = -infinity();
        if constexpr (Config::kAccumulate) old_lse = arguments.lse[row];
        float sink = -infinity();
        if constexpr (Config::kSink) sink = arguments.sink[place.head];
        const RowWeights<Config> weights(first_lse, parts, lane, lse_of, old_lse, sink, arguments);

        FloatPair merged[kLaneUnits][2] = {};
        const auto add = [&](float factor, const FloatPair(&pairs)[kLaneUnits][2]) {
#pragma unroll
          for (int i = 0; i < kLaneUnits; ++i) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              merged[i][j].x = fmaf(factor, pairs[i][j].x, merged[i][j].x);
              merged[i][j].y = fmaf(factor, pairs[i][j].y, merged[i][j].y);
            }
          }
        };
        if constexpr (Config::kAccumulate) {
          const float factor = weights.factor(old_lse);
          FloatPair pairs[kLaneUnits][2];
#pragma unroll
          for (int i = 0; i < kLaneUnits; ++i) {
            const int unit = lane + 32 * i;
            load_16_bits<Config>(pairs[i], o, unit, factor != 0.0f && unit < kUnits);
          }
          add(factor, pairs);
        }
    // NOTE: factors come from other lanes and not from memory, and O comes before it is needed:
    // several parts of it are on their way at a time. Parts that do not count are passed over, so
    // that a row's bits do not depend on how many there are.
#pragma unroll 1
        for (int first = 0; first < parts; first += 32) {
          const int own = first + lane;
          const float lane_factor = weights.factor(first == 0 ? first_lse : lse_of(own));
          // NOTE: where an LSE is NaN all factors are, also those of lanes that have no part.
          u32 left = __ballot_sync(0xffffffffu, own < parts && lane_factor != 0.0f);
          if constexpr (kEarly > 0) {
            if (first == 0) {
#pragma unroll
              for (int i = 0; i < kEarly; ++i) {
                const float factor = __shfl_sync(0xffffffffu, lane_factor, i);
                if ((left >> i & 1) != 0) add(factor, first_pairs[i]);
              }
              left &= ~(0xffffffffu >> (32 - kEarly));
            }
          }
          while (left != 0) {
            float factor[kBatch];
            FloatPair pairs[kBatch][kLaneUnits][2];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
              const int part = left != 0 ? __ffs(static_cast<int>(left)) - 1 : 0;
              const float its_factor = __shfl_sync(0xffffffffu, lane_factor, part);
              factor[i] = left != 0 ? its_factor : 0.0f;
              left &= left - 1;
              load(pairs[i], first + part, factor[i] != 0.0f);
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) add(factor[i], pairs[i]);
          }
        }
#pragma unroll
        for (int i = 0; i < kLaneUnits; ++i) {
          const int unit = lane + 32 * i;
          if (unit < kUnits) store_merged_unit<Config>(o, unit, merged[i]);
        }
        if constexpr (Config::kReturnLse) {
          // Every lane has read the row's old LSE before one writes the new.
          __syncwarp();
          if (lane == 0) arguments.lse[row] = weights.lse();
        }
      });
}

/// The same of long rows of many parts, a row per CTA: all parts' columns are copied to shared
/// memory at once, kStagedParts of them. Where each row has all the parts, they are on their way
/// before the LSEs are there. NOTE: in registers 32 parts were 64 of each thread, and unrolled
/// code, which a launch reads once.
template <class Config, class Arguments>
ATTNJIT_DEVICE void merge_staged_rows(const Arguments& arguments) {
  constexpr int kParts = Config::kStagedParts;
  constexpr int kWords = Config::kDepth / 2;
  constexpr int kVectors = Config::kDepth / 4;  // of 16 bytes in a row
  static_assert(kParts == 32, "a lane knows the factor of each part that is staged");
  static_assert(Config::kPartialF32 && !Config::kAccumulate && Config::kDepth % 4 == 0);
  static_assert(kWords <= Config::kThreads, "a thread has a pair of columns");
  extern __shared__ __align__(16) unsigned char staged[];
  const u32 memory = shared_address(staged);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const bool all_count = !merges_slots<Config>(arguments);
  for_rows<Config>(
      blockIdx.x, gridDim.x, lane, arguments,
      [&](long long row, const RowPlace& place, const PartRows& part_rows) {
        const int parts = part_rows.count;
        // Copies those of the parts from `first` on that count.
        const auto stage = [&](int first, const auto& counts) {
          const int vectors = min(parts - first, kParts) * kVectors;
          constexpr int kRowBytes = 4 * Config::kDepth;
          const long long part_bytes = part_rows.step * kRowBytes;
          const unsigned char* const from =
              arguments.partial_o + part_rows.begin * kRowBytes + first * part_bytes;
          const int first_bytes = first == 0 ? part_rows.first * kRowBytes : 0;
#pragma unroll 4
          for (int i = thread; i < vectors; i += Config::kThreads) {
            const int part = i / kVectors;
            if (counts(part)) {
              copy_16_or_zeros(memory + 16 * i,
                               from + part * part_bytes + (part == 0 ? first_bytes : 0) +
                                   16 * (i - part * kVectors),
                               true);
            }
          }
        };
        if (all_count) stage(0, [](int) { return true; });
        const auto lse_of = [&](int part) {
          return part < parts ? arguments.partial_lse[part_rows.at(part)] : -infinity();
        };
        const float first_lse = lse_of(lane);
        float sink = -infinity();
        if constexpr (Config::kSink) sink = arguments.sink[place.head];
        const RowWeights<Config> weights(first_lse, parts, lane, lse_of, -infinity(), sink,
                                         arguments);
        FloatPair merged = {};
#pragma unroll 1
        for (int first = 0; first < parts; first += 32) {
          const float lane_factor = weights.factor(first == 0 ? first_lse : lse_of(first + lane));
          // NOTE: where an LSE is NaN all factors are, also those of lanes that have no part.
          u32 left = __ballot_sync(0xffffffffu, first + lane < parts && lane_factor != 0.0f);
          if (first > 0 || !all_count) {
            if (first > 0) __syncthreads();  // all have read what is to be written over
            const u32 wanted = left;
            stage(first, [&](int part) { return (wanted >> part & 1) != 0; });
          }
          await_copies();
          __syncthreads();
          constexpr int kTogether = 8;
#pragma unroll 1
          for (int from = 0; left != 0; from += kTogether, left >>= kTogether) {
#pragma unroll
            for (int i = 0; i < kTogether; ++i) {
              const float factor = __shfl_sync(0xffffffffu, lane_factor, from + i);
              if ((left >> i & 1) == 0 || thread >= kWords) continue;
              u32 a, b;
              load_shared_v2(memory + 8 * ((from + i) * kWords + thread), a, b);
              merged.x = fmaf(factor, __uint_as_float(a), merged.x);
              merged.y = fmaf(factor, __uint_as_float(b), merged.y);
            }
          }
        }
        const int column_pair = Config::kQuadOrder ? column_pair_of_quads(thread) : thread;
        if (thread < kWords) {
          store_merged<Config>(arguments.o + place.o_bytes, column_pair, merged);
        }
        if constexpr (Config::kReturnLse) {
          if (thread == 0) arguments.lse[row] = weights.lse();
        }
        __syncthreads();  // all have read this row's parts
      });
}

/// NOTE: the parts of a launch that is split are early where there is room for them: in longer rows
/// they would take the registers of other rows. A long row of few parts is a warp's, as short rows
/// are: there are many such rows, and what counts is how many of them are on their way. A row's
/// bits are the same either way.
template <class Config, class Arguments>
ATTNJIT_DEVICE void merge(const Arguments& arguments) {
  if (threadIdx.x == 0) launch_dependents();
  if constexpr (Config::kStagedParts == 0) {
    // Rows of cut tiles that are no decodes have few parts: registers for more are other rows'.
    constexpr bool kFew = cuts_tiles<Config>() && !Config::kDecodes;
    constexpr bool kLong = Config::kDepth > 128;
    constexpr int kEarly = !Config::kPartialF32 || kLong ? 0 : kFew ? 4 : 16;
    constexpr int kBatch = kFew && kLong ? 4 : 8;
    merge_rows<Config, kBatch, kEarly>(arguments);
  } else {
    const bool few_parts = deals_ranges<Config>() && arguments.rows > Config::kManyRows;
    if (arguments.partitions <= Config::kFewParts || few_parts) {
      merge_rows<Config, 4, 0>(arguments);
    } else {
      merge_staged_rows<Config>(arguments);
    }
  }
}

}  // namespace attnjit::partials

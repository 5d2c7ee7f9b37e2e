// SPDX-License-Identifier: Apache-2.0
// Online softmax over a warpgroup's 64 rows of scores in wgmma accumulator registers.
//
// A thread holds two rows (8 apart) and, of each, 2 columns in every 8; a row is spread over the
// four lanes of a quad. Source: Dao, "FlashAttention-2", 2023.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/online.cuh"
#include "common/quad_columns.cuh"
#include "common/score_mod.cuh"
#include "sm90/both_rows.cuh"
#include "sm90/exponential.cuh"

namespace attnjit::sm90 {

/// Where a thread's registers of one score tile stand.
struct ScoreTile {
  Coord row[2];  ///< of the thread's two rows, but for kv_idx
  int first_kv;  ///< kv_idx of the thread's first column
};

/// Where a column of one of the thread's rows stands.
ATTNJIT_DEVICE Coord coord_of(const ScoreTile& tile, bool second, int column) {
  Coord c = tile.row[0];
  if (second) c = tile.row[1];
  c.kv_idx = tile.first_kv + 8 * (column >> 1) + (column & 1);
  return c;
}

/// What the scores of a thread's two rows are to be multiplied by: one number, or one each.
template <int kScales>
struct RowScales {
  float values[kScales];
  ATTNJIT_DEVICE float operator[](int half) const { return values[kScales == 2 ? half : 0]; }
};

/// Applies scale and score modification; without a modification the scale is left to the softmax.
/// whole: all keys of the tile are the sequence's.
template <class ScoreMod, int kCount, int kScales, class Params>
ATTNJIT_DEVICE void modify_scores(float (&s)[kCount], const ScoreTile& tile,
                                  const typename ScoreMod::State (&state)[2],
                                  const RowScales<kScales>& scale, bool whole, const Params& p) {
  if constexpr (ScoreMod::kInterprets) {
    // A row's scores one behind another.
    float rows[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      rows[(i >> 1 & 1) * (kCount / 2) + 2 * (i >> 2) + (i & 1)] = s[i];
    }
    // An interpreter has one scale: what rows have more of is multiplied in here.
    if constexpr (kScales == 2) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) rows[i] *= scale[i >= kCount / 2 ? 1 : 0];
    }
    const auto at = [&](int i) {
      const bool second = i >= kCount / 2;
      return coord_of(tile, second, i - (second ? kCount / 2 : 0));
    };
    ScoreMod::apply_all(rows, kScales == 2 ? 1.0f : scale[0], at, p);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = rows[(i >> 1 & 1) * (kCount / 2) + 2 * (i >> 2) + (i & 1)];
    }
  } else if constexpr (!ScoreMod::kIdentity) {
    for_both_rows([&](int half) {
      Coord c = tile.row[half];
      const typename ScoreMod::State row_state = state[half];
      const float row_scale = scale[half];
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& score = s[i + 2 * half + k];
          c.kv_idx = tile.first_kv + 2 * i + k;
          if constexpr (ScoreMod::kReads) {
            const int key = whole ? c.kv_idx : min(c.kv_idx, c.kv_len - 1);
            score = ScoreMod::apply_reading(row_state, score * row_scale, c, key, p);
          } else {
            score = ScoreMod::apply(row_state, score * row_scale, c, p);
          }
        }
      }
    });
  }
}

/// Which of a thread's columns its two rows see: a bit each, 32 a word.
template <int kCount>
using ColumnBits = u32[2][ceil_div(kCount / 2, 32)];

/// Hides the columns whose bit is not set. NOTE: bits become predicates seven at a time (R2P); a
/// comparison each costs as much as the selection.
template <int kCount>
ATTNJIT_DEVICE void hide(float (&s)[kCount], const ColumnBits<kCount>& bits) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int column = 0; column < kCount / 2; ++column) {
      float& score = s[2 * column - (column & 1) + 2 * half];
      score = (bits[half][column / 32] >> column % 32 & 1) != 0 ? score : -infinity();
    }
  }
}

/// The same of four columns of both rows at a time, as scales of keys come. NOTE: of the eight bits
/// of a byte ptxas makes seven predicates, and leaves the last for the end, until when it keeps
/// what those scores are made of: at depth 64 it spilled 40 bytes. The upper four of them moved
/// down, it makes four predicates at a time.
template <int kCount>
ATTNJIT_DEVICE void hide_by_keys(float (&s)[kCount], const ColumnBits<kCount>& bits) {
  constexpr int kWords = ceil_div(kCount / 2, 32);
  static_assert(kCount % 8 == 0, "columns are whole fours");
  u32 moved[2][kWords];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    // NOTE: opaque, or else the compiler would take the bits from where they were.
    for (int word = 0; word < kWords; ++word) moved[half][word] = opaque(bits[half][word] >> 4);
  }
#pragma unroll
  for (int first = 0; first < kCount / 2; first += 4) {
    const bool upper = first % 8 != 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 word = (upper ? moved : bits)[half][first / 32];
#pragma unroll
      for (int column = first; column < first + 4; ++column) {
        float& score = s[2 * column - (column & 1) + 2 * half];
        score = (word >> (column % 32 - (upper ? 4 : 0)) & 1) != 0 ? score : -infinity();
      }
    }
  }
}

/// Which of a thread's next `columns` columns, 32 at most, from `first_kv` on, a mask that reads a
/// tensor shows to a row. kLoads: pairs of columns that are on their way at a time.
template <class Mask, int kLoads, class Params>
ATTNJIT_DEVICE u32 loaded_word(const Coord& row, int first_kv, int columns, const Params& p) {
  Coord c = row;
  const typename Mask::RowTest test = Mask::row_test(row, p);
  u32 visible = 0;
#pragma unroll kLoads
  for (int bit = 0; bit < columns; bit += 2) {
    c.kv_idx = first_kv + 4 * bit;
    visible |= (visible_run<2, Mask>(test, c, p) & 3u) << bit;
  }
  return visible;
}

/// The same of both rows, where a mask is asked about each score. NOTE: a loop, of which the
/// compiler sees kStep columns: the user's expression is as long as it is, and all of them would be
/// most of the kernel; of loads more would spill. Both rows are asked together, so that the
/// expression stands at one place, and what of it depends on the key alone is computed once. Bits
/// come in at the top, so that their places within a step are constants: computed, they cost as
/// much as a short expression.
template <class Mask, int kStep, class Params>
ATTNJIT_DEVICE void asked_words(u32& first_word, u32& second_word, const Coord& first_row,
                                const Coord& second_row, int first_kv, int columns,
                                const Params& p) {
  static_assert(kStep == 1 || kStep == 2, "two columns follow one another");
  const typename Mask::RowTest first_test = Mask::row_test(first_row, p);
  const typename Mask::RowTest second_test = Mask::row_test(second_row, p);
  Coord first = first_row, second = second_row;
  first_word = second_word = 0;
#pragma unroll 1
  for (int bit = 0; bit < columns; bit += kStep) {
    u32 first_step = 0, second_step = 0;
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      first.kv_idx = second.kv_idx = first_kv + i;
      first_step |= static_cast<u32>(Mask::visible(first_test, first, p)) << (32 - kStep + i);
      second_step |= static_cast<u32>(Mask::visible(second_test, second, p)) << (32 - kStep + i);
    }
    first_word = first_word >> kStep | first_step;
    second_word = second_word >> kStep | second_step;
    first_kv += kStep == 2 ? 8 : (bit & 1) == 0 ? 1 : 7;
  }
  first_word >>= 32 - columns;
  second_word >>= 32 - columns;
}

/// The columns that a mask shows of those before kv_len, where its rows have no intervals. kFew:
/// what is known of fewer columns at a time, where registers lack.
template <class Mask, int kCount, bool kFew = false, class Params>
ATTNJIT_DEVICE void visible_columns(ColumnBits<kCount>& bits, const ScoreTile& tile,
                                    const Params& p) {
  constexpr int kColumns = kCount / 2;
  static_assert(kColumns % 4 == 0, "columns are whole steps");
#pragma unroll
  for (int word = 0; word < kColumns; word += 32) {
    const int first_kv = tile.first_kv + 4 * word;
    const int columns = min(32, kColumns - word);
    if constexpr (Mask::kLoads) {
      constexpr int kLoads = kFew ? 4 : 8;
      for_both_rows([&](int half) {
        bits[half][word / 32] = loaded_word<Mask, kLoads>(tile.row[half], first_kv, columns, p);
      });
    } else {
      asked_words<Mask, kFew ? 1 : 2>(bits[0][word / 32], bits[1][word / 32], tile.row[0],
                                      tile.row[1], first_kv, columns, p);
    }
  }
  for_both_rows([&](int half) {
    const int end = columns_before(tile.row[half].kv_len - tile.first_kv);
#pragma unroll
    for (int word = 0; word < kColumns; word += 32) bits[half][word / 32] &= low_bits(end - word);
  });
}

/// The same of a mask that is interpreted.
template <class Mask, int kCount, class Params>
ATTNJIT_DEVICE void interpreted_columns(ColumnBits<kCount>& bits, const ScoreTile& tile,
                                        const Params& p) {
  constexpr int kColumns = kCount / 2;
  constexpr int kWords = ceil_div(kColumns, 32);
  u32 words[2 * kWords];
  Mask::template columns<kColumns>(
      words, [&](int row, int column) { return coord_of(tile, row == 1, column); }, p);
  for_both_rows([&](int half) {
    const int end = columns_before(tile.row[half].kv_len - tile.first_kv);
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
      bits[half][word] = words[half * kWords + word] & low_bits(end - 32 * word);
    }
  });
}

/// The columns that a mask of intervals shows, of those before kv_len.
template <class Mask, int kCount, class Params>
ATTNJIT_DEVICE void interval_columns(ColumnBits<kCount>& bits, const ScoreTile& tile,
                                     const Params& p) {
  for_both_rows([&](int half) {
    const KvRange row = Mask::row(tile.row[half].q_idx, tile.row[half].kv_len, p);
    const int end = columns_before(row.end - tile.first_kv);
    const int begin = Mask::kFromZero ? 0 : columns_before(row.begin - tile.first_kv);
#pragma unroll
    for (int word = 0; word < kCount / 2; word += 32) {
      u32 visible = low_bits(end - word);
      if constexpr (!Mask::kFromZero) visible &= ~low_bits(begin - word);
      bits[half][word / 32] = visible;
    }
  });
}

/// The largest (or the sum) of a row's four lanes.
ATTNJIT_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
ATTNJIT_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Whether the tensor cores sum the rows of P, as a product with ones. Then they are the sums of
/// what is multiplied with V: of P rounded.
template <class Config>
constexpr bool sums_by_product() {
  return Config::kSumsByProduct;
}

/// The running state of a thread's two rows. Scores are in units of which `log2_scale` makes
/// exponents of 2; log2_scale > 0. Probabilities are multiplied by 2^kPBias: of e4m3 that keeps
/// small ones, and with what a maximum may grow it stays below 448.
template <class Config, int kScales = 1>
struct OnlineSoftmax {
  RowScales<kScales> log2_scale;
  float maximum[2] = {kMaxFloor, kMaxFloor};
  float sum[2] = {0.0f, 0.0f};  ///< of this lane's columns; by product, of the row

  /// Replaces scores by probabilities relative to the running maximum. True, in the whole warp,
  /// where a row's maximum moved: earlier outputs are then to be multiplied by `correction`.
  template <int kCount>
  ATTNJIT_DEVICE bool step(float (&s)[kCount], float (&correction)[2]) {
    float largest[2] = {maximum[0], maximum[1]};
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
        largest[half] = fmaxf(largest[half], fmaxf(s[i], s[i + 1]));
      }
    });
    const bool moved = move_far_maxima(largest, correction);
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      const float origin = this->origin(half);
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4) {
#pragma unroll
        for (int k = i; k < i + 2; ++k) {
          const float x = fmaf(s[k], log2_scale[half], -origin);
          s[k] = by_polynomial<Config::kExp2FmaPairs, kCount / 4>(k / 4) ? exp2_polynomial(x)
                                                                         : exp2_approx(x);
        }
        if constexpr (!sums_by_product<Config>()) {
          sum[half] += s[i] + s[i + 1];
        }
      }
    });
    return moved;
  }

  /// The same of scores in registers with names (sm90/score_registers.cuh).
  template <class Scores>
  ATTNJIT_DEVICE bool step(float (&correction)[2]) {
    static_assert(Config::kExp2FmaPairs == 0 && !sums_by_product<Config>(),
                  "exponentials are the MUFU's, and sums are added up");
    float largest[2] = {maximum[0], maximum[1]};
    Scores::find_largest(largest);
    const bool moved = move_far_maxima(largest, correction);
    float sums[4];
    Scores::make_probabilities({log2_scale[0], log2_scale[1]}, {-origin(0), -origin(1)}, sums);
    add_pairs(sums);
    return moved;
  }

  /// The same with such scores, which stay as they are: `pairs` gets their
  /// probabilities. Maxima are looked for only in a tile where probabilities, relative to those of
  /// earlier tiles, sum up to so much that one may exceed 2^threshold.
  ///
  /// NOTE: that is seldom, and then the tile is computed again. Beside products a maximum of two
  /// numbers takes 1.76 times as long as alone, and 2^x 1.28 times (one H200, docs/sm90.md).
  template <bool kBf16, class Scores>
  ATTNJIT_DEVICE bool follow(const Scores& scores, u32 (&pairs)[Scores::kCount / 2],
                             float (&correction)[2]) {
    static_assert(!Config::kRescaleByRow && Config::kPBias == 0.0f,
                  "rows of a warp move together, and P has no bias");
    static_assert(Config::kExp2FmaPairs == 0, "scores may exceed what the polynomial is for");
    static_assert(Config::kRescaleThreshold == static_cast<int>(Config::kRescaleThreshold),
                  "a whole power of two");
    constexpr float kMost = static_cast<float>(1 << static_cast<int>(Config::kRescaleThreshold));
    u32 moved = 0;
    float sums[4];
    while (true) {
      scores.template probabilities<kBf16>({log2_scale[0], log2_scale[1]}, {-origin(0), -origin(1)},
                                           pairs, sums);
      // NOTE: the compiler would make a copy of all this for the second pass, whose end it knows.
      moved = opaque(moved);
      const bool small = sums[0] <= kMost && sums[2] <= kMost &&  //
                         sums[1] <= kMost && sums[3] <= kMost;
      if (moved != 0 || __all_sync(0xffffffffu, small)) break;
      float largest[2] = {maximum[0], maximum[1]};
      scores.find_largest(largest);
      move_maxima(largest, correction);
      moved = 1;
    }
    add_pairs(sums);
    return moved != 0;
  }

  /// Where rows are summed by product: adds a tile's sums, each of which a thread has twice, in two
  /// columns of an accumulator.
  ATTNJIT_DEVICE void add(const float (&row_sums)[4]) {
    sum[0] += row_sums[0];
    sum[1] += row_sums[2];
  }
  /// And makes the sums relative to maxima that moved, which step() leaves to the caller there.
  ATTNJIT_DEVICE void correct(const float (&correction)[2]) {
    sum[0] *= correction[0];
    sum[1] *= correction[1];
  }

  /// Of a row, in all four lanes of its quad. What they are relative to includes the bias, so LSE,
  /// sinks and merges need no other care.
  ATTNJIT_DEVICE RowMaxSum max_sum(int half) const {
    return {sums_by_product<Config>() ? sum[half] : quad_sum(sum[half]), origin(half)};
  }

 private:
  /// Moves the maxima to the largest of this lane's columns, if in the warp one has grown far. True
  /// where it has.
  ATTNJIT_DEVICE bool move_far_maxima(float (&largest)[2], float (&correction)[2]) {
    bool keep = true;
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      // How far, in exponents of 2, scores may exceed the running maximum before a warp's rows
      // follow theirs: probabilities stay below 2^threshold, and most tiles leave sums and outputs
      // as they are. Source: Zadouri et al., "FlashAttention-4", 2026.
      if constexpr (Config::kRescaleByRow) largest[half] = quad_max(largest[half]);
      const bool stays =
          (maximum[half] - largest[half]) * log2_scale[half] >= -Config::kRescaleThreshold;
      if (Config::kRescaleByRow && stays) largest[half] = maximum[half];  // its correction is 1
      keep = keep && stays;
    });
    // NOTE: most tiles move no maximum, and a vote tells that sooner than the four shuffles that
    // make a lane's maximum its row's. With kRescaleByRow it only spares work that changes no bit.
    const bool moved = !__all_sync(0xffffffffu, keep);
    if (moved) move_maxima(largest, correction);
    return moved;
  }

  /// Moves the maxima to the largest of the whole row, and makes the sums relative to them.
  ATTNJIT_DEVICE void move_maxima(const float (&largest)[2], float (&correction)[2]) {
    for_both_rows<loops_over_rows<Config>()>([&](int half) {
      const float row_max = Config::kRescaleByRow ? largest[half] : quad_max(largest[half]);
      correction[half] = exp2_approx((maximum[half] - row_max) * log2_scale[half]);
      maximum[half] = row_max;
      if constexpr (!sums_by_product<Config>()) sum[half] *= correction[half];
    });
  }

  /// Adds a tile's sums, of which each row has two.
  ATTNJIT_DEVICE void add_pairs(const float (&sums)[4]) {
    sum[0] += sums[0] + sums[2];
    sum[1] += sums[1] + sums[3];
  }

  /// What exponents of 2 are relative to.
  ATTNJIT_DEVICE float origin(int half) const {
    if constexpr (Config::kPBias == 0) return maximum[half] * log2_scale[half];
    return fmaf(maximum[half], log2_scale[half], -Config::kPBias);
  }
};

}  // namespace attnjit::sm90

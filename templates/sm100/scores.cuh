// SPDX-License-Identifier: Apache-2.0
// A thread's row of scores: score modifications, and masks as words of 32 columns.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/quad_columns.cuh"
#include "common/score_mod.cuh"

namespace attnjit::sm100 {

/// Which of 32 columns from c.kv_idx on the row sees. `row`: the keys it sees where the mask has
/// intervals.
template <class Mask, class Params>
ATTNJIT_DEVICE u32 visible_word(Coord c, const KvRange& row, const Params& p) {
  const int first = c.kv_idx;
  if constexpr (Mask::kInterval) {
    u32 word = low_bits(row.end - first);
    if constexpr (!Mask::kFromZero) word &= ~low_bits(row.begin - first);
    return word;
  } else if constexpr (loads_bools<Mask>()) {
    return visible_run<32, Mask>(Mask::row_test(c, p), c, p) & low_bits(c.kv_len - first);
  } else {
    const typename Mask::RowTest test = Mask::row_test(c, p);
    u32 word = 0;
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
      c.kv_idx = first + i;
      word |= static_cast<u32>(Mask::visible(test, c, p)) << i;
    }
    return word & low_bits(c.kv_len - first);
  }
}

/// The words of the columns from c.kv_idx on, by a mask that is interpreted.
template <class Mask, int kWords, class Params>
ATTNJIT_DEVICE void interpreted_words(u32 (&words)[kWords], const Coord& c, bool hidden,
                                      const Params& p) {
  if (hidden) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = 0;
    return;
  }
  const auto at = [&](int, int column) {
    Coord here = c;
    here.kv_idx += column;
    return here;
  };
  Mask::template columns<32 * kWords>(words, at, p);
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] &= low_bits(c.kv_len - c.kv_idx - 32 * i);
}

/// The words of a tile's columns, of which the first is a block's column `first`, by the block's
/// bits of the row (maps/block_bits.cuh). `keys`: those of the sequence from the first column on;
/// of others a map which was made for a longer one says anything.
template <int kWords>
ATTNJIT_DEVICE void words_of_block(u32 (&words)[kWords], const u32* bits, int first, int keys) {
  const uint4 row = *reinterpret_cast<const uint4*>(bits);
  const u32 of_lanes[] = {row.x >> first / 4, row.y >> first / 4, row.z >> first / 4,
                          row.w >> first / 4};
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = 0;
#pragma unroll
    for (int q = 0; q < kQuad; ++q) {
      words[i] |= columns_of_quad(of_lanes[q] >> 8 * i & 0xffu, q);
    }
    words[i] &= low_bits(keys - 32 * i);
  }
}

/// Hides the columns of scores[begin..begin+31] whose bit is not set.
template <int kCount>
ATTNJIT_DEVICE void hide(float (&scores)[kCount], int begin, u32 word) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if ((word & (1u << i)) == 0) scores[begin + i] = -infinity();
  }
}

/// Applies scale and an interpreted score modification to all scores of a tile, c.kv_idx being the
/// first's.
template <class ScoreMod, int kCount, class Params>
ATTNJIT_DEVICE void modify_all(float (&scores)[kCount], const Coord& c, float scale,
                               const Params& p) {
  const auto at = [&](int column) {
    Coord here = c;
    here.kv_idx += column;
    return here;
  };
  ScoreMod::apply_all(scores, scale, at, p);
}

/// Applies scale and score modification to scores[begin..begin+31], c.kv_idx being the first's.
/// Without a modification the scale is left to the exponential.
template <class ScoreMod, int kCount, class Params>
ATTNJIT_DEVICE void modify(float (&scores)[kCount], int begin, Coord c,
                           const typename ScoreMod::State& state, float scale, const Params& p) {
  if constexpr (!ScoreMod::kIdentity) {
    const int first = c.kv_idx;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      c.kv_idx = first + i;
      scores[begin + i] = ScoreMod::apply(state, scores[begin + i] * scale, c, p);
    }
  }
}

}  // namespace attnjit::sm100

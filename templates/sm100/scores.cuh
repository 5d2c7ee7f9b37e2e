// SPDX-License-Identifier: Apache-2.0
// A thread's row of scores: score modifications, and masks as words of 32 columns.
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/quad_columns.cuh"
#include "common/score_mod.cuh"
#include "common/tcgen05.cuh"

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
  } else if constexpr (Mask::kLoads) {
    return visible_run<32, Mask>(Mask::row_test(c, p), c, p) & low_bits(c.kv_len - first);
  } else {
    const typename Mask::RowTest test = Mask::row_test(c, p);
    // NOTE: bits come in at the top, so that their places within a step are constants: by the clock
    // four columns take up to 3 % less of a launch than eight did whose bits were moved there.
    constexpr int kStep = 4;
    u32 word = 0;
#pragma unroll 1
    for (int column = 0; column < 32; column += kStep) {
      u32 step = 0;
#pragma unroll
      for (int i = 0; i < kStep; ++i) {
        c.kv_idx = first + column + i;
        step |= static_cast<u32>(Mask::visible(test, c, p)) << (32 - kStep + i);
      }
      word = word >> kStep | step;
    }
    return word & low_bits(c.kv_len - first);
  }
}

/// The words of the columns from c.kv_idx on. NOTE: an expression stands at one place, for compile
/// time: four words of which 8 columns were unrolled each were a sixth of a kernel's.
template <class Mask, int kWords, class Params>
ATTNJIT_DEVICE void visible_words(u32 (&words)[kWords], Coord c, const KvRange& row, bool hidden,
                                  const Params& p) {
  const int first = c.kv_idx;
  if constexpr (Mask::kInterval) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      c.kv_idx = first + 32 * i;
      words[i] = hidden ? 0 : visible_word<Mask>(c, row, p);
    }
  } else {
#pragma unroll 1
    for (int number = 0; number < kWords; ++number) {
      c.kv_idx = first + 32 * number;
      // NOTE: turned by a word each time around: an index would put them into local memory.
#pragma unroll
      for (int i = 0; i + 1 < kWords; ++i) words[i] = words[i + 1];
      words[kWords - 1] = hidden ? 0 : visible_word<Mask>(c, row, p);
    }
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
  const u32 lane_words[kQuad] = {row.x >> first / 4, row.y >> first / 4, row.z >> first / 4,
                                 row.w >> first / 4};
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = columns_of_quad(byte_of_each(lane_words, i)) & low_bits(keys - 32 * i);
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

// A column of 32: hidden where its bit of the word is not set.
#define ATTNJIT_HIDE(column, bit)  \
  "and.b32 of, %1, " bit           \
  ";\n\tsetp.ne.b32 p, of, 0;\n\t" \
  "selp.f32 s" #column ", s" #column ", 0fff800000, p;\n\t"
#define ATTNJIT_SCORES32                                                                        \
  "{s0,s1,s2,s3,s4,s5,s6,s7,s8,s9,s10,s11,s12,s13,s14,s15,s16,s17,s18,s19,s20,s21,s22,s23,s24," \
  "s25,s26,s27,s28,s29,s30,s31}"

/// The same of 32 columns of a warp's rows of S, where they lie in tensor memory.
ATTNJIT_DEVICE void hide_columns(u32 columns, u32 word) {
  // clang-format off
  asm volatile(
      "{\n.reg .f32 s<32>;\n.reg .b32 of;\n.reg .pred p;\n\t"
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 " ATTNJIT_SCORES32
      ", [%0];\n\t"
      "tcgen05.wait::ld.sync.aligned;\n\t"
      ATTNJIT_HIDE(0, "0x1") ATTNJIT_HIDE(1, "0x2")
      ATTNJIT_HIDE(2, "0x4") ATTNJIT_HIDE(3, "0x8")
      ATTNJIT_HIDE(4, "0x10") ATTNJIT_HIDE(5, "0x20")
      ATTNJIT_HIDE(6, "0x40") ATTNJIT_HIDE(7, "0x80")
      ATTNJIT_HIDE(8, "0x100") ATTNJIT_HIDE(9, "0x200")
      ATTNJIT_HIDE(10, "0x400") ATTNJIT_HIDE(11, "0x800")
      ATTNJIT_HIDE(12, "0x1000") ATTNJIT_HIDE(13, "0x2000")
      ATTNJIT_HIDE(14, "0x4000") ATTNJIT_HIDE(15, "0x8000")
      ATTNJIT_HIDE(16, "0x10000") ATTNJIT_HIDE(17, "0x20000")
      ATTNJIT_HIDE(18, "0x40000") ATTNJIT_HIDE(19, "0x80000")
      ATTNJIT_HIDE(20, "0x100000") ATTNJIT_HIDE(21, "0x200000")
      ATTNJIT_HIDE(22, "0x400000") ATTNJIT_HIDE(23, "0x800000")
      ATTNJIT_HIDE(24, "0x1000000") ATTNJIT_HIDE(25, "0x2000000")
      ATTNJIT_HIDE(26, "0x4000000") ATTNJIT_HIDE(27, "0x8000000")
      ATTNJIT_HIDE(28, "0x10000000") ATTNJIT_HIDE(29, "0x20000000")
      ATTNJIT_HIDE(30, "0x40000000") ATTNJIT_HIDE(31, "0x80000000")
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], " ATTNJIT_SCORES32 ";\n}"
      ::"r"(columns), "r"(word)
      : "memory");
  // clang-format on
}
#undef ATTNJIT_HIDE
#undef ATTNJIT_SCORES32

/// The same of 32 columns that no row sees.
ATTNJIT_DEVICE void hide_all_columns(u32 columns) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,"
      "%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1,%1};" ::"r"(columns),
      "f"(-infinity())
      : "memory");
}

/// Hides what a warp's rows of S do not see, before they are read for good. `words` has 32 columns
/// each; its elements are lost. NOTE: for compile time there is one copy of the code for all
/// columns, in one statement: where each score was hidden in its register that was a tenth of a
/// compile. Tiles that a mask cuts are few, and most of their columns are seen by all rows or by
/// none.
template <int kWords>
ATTNJIT_DEVICE void hide_in_place(u32 s, u32 (&words)[kWords]) {
  constexpr u32 kAll = 0xffffffffu;
#pragma unroll 1
  for (int batch = 0; batch < kWords; ++batch) {
    const u32 word = words[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) words[i - 1] = words[i];
    if (__all_sync(kAll, word == kAll)) continue;
    const u32 columns = s + static_cast<u32>(32 * batch);
    if (__any_sync(kAll, word != 0)) {
      hide_columns(columns, word);
    } else {
      hide_all_columns(columns);
    }
  }
  tcgen05_wait_st();
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

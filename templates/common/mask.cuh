// SPDX-License-Identifier: Apache-2.0
// Masks as composable types, for every architecture's template.
//
// A mask M over launch parameters Params has
//   RowTest, row_test(c, p)         what is the same for all keys of c's query, computed once
//   visible(test, c, p)             does this query see this key
//   reach(first, last, kv_len, p)   keys outside it are hidden from every query in [first, last]
//   core(first, last, kv_len, p)    keys inside it are seen by every query in [first, last]
//   tiles(t, p)                     what is visible of the tile t, as a range of bools; t is a
//                                   TileCoord, or of a kind that knows arrays
// so a tile outside reach is skipped and a tile inside core needs no test. Where kInterval is true,
// each query sees one run of keys, row(q_idx, kv_len, p), and a tile is tested by comparing columns
// with its two ends; where kFromZero is true as well, with its end alone. Where kHidesNothing is
// true, all keys are seen; where kHasCore is false, core is empty. Where kBlockSparse is true,
// tiles() knows more than reach and core: a kernel asks it about each tile. Where kLoads is true,
// the mask reads a tensor, so that many loads are to be on their way at once, and where kNumbers is
// true, too, one of numbers. Where kInterprets is true, the mask is interpreted
// (common/interpreter.cuh): it is asked about many scores at one place of the kernel. Queries are
// q_idx values and may be negative. Every range lies in [0, kv_len].
#pragma once

#include "common/mask_tensor.cuh"
#include "common/ranges.cuh"

namespace attnjit {

/// Keys begin <= kv_idx < end; empty where end <= begin.
struct KvRange {
  int begin, end;
  ATTNJIT_DEVICE bool empty() const { return end <= begin; }
  ATTNJIT_DEVICE bool holds(int kv_idx) const { return begin <= kv_idx && kv_idx < end; }
};

ATTNJIT_DEVICE KvRange intersect(KvRange a, KvRange b) {
  return {max(a.begin, b.begin), min(a.end, b.end)};
}

/// The smallest range that holds both.
ATTNJIT_DEVICE KvRange hull(KvRange a, KvRange b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {min(a.begin, b.begin), max(a.end, b.end)};
}

ATTNJIT_DEVICE KvRange longer(KvRange a, KvRange b) {
  return max(b.end - b.begin, 0) > max(a.end - a.begin, 0) ? b : a;
}

/// What is visible of a tile by a mask's reach and core.
template <class Mask, class Params>
ATTNJIT_DEVICE IntRange tiles_of_interval(const TileCoord& t, const Params& p) {
  const KvRange reach = Mask::reach(t.q_idx.lo, t.q_idx.hi, t.kv_len, p);
  const KvRange core = Mask::core(t.q_idx.lo, t.q_idx.hi, t.kv_len, p);
  return truth(core.begin <= t.kv_idx.lo && t.kv_idx.hi < core.end,
               max(reach.begin, t.kv_idx.lo) <= min(reach.end - 1, t.kv_idx.hi));
}

/// What a mask is that says nothing else. No template, whose constants NVRTC would write into PTX.
struct CompiledMask {
  static constexpr bool kLoads = false;
  static constexpr bool kNumbers = false;
  static constexpr bool kInterprets = false;
};

/// Shared by masks whose row() moves right with q_idx: the ends of a tile of rows bound the rest.
template <class Self, bool kBeginsAtZero>
struct MonotoneInterval : CompiledMask {
  static constexpr bool kInterval = true;
  static constexpr bool kFromZero = kBeginsAtZero;
  static constexpr bool kHidesNothing = false;
  static constexpr bool kHasCore = true;
  static constexpr bool kBlockSparse = false;

  template <class Params>
  ATTNJIT_DEVICE static KvRange reach(int first, int last, int kv_len, const Params& p) {
    return {Self::row(first, kv_len, p).begin, Self::row(last, kv_len, p).end};
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange core(int first, int last, int kv_len, const Params& p) {
    return {Self::row(last, kv_len, p).begin, Self::row(first, kv_len, p).end};
  }
  template <class Tile, class Params>
  ATTNJIT_DEVICE static IntRange tiles(const Tile& t, const Params& p) {
    return tiles_of_interval<Self>(t, p);
  }
  using RowTest = KvRange;
  template <class Params>
  ATTNJIT_DEVICE static RowTest row_test(const Coord& c, const Params& p) {
    return Self::row(c.q_idx, c.kv_len, p);
  }
  template <class Params>
  ATTNJIT_DEVICE static bool visible(const RowTest& test, const Coord& c, const Params&) {
    return test.holds(c.kv_idx);
  }
};

/// Every query sees every key, also a query before the first key.
struct NullMask : MonotoneInterval<NullMask, true> {
  static constexpr bool kHidesNothing = true;

  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int, int kv_len, const Params&) {
    return {0, kv_len};
  }
};

/// kv_idx <= q_idx.
struct CausalMask : MonotoneInterval<CausalMask, true> {
  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int q_idx, int kv_len, const Params&) {
    return {0, min(max(q_idx + 1, 0), kv_len)};
  }
};

/// q_idx - window < kv_idx <= q_idx. kWindow: a constant, or a pointer to a member of Params.
template <auto kWindow>
struct SlidingWindowMask : MonotoneInterval<SlidingWindowMask<kWindow>, false> {
  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int q_idx, int kv_len, const Params& p) {
    const int window = scalar_value<kWindow>(p);
    // NOTE: compared before it is subtracted: q_idx - window may overflow.
    const int begin = window > q_idx ? 0 : q_idx - window + 1;
    return {min(begin, kv_len), min(max(q_idx + 1, 0), kv_len)};
  }
};

/// q_idx - window < kv_idx <= q_idx + right. The most that an int holds is no bound.
template <auto kWindow, auto kRight>
struct TwoSidedWindowMask : MonotoneInterval<TwoSidedWindowMask<kWindow, kRight>, false> {
  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int q_idx, int kv_len, const Params& p) {
    const int window = scalar_value<kWindow>(p), right = scalar_value<kRight>(p);
    // NOTE: compared before they are added: the sums may overflow.
    const int begin = window > q_idx ? 0 : q_idx - window + 1;
    const int end = right >= kv_len - 1 - q_idx ? kv_len : max(q_idx + right + 1, 0);
    return {min(begin, kv_len), end};
  }
};

/// floor(q_idx / chunk) == floor(kv_idx / chunk). kChunk: a constant, or a pointer to a member of
/// P.
template <auto kChunk>
struct ChunkedMask : MonotoneInterval<ChunkedMask<kChunk>, false> {
  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int q_idx, int kv_len, const Params& p) {
    // NOTE: floor(q_idx / chunk) of a negative q_idx is negative, and no key's is: it sees nothing.
    if (q_idx < 0) return {0, 0};
    const int chunk = scalar_value<kChunk>(p);
    const int begin = q_idx / chunk * chunk;
    const int end = kv_len - begin <= chunk ? kv_len : begin + chunk;
    return {min(begin, kv_len), end};
  }
};

/// Which of kCount keys from c.kv_idx on a mask shows, a bit each; of those from kv_len on
/// anything. A mask that knows many at once has run<kCount>(test, c, p).
template <int kCount, class Mask, class Test, class Params>
ATTNJIT_DEVICE u32 visible_run(const Test& test, Coord c, const Params& p) {
  if constexpr (requires { Mask::template run<kCount>(test, c, p); }) {
    return Mask::template run<kCount>(test, c, p);
  } else {
    const int first = c.kv_idx;
    u32 word = 0;
#pragma unroll 4
    for (int i = 0; i < kCount; ++i) {
      c.kv_idx = first + i;
      word |= static_cast<u32>(Mask::visible(test, c, p)) << i;
    }
    return word;
  }
}

/// Shared by masks of whose rows nothing is known: they see keys anywhere.
struct UnknownRows : CompiledMask {
  static constexpr bool kInterval = false;
  static constexpr bool kFromZero = false;
  static constexpr bool kHidesNothing = false;
  static constexpr bool kHasCore = false;

  template <class Params>
  ATTNJIT_DEVICE static KvRange reach(int, int, int kv_len, const Params&) {
    return {0, kv_len};
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange core(int, int, int, const Params&) {
    return {0, 0};
  }
};

/// What a tensor says: its bools, or where its numbers are not -inf.
template <class Tensor>
struct MaterializedMask : UnknownRows {
  static constexpr bool kBlockSparse = false;
  static constexpr bool kLoads = true;
  static constexpr bool kNumbers = sizeof(typename Tensor::Element) > 1;

  template <class Params>
  ATTNJIT_DEVICE static IntRange tiles(const TileCoord&, const Params&) {
    return any_bool();
  }
  struct RowTest {
    const unsigned char* row;
  };
  template <class Params>
  ATTNJIT_DEVICE static RowTest row_test(const Coord& c, const Params& p) {
    return {Tensor::row(c, p)};
  }
  /// Of a key that the sequence has not: what is said of the last one.
  template <class Params>
  ATTNJIT_DEVICE static bool visible(const RowTest& test, const Coord& c, const Params&) {
    if (test.row == nullptr) return false;
    return bool_of<typename Tensor::Element>(test.row, min(c.kv_idx, c.kv_len - 1));
  }
  template <int kCount, class Params>
  ATTNJIT_DEVICE static u32 run(const RowTest& test, const Coord& c, const Params&) {
    return bools_of<kCount, typename Tensor::Element>(test.row, c.kv_idx, c.kv_len);
  }
};

/// Of a tensor whose numbers are added to scores: what they hide is hidden by the score, so that
/// the mask itself hides nothing.
template <class Tensor>
struct AddedMask : NullMask {};

/// A mask as the kernel that makes its map asks it, which makes no scores.
template <class Mask>
struct BlockMaskOf {
  using Type = Mask;
};
template <class Tensor>
struct BlockMaskOf<AddedMask<Tensor>> {
  using Type = MaterializedMask<Tensor>;
};

/// Shared by those of them that compute nothing of a row.
struct UntestedRows : UnknownRows {
  struct RowTest {};
  template <class Params>
  ATTNJIT_DEVICE static RowTest row_test(const Coord&, const Params&) {
    return {};
  }
};

/// A user's mask: User::visible(c, p), and User::tiles(t, p) where its expression can decide tiles.
template <class User>
struct CustomMask : UntestedRows {
  static constexpr bool kBlockSparse = User::kDecidesTiles;

  template <class Tile, class Params>
  ATTNJIT_DEVICE static IntRange tiles(const Tile& t, const Params& p) {
    // NOTE: an expression that decides nothing of tiles may decide where arrays are known.
    if constexpr (kBlockSparse || (Tile::kKnowsArrays && requires { User::tiles(t, p); })) {
      return User::tiles(t, p);
    } else {
      return any_bool();
    }
  }
  template <class Params>
  ATTNJIT_DEVICE static bool visible(const RowTest&, const Coord& c, const Params& p) {
    return User::visible(c, p);
  }
};

/// Two masks, each asked about a row once. One that is interpreted stands alone.
template <class A, class B>
struct MaskPair : CompiledMask {
  static_assert(!A::kInterprets && !B::kInterprets);
  static constexpr bool kBlockSparse = A::kBlockSparse || B::kBlockSparse;
  static constexpr bool kLoads = A::kLoads || B::kLoads;
  static constexpr bool kNumbers = A::kNumbers || B::kNumbers;

  struct RowTest {
    typename A::RowTest a;
    typename B::RowTest b;
  };
  template <class Params>
  ATTNJIT_DEVICE static RowTest row_test(const Coord& c, const Params& p) {
    return {A::row_test(c, p), B::row_test(c, p)};
  }
};

/// What both masks show.
template <class A, class B>
struct AndMask : MaskPair<A, B> {
  static constexpr bool kInterval = A::kInterval && B::kInterval;
  static constexpr bool kFromZero = A::kFromZero && B::kFromZero;
  static constexpr bool kHidesNothing = A::kHidesNothing && B::kHidesNothing;
  static constexpr bool kHasCore = A::kHasCore && B::kHasCore;

  template <class Params>
  ATTNJIT_DEVICE static KvRange row(int q_idx, int kv_len, const Params& p) {
    return intersect(A::row(q_idx, kv_len, p), B::row(q_idx, kv_len, p));
  }
  template <class Tile, class Params>
  ATTNJIT_DEVICE static IntRange tiles(const Tile& t, const Params& p) {
    return range_and(A::tiles(t, p), B::tiles(t, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange reach(int first, int last, int kv_len, const Params& p) {
    return intersect(A::reach(first, last, kv_len, p), B::reach(first, last, kv_len, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange core(int first, int last, int kv_len, const Params& p) {
    return intersect(A::core(first, last, kv_len, p), B::core(first, last, kv_len, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static bool visible(const typename MaskPair<A, B>::RowTest& test, const Coord& c,
                                     const Params& p) {
    // NOTE: & and |, not && and ||: a branch per element costs more than the second test.
    return A::visible(test.a, c, p) & B::visible(test.b, c, p);
  }
  template <int kCount, class Params>
  requires(MaskPair<A, B>::kLoads) ATTNJIT_DEVICE static u32
      run(const typename MaskPair<A, B>::RowTest& test, const Coord& c, const Params& p) {
    return visible_run<kCount, A>(test.a, c, p) & visible_run<kCount, B>(test.b, c, p);
  }
};

/// What either mask shows. Two runs of keys need not be one, so rows have no interval.
template <class A, class B>
struct OrMask : MaskPair<A, B> {
  static constexpr bool kInterval = false;
  static constexpr bool kFromZero = false;
  static constexpr bool kHidesNothing = false;
  static constexpr bool kHasCore = A::kHasCore || B::kHasCore;

  template <class Tile, class Params>
  ATTNJIT_DEVICE static IntRange tiles(const Tile& t, const Params& p) {
    return range_or(A::tiles(t, p), B::tiles(t, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange reach(int first, int last, int kv_len, const Params& p) {
    return hull(A::reach(first, last, kv_len, p), B::reach(first, last, kv_len, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static KvRange core(int first, int last, int kv_len, const Params& p) {
    return longer(A::core(first, last, kv_len, p), B::core(first, last, kv_len, p));
  }
  template <class Params>
  ATTNJIT_DEVICE static bool visible(const typename MaskPair<A, B>::RowTest& test, const Coord& c,
                                     const Params& p) {
    return A::visible(test.a, c, p) | B::visible(test.b, c, p);
  }
  template <int kCount, class Params>
  requires(MaskPair<A, B>::kLoads) ATTNJIT_DEVICE static u32
      run(const typename MaskPair<A, B>::RowTest& test, const Coord& c, const Params& p) {
    return visible_run<kCount, A>(test.a, c, p) | visible_run<kCount, B>(test.b, c, p);
  }
};

/// Beside one that hides nothing nobody asks the other.
template <class A, class B>
requires(A::kHidesNothing || B::kHidesNothing) struct OrMask<A, B> : NullMask {
};

template <class A, class B>
struct BlockMaskOf<AndMask<A, B>> {
  using Type = AndMask<typename BlockMaskOf<A>::Type, typename BlockMaskOf<B>::Type>;
};
template <class A, class B>
struct BlockMaskOf<OrMask<A, B>> {
  using Type = OrMask<typename BlockMaskOf<A>::Type, typename BlockMaskOf<B>::Type>;
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What an expression can be over a tile of scores: each operation's second meaning, over ranges.
//
// A range holds every value that an operation has where its operands are in theirs, as
// common/expression.cuh computes it: wrapped, truncated and rounded alike. It may hold more. A tile
// is a rectangle of queries and keys, so where each coordinate is named once the range of an
// integer expression that does not wrap holds little more.
//
// NOTE: the library compiles this file for the host, too (src/spec/ranges.h), to evaluate the same
// meanings there: it is plain C++, but for what that file defines beside it.
#pragma once

#ifndef ATTNJIT_RANGES_ON_HOST
#include "common/expression.cuh"
#endif

namespace attnjit {

constexpr int kIntMax = 2147483647;
constexpr int kIntMin = -kIntMax - 1;

/// Integers lo <= i <= hi. Of a bool, 0 is false and 1 is true: {0, 0} never, {1, 1} always.
struct IntRange {
  int lo, hi;
  ATTNJIT_DEVICE bool one() const { return lo == hi; }
  ATTNJIT_DEVICE bool holds(int i) const { return lo <= i && i <= hi; }
};

/// Of u32.
struct UintRange {
  unsigned lo, hi;
  ATTNJIT_DEVICE bool one() const { return lo == hi; }
};

/// Floats lo <= x <= hi, of which the ends may be infinite; where `nan` is true also NaN.
struct FloatRange {
  float lo, hi;
  bool nan;
  ATTNJIT_DEVICE bool one() const { return lo == hi && !nan; }
  /// Whether it is a number that no operation has overflowed to. NaN is made of others alone.
  ATTNJIT_DEVICE bool finite() const { return !nan && lo > -infinity() && hi < infinity(); }
};

ATTNJIT_DEVICE IntRange any_int() { return {kIntMin, kIntMax}; }
ATTNJIT_DEVICE UintRange any_uint() { return {0u, 0xffffffffu}; }
ATTNJIT_DEVICE IntRange any_bool() { return {0, 1}; }
ATTNJIT_DEVICE FloatRange any_float() { return {-infinity(), infinity(), true}; }

ATTNJIT_DEVICE IntRange range_of(bool b) { return {b, b}; }
ATTNJIT_DEVICE IntRange range_of(int i) { return {i, i}; }
ATTNJIT_DEVICE UintRange range_of(unsigned i) { return {i, i}; }
ATTNJIT_DEVICE FloatRange range_of(float x) {
  const FloatRange exact{x, x, false};
  return x == x ? exact : any_float();
}

/// Both, and what is between them.
ATTNJIT_DEVICE IntRange hull(IntRange a, IntRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE UintRange hull(UintRange a, UintRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE FloatRange hull(FloatRange a, FloatRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi, a.nan || b.nan};
}

// ---- Bools ------------------------------------------------------------------------------------

/// Of what is so always (lo), and of what may be so (hi).
ATTNJIT_DEVICE IntRange truth(bool always, bool ever) { return {always, ever}; }

ATTNJIT_DEVICE IntRange range_not(IntRange a) { return {1 - a.hi, 1 - a.lo}; }
ATTNJIT_DEVICE IntRange range_and(IntRange a, IntRange b) { return {a.lo & b.lo, a.hi & b.hi}; }
ATTNJIT_DEVICE IntRange range_or(IntRange a, IntRange b) { return {a.lo | b.lo, a.hi | b.hi}; }

/// Of int, u32 and float alike. A comparison with NaN is false.
template <class Range>
ATTNJIT_DEVICE IntRange range_less(Range a, Range b) {
  if constexpr (requires { a.nan; }) {
    return truth(a.hi < b.lo && !a.nan && !b.nan, a.lo < b.hi);
  } else {
    return truth(a.hi < b.lo, a.lo < b.hi);
  }
}
template <class Range>
ATTNJIT_DEVICE IntRange range_less_equal(Range a, Range b) {
  if constexpr (requires { a.nan; }) {
    return truth(a.hi <= b.lo && !a.nan && !b.nan, a.lo <= b.hi);
  } else {
    return truth(a.hi <= b.lo, a.lo <= b.hi);
  }
}
template <class Range>
ATTNJIT_DEVICE IntRange range_greater(Range a, Range b) {
  return range_less(b, a);
}
template <class Range>
ATTNJIT_DEVICE IntRange range_greater_equal(Range a, Range b) {
  return range_less_equal(b, a);
}
template <class Range>
ATTNJIT_DEVICE IntRange range_equal(Range a, Range b) {
  return truth(a.one() && b.one() && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi);
}
template <class Range>
ATTNJIT_DEVICE IntRange range_not_equal(Range a, Range b) {
  return range_not(range_equal(a, b));
}

template <class Range>
ATTNJIT_DEVICE Range range_select(IntRange condition, Range a, Range b) {
  if (condition.lo == 1) return a;
  return condition.hi == 0 ? b : hull(a, b);
}

// ---- Integers: they wrap ----------------------------------------------------------------------

/// Numbers lo <= i <= hi, |i| < 2^63 - 2^31, as an int wraps them.
ATTNJIT_DEVICE IntRange wrapped_range(long long lo, long long hi) {
  constexpr long long kHalf = 2147483648LL;
  if ((lo + kHalf) >> 32 != (hi + kHalf) >> 32) return any_int();
  return {static_cast<int>(static_cast<unsigned>(lo)), static_cast<int>(static_cast<unsigned>(hi))};
}

ATTNJIT_DEVICE IntRange range_add(IntRange a, IntRange b) {
  return wrapped_range(static_cast<long long>(a.lo) + b.lo, static_cast<long long>(a.hi) + b.hi);
}
ATTNJIT_DEVICE IntRange range_subtract(IntRange a, IntRange b) {
  return wrapped_range(static_cast<long long>(a.lo) - b.hi, static_cast<long long>(a.hi) - b.lo);
}
ATTNJIT_DEVICE IntRange range_negate(IntRange a) { return range_subtract({0, 0}, a); }

/// Of a product with one number.
ATTNJIT_DEVICE IntRange range_times(IntRange a, long long factor) {
  const long long x = a.lo * factor;
  const long long y = a.hi * factor;
  return x < y ? wrapped_range(x, y) : wrapped_range(y, x);
}
ATTNJIT_DEVICE IntRange range_multiply(IntRange a, IntRange b) {
  if (b.one()) return range_times(a, b.lo);
  if (a.one()) return range_times(b, a.lo);
  // NOTE: the products of the four corners, which hull() of wrapped ones would not hold.
  const long long w = static_cast<long long>(a.lo) * b.lo, x = static_cast<long long>(a.lo) * b.hi;
  const long long y = static_cast<long long>(a.hi) * b.lo, z = static_cast<long long>(a.hi) * b.hi;
  const long long low_0 = w < x ? w : x, low_1 = y < z ? y : z;
  const long long high_0 = w < x ? x : w, high_1 = y < z ? z : y;
  return wrapped_range(low_0 < low_1 ? low_0 : low_1, high_0 < high_1 ? high_1 : high_0);
}

/// From 0 to a, both ways: what x / y and x % y are among, whatever y is.
ATTNJIT_DEVICE IntRange range_towards_zero(IntRange a) { return hull(a, {0, 0}); }

ATTNJIT_DEVICE IntRange range_divide(IntRange a, IntRange b) {
  if (!b.one()) {
    // |x / y| <= |x|.
    return hull(range_towards_zero(a), range_negate(range_towards_zero(a)));
  }
  // NOTE: of divisors that are not positive, which masks seldom have, nothing is said, for compile
  // time: every place where tiles are asked about has this.
  const int y = b.lo > 0 ? b.lo : 1;  // without a branch around the division
  const int lo = a.lo / y, hi = a.hi / y;
  return {b.lo > 0 ? lo : kIntMin, b.lo > 0 ? hi : kIntMax};
}

/// A remainder has x's sign, and is less than |y|.
ATTNJIT_DEVICE IntRange range_modulo(IntRange a, IntRange b) {
  const IntRange all = range_towards_zero(a);
  if (!b.one() || b.lo <= 0) return all;
  const int y = b.lo;
  if (a.lo / y == a.hi / y) return {a.lo % y, a.hi % y};
  return {all.lo < 1 - y ? 1 - y : all.lo, all.hi > y - 1 ? y - 1 : all.hi};
}

ATTNJIT_DEVICE IntRange range_shift_left(IntRange a, IntRange b) {
  if (!b.one()) return any_int();
  return range_times(a, 1LL << (b.lo & 31));
}
ATTNJIT_DEVICE IntRange range_shift_right(IntRange a, IntRange b) {
  if (b.one()) return {a.lo >> (b.lo & 31), a.hi >> (b.lo & 31)};
  // Towards 0, or towards -1.
  return {a.lo < 0 ? a.lo : 0, a.hi < 0 ? -1 : a.hi};
}

/// The bits that all the integers of a range, signed or not, have alike.
struct KnownBits {
  unsigned ones, zeros;
};
template <class Range>
ATTNJIT_DEVICE KnownBits known_bits(Range a) {
  unsigned differ = static_cast<unsigned>(a.lo) ^ static_cast<unsigned>(a.hi);
  // From the highest bit in which the ends differ on, nothing is known.
  for (int distance = 1; distance < 32; distance *= 2) differ |= differ >> distance;
  const unsigned low = static_cast<unsigned>(a.lo);
  return {low & ~differ, ~low & ~differ};
}
ATTNJIT_DEVICE IntRange range_of_bits(KnownBits bits) {
  constexpr unsigned kSign = 0x80000000u;
  const unsigned unknown = ~(bits.ones | bits.zeros);
  return {static_cast<int>(bits.ones | (unknown & kSign)),
          static_cast<int>(bits.ones | (unknown & ~kSign))};
}
ATTNJIT_DEVICE IntRange range_bit_and(IntRange a, IntRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return range_of_bits({x.ones & y.ones, x.zeros | y.zeros});
}
ATTNJIT_DEVICE IntRange range_bit_or(IntRange a, IntRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return range_of_bits({x.ones | y.ones, x.zeros & y.zeros});
}
ATTNJIT_DEVICE IntRange range_bit_xor(IntRange a, IntRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return range_of_bits(
      {(x.ones & y.zeros) | (x.zeros & y.ones), (x.ones & y.ones) | (x.zeros & y.zeros)});
}
ATTNJIT_DEVICE IntRange range_bit_not(IntRange a) { return {~a.hi, ~a.lo}; }

ATTNJIT_DEVICE IntRange range_min(IntRange a, IntRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE IntRange range_max(IntRange a, IntRange b) {
  return {a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE IntRange range_abs(IntRange a) {
  if (a.lo >= 0) return a;
  // NOTE: |INT_MIN| wraps to itself; range_negate gives every integer where it is among others.
  const IntRange turned = range_negate(a);
  if (a.hi <= 0 || turned.lo == kIntMin) return turned;
  return {0, a.hi > turned.hi ? a.hi : turned.hi};
}

// ---- Integers without a sign: they wrap, too ----------------------------------------------------

/// Numbers lo <= i <= hi as a u32 wraps them. Word is a signed or an unsigned integer of 64 bits.
template <class Word>
ATTNJIT_DEVICE UintRange wrapped_uint_range(Word lo, Word hi) {
  if (lo >> 32 != hi >> 32) return any_uint();
  return {static_cast<unsigned>(lo), static_cast<unsigned>(hi)};
}

ATTNJIT_DEVICE UintRange range_add(UintRange a, UintRange b) {
  return wrapped_uint_range(static_cast<long long>(a.lo) + b.lo,
                            static_cast<long long>(a.hi) + b.hi);
}
ATTNJIT_DEVICE UintRange range_subtract(UintRange a, UintRange b) {
  return wrapped_uint_range(static_cast<long long>(a.lo) - b.hi,
                            static_cast<long long>(a.hi) - b.lo);
}
ATTNJIT_DEVICE UintRange range_negate(UintRange a) { return range_subtract({0u, 0u}, a); }
ATTNJIT_DEVICE UintRange range_multiply(UintRange a, UintRange b) {
  return wrapped_uint_range(static_cast<unsigned long long>(a.lo) * b.lo,
                            static_cast<unsigned long long>(a.hi) * b.hi);
}
/// By 0 it gives 0.
ATTNJIT_DEVICE UintRange range_divide(UintRange a, UintRange b) {
  if (b.hi == 0u) return {0u, 0u};
  return {b.lo == 0u ? 0u : a.lo / b.hi, a.hi / (b.lo == 0u ? 1u : b.lo)};
}
ATTNJIT_DEVICE UintRange range_modulo(UintRange a, UintRange b) {
  if (b.hi == 0u) return {0u, 0u};
  if (b.one() && a.lo / b.lo == a.hi / b.lo) return {a.lo % b.lo, a.hi % b.lo};
  return {0u, a.hi < b.hi - 1u ? a.hi : b.hi - 1u};
}
ATTNJIT_DEVICE UintRange range_shift_left(UintRange a, UintRange b) {
  if (!b.one()) return any_uint();
  const int count = static_cast<int>(b.lo & 31u);
  return wrapped_uint_range(static_cast<unsigned long long>(a.lo) << count,
                            static_cast<unsigned long long>(a.hi) << count);
}
ATTNJIT_DEVICE UintRange range_shift_right(UintRange a, UintRange b) {
  if (b.one()) return {a.lo >> (b.lo & 31u), a.hi >> (b.lo & 31u)};
  return {0u, a.hi};
}
ATTNJIT_DEVICE UintRange uint_range_of_bits(KnownBits bits) { return {bits.ones, ~bits.zeros}; }
ATTNJIT_DEVICE UintRange range_bit_and(UintRange a, UintRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return uint_range_of_bits({x.ones & y.ones, x.zeros | y.zeros});
}
ATTNJIT_DEVICE UintRange range_bit_or(UintRange a, UintRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return uint_range_of_bits({x.ones | y.ones, x.zeros & y.zeros});
}
ATTNJIT_DEVICE UintRange range_bit_xor(UintRange a, UintRange b) {
  const KnownBits x = known_bits(a), y = known_bits(b);
  return uint_range_of_bits(
      {(x.ones & y.zeros) | (x.zeros & y.ones), (x.ones & y.ones) | (x.zeros & y.zeros)});
}
ATTNJIT_DEVICE UintRange range_bit_not(UintRange a) { return {~a.hi, ~a.lo}; }
ATTNJIT_DEVICE UintRange range_min(UintRange a, UintRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE UintRange range_max(UintRange a, UintRange b) {
  return {a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}
ATTNJIT_DEVICE UintRange range_abs(UintRange a) { return a; }

// ---- Floats: they round to the nearest, which keeps their order ---------------------------------
//
// What overflowed, and what may be NaN, is every float after the next operation.

ATTNJIT_DEVICE FloatRange range_add(FloatRange a, FloatRange b) {
  if (!a.finite() || !b.finite()) return any_float();
  return {a.lo + b.lo, a.hi + b.hi, false};
}
ATTNJIT_DEVICE FloatRange range_negate(FloatRange a) { return {-a.hi, -a.lo, a.nan}; }
ATTNJIT_DEVICE FloatRange range_subtract(FloatRange a, FloatRange b) {
  return range_add(a, range_negate(b));
}
ATTNJIT_DEVICE FloatRange range_multiply(FloatRange a, FloatRange b) {
  if (!a.finite() || !b.finite()) return any_float();
  const float w = expr_mul(a.lo, b.lo), x = expr_mul(a.lo, b.hi);
  const float y = expr_mul(a.hi, b.lo), z = expr_mul(a.hi, b.hi);
  return {fminf(fminf(w, x), fminf(y, z)), fmaxf(fmaxf(w, x), fmaxf(y, z)), false};
}
ATTNJIT_DEVICE FloatRange range_divide(FloatRange a, FloatRange b) {
  if (!a.finite() || !b.finite() || !b.one() || b.lo == 0.0f) return any_float();
  const float x = a.lo / b.lo, y = a.hi / b.lo;
  return {fminf(x, y), fmaxf(x, y), false};
}
ATTNJIT_DEVICE FloatRange range_min(FloatRange a, FloatRange b) {
  if (a.nan || b.nan) return any_float();
  return {fminf(a.lo, b.lo), fminf(a.hi, b.hi), false};
}
ATTNJIT_DEVICE FloatRange range_max(FloatRange a, FloatRange b) {
  if (a.nan || b.nan) return any_float();
  return {fmaxf(a.lo, b.lo), fmaxf(a.hi, b.hi), false};
}
ATTNJIT_DEVICE FloatRange range_abs(FloatRange a) {
  if (a.lo >= 0.0f) return a;
  return {a.hi <= 0.0f ? -a.hi : 0.0f, fmaxf(-a.lo, a.hi), a.nan};
}
ATTNJIT_DEVICE FloatRange range_floor(FloatRange a) { return {floorf(a.lo), floorf(a.hi), a.nan}; }
ATTNJIT_DEVICE FloatRange range_ceil(FloatRange a) { return {ceilf(a.lo), ceilf(a.hi), a.nan}; }
ATTNJIT_DEVICE FloatRange range_trunc(FloatRange a) { return {truncf(a.lo), truncf(a.hi), a.nan}; }
ATTNJIT_DEVICE FloatRange range_round(FloatRange a) { return {roundf(a.lo), roundf(a.hi), a.nan}; }
ATTNJIT_DEVICE FloatRange range_sqrt(FloatRange a) {
  if (a.nan || a.lo < 0.0f) return any_float();
  return {sqrtf(a.lo), sqrtf(a.hi), false};
}

// ---- Conversions ------------------------------------------------------------------------------

ATTNJIT_DEVICE IntRange range_to_bool(IntRange a) {
  return truth(!a.holds(0), a.lo != 0 || a.hi != 0);
}
/// NaN is true.
ATTNJIT_DEVICE IntRange range_to_bool(FloatRange a) {
  return truth(a.lo > 0.0f || a.hi < 0.0f, a.lo != 0.0f || a.hi != 0.0f || a.nan);
}
ATTNJIT_DEVICE IntRange range_to_bool(UintRange a) { return truth(a.lo != 0u, a.hi != 0u); }
ATTNJIT_DEVICE IntRange range_to_i32(IntRange a) { return a; }
/// The bits stay: what is one run in one order is two in the other where it crosses the sign.
ATTNJIT_DEVICE IntRange range_to_i32(UintRange a) {
  const IntRange made{static_cast<int>(a.lo), static_cast<int>(a.hi)};
  return made.lo <= made.hi ? made : any_int();
}
ATTNJIT_DEVICE UintRange range_to_u32(IntRange a) {
  const UintRange made{static_cast<unsigned>(a.lo), static_cast<unsigned>(a.hi)};
  return made.lo <= made.hi ? made : any_uint();
}
ATTNJIT_DEVICE UintRange range_to_u32(UintRange a) { return a; }
ATTNJIT_DEVICE UintRange range_to_u32(FloatRange a) {
  return {a.nan ? 0u : to_u32(a.lo), to_u32(a.hi)};
}
ATTNJIT_DEVICE IntRange range_to_i32(FloatRange a) {
  const IntRange made{to_i32(a.lo), to_i32(a.hi)};
  return a.nan ? hull(made, {0, 0}) : made;
}
ATTNJIT_DEVICE FloatRange range_to_f32(IntRange a) { return {to_f32(a.lo), to_f32(a.hi), false}; }
ATTNJIT_DEVICE FloatRange range_to_f32(UintRange a) { return {to_f32(a.lo), to_f32(a.hi), false}; }
ATTNJIT_DEVICE FloatRange range_to_f32(FloatRange a) { return a; }

// ---- Tiles ------------------------------------------------------------------------------------

/// Of q_idx's range, the rows within the call.
ATTNJIT_DEVICE IntRange q_row_range(IntRange q_idx, int q_len, int kv_len) {
  return range_add(range_subtract(q_idx, range_of(kv_len)), range_of(q_len));
}

/// A tile of scores: a rectangle of queries and keys, of some heads that share a key-value head.
struct TileCoord {
  static constexpr bool kKnowsArrays = false;
  static constexpr bool kMakesBlockMask = false;
  int b, kv_h;
  IntRange h, q_idx, kv_idx;
  int q_len, kv_len;

  ATTNJIT_DEVICE IntRange q_row() const { return q_row_range(q_idx, q_len, kv_len); }
};

/// The rows of a tile in the whole of a batch, `before` rows of which are of the sequences before.
ATTNJIT_DEVICE IntRange row_of_batch(const TileCoord& t, int before) {
  return range_add(t.q_row(), range_of(before));
}

// ---- Parameters -------------------------------------------------------------------------------

ATTNJIT_DEVICE IntRange any_like(int) { return any_int(); }
ATTNJIT_DEVICE UintRange any_like(unsigned) { return any_uint(); }
ATTNJIT_DEVICE FloatRange any_like(float) { return any_float(); }

/// An element that is the same all over the tile is read; of others nothing is known. Other kinds
/// of tiles may know more (maps/warp_tile.cuh).
template <class Array>
ATTNJIT_DEVICE auto range_element(const TileCoord&, const Array& array, IntRange i) {
  return i.one() ? range_of(array_at(array, i.lo)) : any_like(decltype(array_at(array, 0)){});
}
template <class Matrix>
ATTNJIT_DEVICE auto range_element(const TileCoord&, const Matrix& matrix, IntRange i, IntRange j) {
  return i.one() && j.one() ? range_of(matrix_at(matrix, i.lo, j.lo))
                            : any_like(decltype(matrix_at(matrix, 0, 0)){});
}
template <class Cube>
ATTNJIT_DEVICE auto range_element(const TileCoord&, const Cube& cube, IntRange i, IntRange j,
                                  IntRange k) {
  return i.one() && j.one() && k.one() ? range_of(cube_at(cube, i.lo, j.lo, k.lo))
                                       : any_like(decltype(cube_at(cube, 0, 0, 0)){});
}

}  // namespace attnjit

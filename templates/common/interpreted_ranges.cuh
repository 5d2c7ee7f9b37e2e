// SPDX-License-Identifier: Apache-2.0
// What stack code can be over a tile of scores: each instruction's second meaning, over ranges
// (common/ranges.cuh).
//
// NOTE: the tests compile this file for the host, too.
#pragma once

#ifndef ATTNJIT_INTERPRETER_ON_HOST
#include "common/ranges.cuh"
#include "common/stack_arrays.cuh"
#endif

namespace attnjit {

/// A range as the stack holds it: the bits of its ends. An instruction says what they are. Bits
/// that are one run as int and two as u32, or the other way round, are any to who reads them so.
struct StackRange {
  u32 lo, hi;
  bool nan;

  ATTNJIT_DEVICE static StackRange of(IntRange a) { return {as_bits(a.lo), as_bits(a.hi), false}; }
  ATTNJIT_DEVICE static StackRange of(UintRange a) { return {a.lo, a.hi, false}; }
  ATTNJIT_DEVICE static StackRange of(FloatRange a) {
    return {as_bits(a.lo), as_bits(a.hi), a.nan};
  }
  /// Of a bool, too.
  ATTNJIT_DEVICE IntRange ints() const { return range_to_i32(UintRange{lo, hi}); }
  ATTNJIT_DEVICE UintRange uints() const { return range_to_u32(IntRange{as_int(lo), as_int(hi)}); }
  ATTNJIT_DEVICE FloatRange floats() const {
    // NOTE: a literal may be NaN.
    const FloatRange made{as_float(lo), as_float(hi), nan};
    return made.lo <= made.hi ? made : any_float();
  }
};

/// The coordinates of a tile, by their numbers. NOTE: in an array, as those of a row.
struct TileCoords {
  IntRange values[kStackCoords];

  ATTNJIT_DEVICE explicit TileCoords(const TileCoord& t)
      : values{range_of(t.b), t.h,           range_of(t.kv_h),  t.q_idx,
               t.q_row(),     range_of(t.b), range_of(t.q_len), range_of(t.kv_len)} {}
};

/// The bits of a float as an int, so that their orders are the same: NaNs are beyond the
/// infinities. Of such an int, the bits of the float.
ATTNJIT_DEVICE int in_order(int bits) { return bits < 0 ? bits ^ kIntMax : bits; }

/// An array of stack code, of one to three dimensions, as one of three.
struct StackArray {
  const void* data;
  int planes, rows, columns;
  bool real, bf16;
};
ATTNJIT_DEVICE int cube_at(const StackArray& array, int i, int j, int k) {
  const bool inside = as_bits(i) < as_bits(array.planes) && as_bits(j) < as_bits(array.rows) &&
                      as_bits(k) < as_bits(array.columns);
  const u32 bits = element_of(
      array.data, inside, (static_cast<i64>(i) * array.rows + j) * array.columns + k, array.bf16);
  return array.real ? in_order(as_int(bits)) : as_int(bits);
}

/// What an element is among. `a`, `b` and `below` are the accumulator, the operand and what is
/// popped (common/stack_code.cuh).
template <class Tile>
ATTNJIT_DEVICE StackRange stack_element(u32 word, const Tile& tile, const void* data,
                                        const int* extents, StackRange a, StackRange b,
                                        StackRange below) {
  const u32 op = word & 0xff;
  const IntRange first{0, 0};
  StackArray array{data, 1, 1, extents[0], (word & kStackFloat) != 0, (word & kStackBf16) != 0};
  if (op != kStackElement1) {
    array.rows = extents[op == kStackElement2 ? 0 : 1];
    array.columns = extents[op == kStackElement2 ? 1 : 2];
  }
  if (op == kStackElement3) array.planes = extents[0];
  const IntRange found = range_element(tile, array, op == kStackElement3 ? below.ints() : first,
                                       op == kStackElement1 ? first : b.ints(), a.ints());
  if (!array.real) return StackRange::of(found);
  return StackRange::of(IntRange{in_order(found.lo), in_order(found.hi)});
}

/// Of an operation on integers whose results are the same bits for int and u32, and for bools.
ATTNJIT_DEVICE IntRange stack_bits(u32 op, IntRange a, IntRange b) {
  switch (op) {
    case kStackAdd:
      return range_add(a, b);
    case kStackSubtract:
      return range_subtract(a, b);
    case kStackMultiply:
      return range_multiply(a, b);
    case kStackAnd:
      return range_bit_and(a, b);
    case kStackOr:
      return range_bit_or(a, b);
    case kStackXor:
      return range_bit_xor(a, b);
    case kStackShiftLeft:
      return range_shift_left(a, b);
    case kStackEqualInt:
      return range_equal(a, b);
    default:
      return range_not_equal(a, b);
  }
}

template <class Range>
ATTNJIT_DEVICE IntRange stack_less(bool or_equal, Range a, Range b) {
  return or_equal ? range_less_equal(a, b) : range_less(a, b);
}

/// An operation on floats that gives one.
ATTNJIT_DEVICE FloatRange stack_floats(u32 op, FloatRange a, FloatRange b) {
  switch (op) {
    case kStackNegateFloat:
      return range_negate(a);
    case kStackAbsFloat:
      return range_abs(a);
    case kStackMinFloat:
      return range_min(a, b);
    case kStackMaxFloat:
      return range_max(a, b);
    case kStackAddFloat:
      return range_add(a, b);
    case kStackSubtractFloat:
      return range_subtract(a, b);
    case kStackMultiplyFloat:
      return range_multiply(a, b);
    case kStackDivideFloat:
      return range_divide(a, b);
#define ATTNJIT_RANGED(Title, name, ...) \
  case kStack##Title:                    \
    return range_##name(a);
      ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_NO_ROW, ATTNJIT_RANGED)
#undef ATTNJIT_RANGED
    default:
      // How these round is not told, and so neither is whether they keep their operands' order.
      return any_float();
  }
}

/// What the mask of some code is over a tile: a bool. NOTE: a kernel asks in several places,
/// and is compiled in a third of the time where it holds this once for each kind of tile.
template <class Tile>
ATTNJIT_FUNCTION IntRange interpret_ranges(const StackCode& code, const StackArrays& arrays,
                                           const Tile& tile) {
  const TileCoords coords(tile);
  StackRange stack[kStackDepth];
  StackRange a = {};
  int top = 0;
#pragma unroll 1
  for (int at = 0; at < code.mask_end; ++at) {
    const u32 word = code.words[2 * at], literal = code.words[2 * at + 1];
    const u32 number = word >> kStackPlaceShift & 0xff;
    StackRange b{literal, literal, false};
    switch (word >> kStackOperandShift & 0xf) {
      case kOperandStack:
        b = stack[--top];
        break;
      case kOperandKey:
        b = StackRange::of(tile.kv_idx);
        break;
      case kOperandCoord:
        b = StackRange::of(coords.values[number]);
        break;
      default:  // NOTE: a mask has no score
        break;
    }
    if ((word & kStackPush) != 0) stack[top++] = a;
    if ((word & kStackExchange) != 0) {
      const StackRange other = a;
      a = b;
      b = other;
    }
    const u32 op = word & 0xff;
    switch (op) {
      case kStackLoad:
        a = b;
        break;
      case kStackNot:
        a = StackRange::of(range_not(a.ints()));
        break;
      case kStackIntToBool:
        a = StackRange::of(range_to_bool(a.ints()));
        break;
      case kStackFloatToBool:
        a = StackRange::of(range_to_bool(a.floats()));
        break;
      case kStackFloatToInt:
        a = StackRange::of(range_to_i32(a.floats()));
        break;
      case kStackFloatToUint:
        a = StackRange::of(range_to_u32(a.floats()));
        break;
      case kStackIntToFloat:
        a = StackRange::of(range_to_f32(a.ints()));
        break;
      case kStackUintToFloat:
        a = StackRange::of(range_to_f32(a.uints()));
        break;
      case kStackNegateInt:
        a = StackRange::of(range_negate(a.ints()));
        break;
      case kStackBitNot:
        a = StackRange::of(range_bit_not(a.ints()));
        break;
      case kStackAbsInt:
        a = StackRange::of(range_abs(a.ints()));
        break;
      case kStackAdd:
      case kStackSubtract:
      case kStackMultiply:
      case kStackAnd:
      case kStackOr:
      case kStackXor:
      case kStackShiftLeft:
      case kStackEqualInt:
      case kStackNotEqualInt:
        a = StackRange::of(stack_bits(op, a.ints(), b.ints()));
        break;
      case kStackShiftRightInt:
        a = StackRange::of(range_shift_right(a.ints(), b.ints()));
        break;
      case kStackShiftRightUint:
        a = StackRange::of(range_shift_right(a.uints(), b.uints()));
        break;
      case kStackLessInt:
      case kStackLessEqualInt:
        a = StackRange::of(stack_less(op == kStackLessEqualInt, a.ints(), b.ints()));
        break;
      case kStackLessUint:
      case kStackLessEqualUint:
        a = StackRange::of(stack_less(op == kStackLessEqualUint, a.uints(), b.uints()));
        break;
      case kStackLessFloat:
      case kStackLessEqualFloat:
        a = StackRange::of(stack_less(op == kStackLessEqualFloat, a.floats(), b.floats()));
        break;
      case kStackEqualFloat:
        a = StackRange::of(range_equal(a.floats(), b.floats()));
        break;
      case kStackNotEqualFloat:
        a = StackRange::of(range_not_equal(a.floats(), b.floats()));
        break;
      case kStackDivideInt:
        a = StackRange::of(range_divide(a.ints(), b.ints()));
        break;
      case kStackDivideUint:
        a = StackRange::of(range_divide(a.uints(), b.uints()));
        break;
      case kStackModuloInt:
        a = StackRange::of(range_modulo(a.ints(), b.ints()));
        break;
      case kStackModuloUint:
        a = StackRange::of(range_modulo(a.uints(), b.uints()));
        break;
      case kStackMinInt:
        a = StackRange::of(range_min(a.ints(), b.ints()));
        break;
      case kStackMaxInt:
        a = StackRange::of(range_max(a.ints(), b.ints()));
        break;
      case kStackMinUint:
        a = StackRange::of(range_min(a.uints(), b.uints()));
        break;
      case kStackMaxUint:
        a = StackRange::of(range_max(a.uints(), b.uints()));
        break;
      case kStackSelect: {
        const IntRange condition = stack[--top].ints();
        if (condition.lo == 1) {
          a = b;
        } else if (condition.hi != 0) {
          a = (word & kStackFloat) != 0 ? StackRange::of(hull(a.floats(), b.floats()))
                                        : StackRange::of(hull(a.ints(), b.ints()));
        }
        break;
      }
      case kStackElement1:
      case kStackElement2:
      case kStackElement3: {
        const StackRange below = op == kStackElement3 ? stack[--top] : b;
        a = stack_element(word, tile, arrays.at(number), code.extents[number], a, b, below);
        break;
      }
      case kStackFma:
        --top;
        a = StackRange::of(any_float());
        break;
      default:
        a = StackRange::of(stack_floats(op, a.floats(), b.floats()));
        break;
    }
  }
  return a.ints();
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Masks and score modifications that are interpreted: a launch gives them as stack code.
//
// One instruction is decoded for kLanes scores. NOTE: loops over scores are not unrolled, so that a
// kernel holds the interpreter once for its mask and once for its score modification. Where scores
// are in registers, an array of them is turned by kLanes places each time around.
//
// NOTE: the tests compile this file for the host, too: it is plain C++, but for what
// common/expression.cuh defines.
#pragma once

#ifndef ATTNJIT_INTERPRETER_ON_HOST
#include "common/integers.cuh"
#include "common/interpreted_ranges.cuh"
#include "common/mask.cuh"
#include "common/score_mod.cuh"
#include "common/stack_arrays.cuh"
#endif

namespace attnjit {

constexpr int kLanes = 4;

/// The coordinates that are the same for all keys of a row, by their numbers. NOTE: in an array,
/// although it lies in local memory: to choose among names takes a dozen instructions.
struct RowCoords {
  int values[kStackCoords];

  ATTNJIT_DEVICE explicit RowCoords(const Coord& c)
      : values{c.b, c.h, c.kv_h, c.q_idx, c.q_row(), 0, c.q_len, c.kv_len} {}
};

/// An operation that takes many instructions: of one score.
ATTNJIT_DEVICE u32 slow_operation(u32 op, u32 a, u32 b) {
  const float x = as_float(a), y = as_float(b);
  switch (op) {
#define ATTNJIT_SLOW(Title, name, c_name, arity, ...) \
  case kStack##Title:                                 \
    return as_bits(expr_##name(ATTNJIT_ARGS_##arity(x, y)));
    ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_SLOW, ATTNJIT_SLOW)
#undef ATTNJIT_SLOW
    default:  // kStackDivideFloat
      return as_bits(expr_div(x, y));
  }
}

/// Turns an array by one place: what was first is last.
template <int kCount, class T>
ATTNJIT_DEVICE void turn_by_one(T (&values)[kCount], T last) {
#pragma unroll
  for (int i = 0; i + 1 < kCount; ++i) values[i] = values[i + 1];
  values[kCount - 1] = last;
}

/// Computes code[begin, end) for kLanes scores of a row, which have keys of their own. The
/// accumulator has their values afterwards.
ATTNJIT_DEVICE void interpret(const StackCode& code, int begin, int end, const StackArrays& arrays,
                              const RowCoords& row, const int (&keys)[kLanes],
                              const float (&scores)[kLanes], u32 (&a)[kLanes]) {
  u32 stack[kStackDepth][kLanes];
  int top = 0;
  const auto each = [&](auto value) {
#pragma unroll
    for (int i = 0; i < kLanes; ++i) a[i] = value(i);
  };
#pragma unroll 1
  for (int at = begin; at < end; ++at) {
    const u32 word = code.words[2 * at], literal = code.words[2 * at + 1];
    const u32 number = word >> kStackPlaceShift & 0xff;
    u32 b[kLanes];
    switch (word >> kStackOperandShift & 0xf) {
      case kOperandStack:
        --top;
#pragma unroll
        for (int i = 0; i < kLanes; ++i) b[i] = stack[top][i];
        break;
      case kOperandKey:
#pragma unroll
        for (int i = 0; i < kLanes; ++i) b[i] = as_bits(keys[i]);
        break;
      case kOperandCoord: {
        const u32 shared = as_bits(row.values[number]);
#pragma unroll
        for (int i = 0; i < kLanes; ++i) b[i] = shared;
        break;
      }
      case kOperandScore:
#pragma unroll
        for (int i = 0; i < kLanes; ++i) b[i] = as_bits(scores[i]);
        break;
      default:
#pragma unroll
        for (int i = 0; i < kLanes; ++i) b[i] = literal;
        break;
    }
    if ((word & kStackPush) != 0) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) stack[top][i] = a[i];
      ++top;
    }
    if ((word & kStackExchange) != 0) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const u32 other = a[i];
        a[i] = b[i];
        b[i] = other;
      }
    }
    const u32 op = word & 0xff;
    switch (op) {
      case kStackLoad:
        each([&](int i) { return b[i]; });
        break;
      case kStackNot:
        each([&](int i) { return a[i] ^ 1u; });
        break;
      case kStackIntToBool:
        each([&](int i) { return as_bits(a[i] != 0); });
        break;
      case kStackFloatToBool:
        each([&](int i) { return as_bits(as_float(a[i]) != 0.0f); });
        break;
      case kStackFloatToInt:
        each([&](int i) { return as_bits(to_i32(as_float(a[i]))); });
        break;
      case kStackFloatToUint:
        each([&](int i) { return to_u32(as_float(a[i])); });
        break;
      case kStackIntToFloat:
        each([&](int i) { return as_bits(to_f32(as_int(a[i]))); });
        break;
      case kStackUintToFloat:
        each([&](int i) { return as_bits(to_f32(a[i])); });
        break;
      case kStackNegateInt:
        each([&](int i) { return 0u - a[i]; });
        break;
      case kStackNegateFloat:
        each([&](int i) { return a[i] ^ 0x80000000u; });
        break;
      case kStackBitNot:
        each([&](int i) { return ~a[i]; });
        break;
      case kStackAbsInt:
        each([&](int i) { return as_bits(expr_abs(as_int(a[i]))); });
        break;
      case kStackAbsFloat:
        each([&](int i) { return a[i] & 0x7fffffffu; });
        break;
      case kStackAdd:
        each([&](int i) { return a[i] + b[i]; });
        break;
      case kStackSubtract:
        each([&](int i) { return a[i] - b[i]; });
        break;
      case kStackMultiply:
        each([&](int i) { return a[i] * b[i]; });
        break;
      case kStackAnd:
        each([&](int i) { return a[i] & b[i]; });
        break;
      case kStackOr:
        each([&](int i) { return a[i] | b[i]; });
        break;
      case kStackXor:
        each([&](int i) { return a[i] ^ b[i]; });
        break;
      case kStackShiftLeft:
        each([&](int i) { return expr_shl(a[i], b[i]); });
        break;
      case kStackShiftRightInt:
        each([&](int i) { return as_bits(expr_shr(as_int(a[i]), as_int(b[i]))); });
        break;
      case kStackShiftRightUint:
        each([&](int i) { return expr_shr(a[i], b[i]); });
        break;
      case kStackLessInt:
        each([&](int i) { return as_bits(as_int(a[i]) < as_int(b[i])); });
        break;
      case kStackLessEqualInt:
        each([&](int i) { return as_bits(as_int(a[i]) <= as_int(b[i])); });
        break;
      case kStackLessUint:
        each([&](int i) { return as_bits(a[i] < b[i]); });
        break;
      case kStackLessEqualUint:
        each([&](int i) { return as_bits(a[i] <= b[i]); });
        break;
      case kStackLessFloat:
        each([&](int i) { return as_bits(as_float(a[i]) < as_float(b[i])); });
        break;
      case kStackLessEqualFloat:
        each([&](int i) { return as_bits(as_float(a[i]) <= as_float(b[i])); });
        break;
      case kStackEqualInt:
        each([&](int i) { return as_bits(a[i] == b[i]); });
        break;
      case kStackNotEqualInt:
        each([&](int i) { return as_bits(a[i] != b[i]); });
        break;
      case kStackEqualFloat:
        each([&](int i) { return as_bits(as_float(a[i]) == as_float(b[i])); });
        break;
      case kStackNotEqualFloat:
        each([&](int i) { return as_bits(as_float(a[i]) != as_float(b[i])); });
        break;
      case kStackDivideInt:
        each([&](int i) { return as_bits(expr_div(as_int(a[i]), as_int(b[i]))); });
        break;
      case kStackDivideUint:
        each([&](int i) { return expr_div(a[i], b[i]); });
        break;
      case kStackModuloInt:
        each([&](int i) { return as_bits(expr_mod(as_int(a[i]), as_int(b[i]))); });
        break;
      case kStackModuloUint:
        each([&](int i) { return expr_mod(a[i], b[i]); });
        break;
      case kStackMinInt:
        each([&](int i) { return as_bits(expr_min(as_int(a[i]), as_int(b[i]))); });
        break;
      case kStackMaxInt:
        each([&](int i) { return as_bits(expr_max(as_int(a[i]), as_int(b[i]))); });
        break;
      case kStackMinUint:
        each([&](int i) { return expr_min(a[i], b[i]); });
        break;
      case kStackMaxUint:
        each([&](int i) { return expr_max(a[i], b[i]); });
        break;
      case kStackMinFloat:
        each([&](int i) { return as_bits(expr_min(as_float(a[i]), as_float(b[i]))); });
        break;
      case kStackMaxFloat:
        each([&](int i) { return as_bits(expr_max(as_float(a[i]), as_float(b[i]))); });
        break;
      case kStackAddFloat:
        each([&](int i) { return as_bits(as_float(a[i]) + as_float(b[i])); });
        break;
      case kStackSubtractFloat:
        each([&](int i) { return as_bits(as_float(a[i]) - as_float(b[i])); });
        break;
      case kStackMultiplyFloat:
        each([&](int i) { return as_bits(expr_mul(as_float(a[i]), as_float(b[i]))); });
        break;
      case kStackSelect:
        --top;
        each([&](int i) { return stack[top][i] != 0 ? b[i] : a[i]; });
        break;
      case kStackFma:
        --top;
        each([&](int i) {
          return as_bits(expr_fma(as_float(stack[top][i]), as_float(b[i]), as_float(a[i])));
        });
        break;
      case kStackElement1: {
        const void* const array = arrays.at(number);
        const u32 size = as_bits(code.extents[number][0]);
        each([&](int i) { return element_of(array, a[i] < size, a[i], (word & kStackBf16) != 0); });
        break;
      }
      case kStackElement2: {
        const void* const array = arrays.at(number);
        const u32 rows = as_bits(code.extents[number][0]);
        const u32 columns = as_bits(code.extents[number][1]);
        each([&](int i) {
          return element_of(array, b[i] < rows && a[i] < columns,
                            static_cast<i64>(b[i]) * columns + a[i], (word & kStackBf16) != 0);
        });
        break;
      }
      case kStackElement3: {
        const void* const array = arrays.at(number);
        const u32 planes = as_bits(code.extents[number][0]);
        const u32 rows = as_bits(code.extents[number][1]);
        const u32 columns = as_bits(code.extents[number][2]);
        --top;
        each([&](int i) {
          return element_of(array, stack[top][i] < planes && b[i] < rows && a[i] < columns,
                            (static_cast<i64>(stack[top][i]) * rows + b[i]) * columns + a[i],
                            (word & kStackBf16) != 0);
        });
        break;
      }
      default:
#pragma unroll 1
        for (int i = 0; i < kLanes; ++i) {
          turn_by_one(a, slow_operation(op, a[0], b[0]));
          turn_by_one(b, b[0]);
        }
        break;
    }
  }
}

#ifndef ATTNJIT_INTERPRETER_ON_HOST
template <class Params>
ATTNJIT_DEVICE StackArrays stack_arrays(const Params& p) {
  return {{p.stack_array_0, p.stack_array_1, p.stack_array_2, p.stack_array_3, p.stack_array_4,
           p.stack_array_5, p.stack_array_6, p.stack_array_7}};
}

/// A mask that each launch gives.
struct InterpretedMask : UntestedRows {
  static constexpr bool kBlockSparse = false;
  static constexpr bool kInterprets = true;
  static constexpr bool kLoads = true;  ///< to the kernel that makes its map

  /// NOTE: where no map is made nothing is said: a second interpreter would take registers.
  template <class Tile, class Params>
  ATTNJIT_DEVICE static IntRange tiles(const Tile& t, const Params& p) {
    if constexpr (Tile::kMakesBlockMask) {
      return interpret_ranges(*p.stack_code, stack_arrays(p), t);
    } else {
      return any_bool();
    }
  }

  /// Which of the kColumns columns of some rows are seen: a bit each, 32 a word, of each row as
  /// many words. at(row, column) says where they stand.
  template <int kColumns, int kWords, class At, class Params>
  ATTNJIT_DEVICE static void columns(u32 (&words)[kWords], const At& at, const Params& p) {
    constexpr int kWordsPerRow = ceil_div(kColumns, 32);
    static_assert(kWords % kWordsPerRow == 0 && kColumns % kLanes == 0);
    const StackCode& code = *p.stack_code;
    const StackArrays arrays = stack_arrays(p);
#pragma unroll 1
    for (int word = 0; word < kWords; ++word) {
      const int row = word / kWordsPerRow, first = 32 * (word % kWordsPerRow);
      const RowCoords coords(at(row, first));
      u32 visible = 0;
#pragma unroll 1
      for (int i = 0; i < min(32, kColumns - first); i += kLanes) {
        int keys[kLanes];
        u32 seen[kLanes] = {};
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) keys[lane] = at(row, first + i + lane).kv_idx;
        interpret(code, 0, code.mask_end, arrays, coords, keys, {}, seen);
#pragma unroll
        for (int lane = 0; lane < kLanes; ++lane) visible |= seen[lane] << (i + lane);
      }
      turn_by_one(words, visible);
    }
  }
  /// The same of kCount keys from c.kv_idx on.
  template <int kCount, class Params>
  ATTNJIT_DEVICE static u32 run(const RowTest&, const Coord& c, const Params& p) {
    const auto at = [&](int, int column) {
      Coord here = c;
      here.kv_idx += column;
      return here;
    };
    u32 words[1];
    columns<kCount>(words, at, p);
    return words[0];
  }
};

/// A score modification that each launch gives.
struct InterpretedScoreMod : Stateless {
  static constexpr bool kInterprets = true;
  static constexpr bool kExponents = true;

  /// Scales and modifies. at(i) says where score i stands; each kLanes of them are of one row.
  template <int kCount, class At, class Params>
  ATTNJIT_DEVICE static void apply_all(float (&scores)[kCount], float scale, const At& at,
                                       const Params& p) {
    static_assert(kCount % kLanes == 0);
    const StackCode& code = *p.stack_code;
    const StackArrays arrays = stack_arrays(p);
#pragma unroll 1
    for (int first = 0; first < kCount; first += kLanes) {
      int keys[kLanes];
      float scaled[kLanes];
      u32 made[kLanes] = {};
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        keys[lane] = at(first + lane).kv_idx;
        scaled[lane] = scores[lane] * scale;
      }
      interpret(code, code.mask_end, code.score_end, arrays, RowCoords(at(first)), keys, scaled,
                made);
#pragma unroll
      for (int i = 0; i + kLanes < kCount; ++i) scores[i] = scores[i + kLanes];
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        scores[kCount - kLanes + lane] = as_float(made[lane]) * kLog2e;
      }
    }
  }
};
#endif

}  // namespace attnjit

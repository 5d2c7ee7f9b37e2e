// SPDX-License-Identifier: Apache-2.0
// What printed user expressions call: the coordinates, parameter arrays and C arithmetic without
// undefined behaviour. The CPU reference evaluates the same meanings.
#pragma once

#include "common/expression_functions.cuh"
#include "common/ptx.cuh"

namespace attnjit {

/// Where a score stands. Masks and score modifications get it by value of its fields.
struct Coord {
  int b, h, kv_h;     ///< batch entry, query head, key-value head
  int q_idx, kv_idx;  ///< q_idx = row + kv_len - q_len; may be negative
  int q_len, kv_len;

  /// The row within the call's sequence.
  ATTNJIT_DEVICE int q_row() const {
    return static_cast<int>(u32(q_idx) - u32(kv_len) + u32(q_len));
  }
};

/// A score's row in the whole of a batch, `before` rows of which are of the sequences before.
ATTNJIT_DEVICE int row_of_batch(const Coord& c, int before) {
  return static_cast<int>(u32(c.q_row()) + u32(before));
}

/// A number of a mask or a score modification: a constant, or a member of the launch parameters
/// that kValue points to.
template <auto kValue, class Params>
ATTNJIT_DEVICE auto scalar_value(const Params& p) {
  if constexpr (requires { p.*kValue; }) {
    return p.*kValue;
  } else {
    return kValue;
  }
}

/// An element of a bf16 array, which is read as a float.
struct Bf16 {
  unsigned short bits;
};

/// An element as the user's code sees it.
template <class T>
ATTNJIT_DEVICE T element_value(T element) {
  return element;
}
ATTNJIT_DEVICE float element_value(Bf16 element) {
  return __uint_as_float(static_cast<u32>(element.bits) << 16);
}

/// An element of a tensor of halves.
struct Fp16 {
  unsigned short bits;
};
/// cvt.f32.f16 (9.7.9.21).
ATTNJIT_DEVICE float element_value(Fp16 element) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(element.bits));
  return value;
}

/// A user's device array; an index outside it reads 0.
template <class T>
struct Array {
  using Value = decltype(element_value(T{}));
  const T* data;
  int size;

  ATTNJIT_DEVICE Value operator[](int i) const {
    // NOTE: the unsigned comparison covers negative indices too.
    return static_cast<u32>(i) < static_cast<u32>(size) ? element_value(data[i]) : Value(0);
  }
};

/// A user's row-major device matrix; an index outside it reads 0.
template <class T>
struct Matrix {
  const T* data;
  int rows, columns;

  /// Row i; one outside is empty.
  ATTNJIT_DEVICE Array<T> operator[](int i) const {
    const bool inside = static_cast<u32>(i) < static_cast<u32>(rows);
    return {inside ? data + static_cast<i64>(i) * columns : data, inside ? columns : 0};
  }
};

/// A user's device matrices, one behind another; an index outside reads 0.
template <class T>
struct Cube {
  const T* data;
  int planes, rows, columns;

  /// Plane i; one outside is empty.
  ATTNJIT_DEVICE Matrix<T> operator[](int i) const {
    const bool inside = static_cast<u32>(i) < static_cast<u32>(planes);
    return {inside ? data + static_cast<i64>(i) * rows * columns : data, inside ? rows : 0,
            columns};
  }
};

template <class T>
ATTNJIT_DEVICE auto array_at(const Array<T>& array, int i) {
  return array[i];
}

template <class T>
ATTNJIT_DEVICE auto matrix_at(const Matrix<T>& matrix, int i, int j) {
  return matrix[i][j];
}

template <class T>
ATTNJIT_DEVICE auto cube_at(const Cube<T>& cube, int i, int j, int k) {
  return cube[i][j][k];
}

// ---- Integers: wrapping, and total ------------------------------------------------------------

ATTNJIT_DEVICE int expr_add(int a, int b) { return static_cast<int>(u32(a) + u32(b)); }
ATTNJIT_DEVICE int expr_sub(int a, int b) { return static_cast<int>(u32(a) - u32(b)); }
ATTNJIT_DEVICE int expr_mul(int a, int b) { return static_cast<int>(u32(a) * u32(b)); }
ATTNJIT_DEVICE int expr_neg(int a) { return static_cast<int>(0u - u32(a)); }

/// A divisor of which C says what it does; 1 in the place of 0 and -1.
ATTNJIT_DEVICE int plain_divisor(int b) { return u32(b) + 1u <= 1u ? 1 : b; }

/// Truncates as in C; by zero: 0; INT_MIN / -1 wraps. NOTE: a product, of which the second factor
/// is mostly known before the first score: a choice would be a branch for each, around the
/// division.
ATTNJIT_DEVICE int expr_div(int a, int b) {
  return expr_mul(a / plain_divisor(b), b == 0 || b == -1 ? b : 1);
}

/// The remainder of expr_div, with a's sign; by zero: 0.
ATTNJIT_DEVICE int expr_mod(int a, int b) { return a % plain_divisor(b); }

/// Shifts count modulo 32; >> keeps the sign.
ATTNJIT_DEVICE int expr_shl(int a, int b) { return static_cast<int>(u32(a) << (u32(b) & 31u)); }
ATTNJIT_DEVICE int expr_shr(int a, int b) { return a >> (u32(b) & 31u); }

ATTNJIT_DEVICE int expr_min(int a, int b) { return a < b ? a : b; }
ATTNJIT_DEVICE int expr_max(int a, int b) { return a > b ? a : b; }
ATTNJIT_DEVICE int expr_abs(int a) { return a < 0 ? expr_neg(a) : a; }

// ---- Integers without a sign ------------------------------------------------------------------

ATTNJIT_DEVICE u32 expr_add(u32 a, u32 b) { return a + b; }
ATTNJIT_DEVICE u32 expr_sub(u32 a, u32 b) { return a - b; }
ATTNJIT_DEVICE u32 expr_mul(u32 a, u32 b) { return a * b; }
ATTNJIT_DEVICE u32 expr_neg(u32 a) { return 0u - a; }
ATTNJIT_DEVICE u32 expr_div(u32 a, u32 b) { return a / (b == 0u ? 1u : b) * (b == 0u ? 0u : 1u); }
ATTNJIT_DEVICE u32 expr_mod(u32 a, u32 b) { return a % (b == 0u ? 1u : b); }
ATTNJIT_DEVICE u32 expr_shl(u32 a, u32 b) { return a << (b & 31u); }
ATTNJIT_DEVICE u32 expr_shr(u32 a, u32 b) { return a >> (b & 31u); }
ATTNJIT_DEVICE u32 expr_min(u32 a, u32 b) { return a < b ? a : b; }
ATTNJIT_DEVICE u32 expr_max(u32 a, u32 b) { return a > b ? a : b; }
ATTNJIT_DEVICE u32 expr_abs(u32 a) { return a; }

// ---- Floats -----------------------------------------------------------------------------------

/// NOTE: never contracted into an fma, so that a mask decides as the reference does. Printed only
/// where the score plays no part.
ATTNJIT_DEVICE float expr_mul(float a, float b) { return __fmul_rn(a, b); }

ATTNJIT_DEVICE float expr_min(float a, float b) { return fminf(a, b); }
ATTNJIT_DEVICE float expr_max(float a, float b) { return fmaxf(a, b); }
ATTNJIT_DEVICE float expr_abs(float a) { return fabsf(a); }
ATTNJIT_DEVICE float expr_div(float a, float b) { return a / b; }
ATTNJIT_DEVICE float expr_mod(float a, float b) { return fmodf(a, b); }
ATTNJIT_DEVICE float expr_fmin(float a, float b) { return fminf(a, b); }
ATTNJIT_DEVICE float expr_fmax(float a, float b) { return fmaxf(a, b); }
ATTNJIT_DEVICE float expr_fabs(float a) { return fabsf(a); }
ATTNJIT_DEVICE float expr_fma(float a, float b, float c) { return fmaf(a, b, c); }
#define ATTNJIT_FUNCTION_OF_FLOATS(Title, name, c_name, arity, ...) \
  ATTNJIT_DEVICE float expr_##name(ATTNJIT_PARAMS_##arity(float)) { \
    return c_name(ATTNJIT_ARGS_##arity(a, b));                      \
  }
ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_FUNCTION_OF_FLOATS, ATTNJIT_FUNCTION_OF_FLOATS)
#undef ATTNJIT_FUNCTION_OF_FLOATS

/// cvt.rzi.s32.f32 (9.7.9.21): truncates, saturates; NaN gives 0.
ATTNJIT_DEVICE int to_i32(float a) { return __float2int_rz(a); }
ATTNJIT_DEVICE int to_i32(int a) { return a; }
ATTNJIT_DEVICE int to_i32(bool a) { return a ? 1 : 0; }
ATTNJIT_DEVICE int to_i32(u32 a) { return static_cast<int>(a); }
/// cvt.rzi.u32.f32 (9.7.9.21): truncates, saturates; NaN gives 0.
ATTNJIT_DEVICE u32 to_u32(float a) { return __float2uint_rz(a); }
ATTNJIT_DEVICE u32 to_u32(int a) { return static_cast<u32>(a); }
ATTNJIT_DEVICE u32 to_u32(u32 a) { return a; }
ATTNJIT_DEVICE u32 to_u32(bool a) { return a ? 1u : 0u; }
ATTNJIT_DEVICE float to_f32(int a) { return __int2float_rn(a); }
ATTNJIT_DEVICE float to_f32(u32 a) { return __uint2float_rn(a); }
ATTNJIT_DEVICE float to_f32(float a) { return a; }
ATTNJIT_DEVICE float to_f32(bool a) { return a ? 1.0f : 0.0f; }

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What printed expressions call, for the host: the twin of templates/common/expression.cuh, written
// for tests that compile printed text without a GPU.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "random_expression.h"
#include "spec/ranges.h"

namespace attnjit::spec::shim {

template <class T>
struct Array {
  const std::vector<T>* elements;
};
template <class T>
struct Matrix {
  const std::vector<T>* elements;
  int rows, columns;
};
struct Cube {
  const std::vector<std::int32_t>* elements;  // 2 x 2 x 2
};
/// Of the storage T as the expression sees it.
template <class T>
T value_of(T element) {
  return element;
}
inline float value_of(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

struct Params {
  explicit Params(const random::Params& from)
      : w(from.w),
        x(from.x),
        doc{&from.doc},
        bias{&from.bias},
        table{&from.table, 2, 3},
        u(from.u),
        unsigned_words(from.words.begin(), from.words.end()),
        unsigned_path(from.path.begin(), from.path.end()),
        words{&unsigned_words},
        path{&unsigned_path, 3, 2},
        grid{&from.grid, 2, 2},
        half{&from.half},
        halves{&from.halves, 2, 2},
        cube{&from.cube} {}
  int w;
  float x;
  Array<std::int32_t> doc;
  Array<float> bias;
  Matrix<std::int32_t> table;
  unsigned u;
  std::vector<unsigned> unsigned_words, unsigned_path;
  Array<unsigned> words;
  Matrix<unsigned> path;
  Matrix<float> grid;
  Array<std::uint16_t> half;
  Matrix<std::uint16_t> halves;
  Cube cube;
};

template <class T>
auto array_at(const Array<T>& array, int i) {
  const std::vector<T>& elements = *array.elements;
  return value_of(i >= 0 && static_cast<std::size_t>(i) < elements.size() ? elements[i] : T(0));
}
template <class T>
auto matrix_at(const Matrix<T>& matrix, int i, int j) {
  const bool inside = i >= 0 && i < matrix.rows && j >= 0 && j < matrix.columns;
  return value_of(inside ? (*matrix.elements)[i * matrix.columns + j] : T(0));
}
inline int cube_at(const Cube& cube, int i, int j, int k) {
  const bool inside = i >= 0 && i < 2 && j >= 0 && j < 2 && k >= 0 && k < 2;
  return inside ? (*cube.elements)[i * 4 + j * 2 + k] : 0;
}

inline int wrap(std::int64_t wide) { return static_cast<int>(static_cast<std::uint32_t>(wide)); }
inline int expr_add(int a, int b) { return wrap(std::int64_t{a} + b); }
inline int expr_sub(int a, int b) { return wrap(std::int64_t{a} - b); }
inline int expr_mul(int a, int b) { return wrap(std::int64_t{a} * b); }
inline float expr_mul(float a, float b) { return a * b; }
inline int expr_neg(int a) { return wrap(-std::int64_t{a}); }
inline int expr_div(int a, int b) { return b == 0 ? 0 : wrap(std::int64_t{a} / b); }
inline int expr_mod(int a, int b) { return b == 0 ? 0 : wrap(std::int64_t{a} % b); }
inline int expr_shl(int a, int b) { return wrap(std::int64_t{a} << (b & 31)); }
inline int expr_shr(int a, int b) { return a >> (b & 31); }
inline int expr_min(int a, int b) { return a < b ? a : b; }
inline int expr_max(int a, int b) { return a > b ? a : b; }
inline int expr_abs(int a) { return a < 0 ? expr_neg(a) : a; }
inline unsigned expr_add(unsigned a, unsigned b) { return a + b; }
inline unsigned expr_sub(unsigned a, unsigned b) { return a - b; }
inline unsigned expr_mul(unsigned a, unsigned b) { return a * b; }
inline unsigned expr_neg(unsigned a) { return 0U - a; }
inline unsigned expr_div(unsigned a, unsigned b) { return b == 0 ? 0 : a / b; }
inline unsigned expr_mod(unsigned a, unsigned b) { return b == 0 ? 0 : a % b; }
inline unsigned expr_shl(unsigned a, unsigned b) { return a << (b & 31U); }
inline unsigned expr_shr(unsigned a, unsigned b) { return a >> (b & 31U); }
inline unsigned expr_min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned expr_max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned expr_abs(unsigned a) { return a; }
inline float expr_min(float a, float b) { return std::fmin(a, b); }
inline float expr_max(float a, float b) { return std::fmax(a, b); }
inline float expr_abs(float a) { return std::fabs(a); }
inline float expr_fabs(float a) { return std::fabs(a); }
inline float expr_fmax(float a, float b) { return std::fmax(a, b); }
// NOTE: as the reference has them, in double and rounded once: expf and others may differ by an
// ulp.
#define ATTNJIT_ROUNDED(title, name, c_name, arity, value)                              \
  inline double wide_##name(ATTNJIT_PARAMS_##arity(double)) { return value; }           \
  inline float expr_##name(ATTNJIT_PARAMS_##arity(float)) {                             \
    return static_cast<float>(wide_##name(ATTNJIT_ARGS_##arity(double{a}, double{b}))); \
  }
ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_ROUNDED, ATTNJIT_ROUNDED)
#undef ATTNJIT_ROUNDED
inline int to_i32(bool a) { return a ? 1 : 0; }
inline int to_i32(int a) { return a; }
inline int to_i32(float a) {
  if (std::isnan(a)) return 0;
  if (a >= 2147483648.0F) return INT32_MAX;
  return a < -2147483648.0F ? INT32_MIN : static_cast<int>(a);
}
inline int to_i32(unsigned a) { return static_cast<int>(a); }
inline unsigned to_u32(bool a) { return a ? 1 : 0; }
inline unsigned to_u32(int a) { return static_cast<unsigned>(a); }
inline unsigned to_u32(unsigned a) { return a; }
inline unsigned to_u32(float a) {
  if (!(a > 0)) return 0;
  return a >= 4294967296.0F ? 0xffffffffU : static_cast<unsigned>(a);
}
inline float to_f32(unsigned a) { return static_cast<float>(a); }
inline float to_f32(bool a) { return a ? 1.0F : 0.0F; }
inline float to_f32(int a) { return static_cast<float>(a); }

inline int total_row(const Coordinates& c, const Params&) {
  return expr_add(c.q_row(), random::first_row(c.b, c.q_len));
}
inline IntRange total_row(const TileCoord& t, const Params&) {
  return row_of_batch(t, random::first_row(t.b, t.q_len));
}

}  // namespace attnjit::spec::shim

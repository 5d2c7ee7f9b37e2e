// SPDX-License-Identifier: Apache-2.0
// What printed expressions call, for the host: the twin of templates/common/expression.cuh, written
// for tests that compile printed text without a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "random_expression.h"
#include "spec/ranges.h"

namespace attnjit::spec::shim {

template <class T>
struct Array {
  const std::vector<T>* elements;
};
struct Matrix {
  const std::vector<std::int32_t>* elements;
};

struct Params {
  explicit Params(const random::Params& from)
      : w(from.w), x(from.x), doc{&from.doc}, bias{&from.bias}, table{&from.table} {}
  int w;
  float x;
  Array<std::int32_t> doc;
  Array<float> bias;
  Matrix table;
};

template <class T>
T array_at(const Array<T>& array, int i) {
  const std::vector<T>& elements = *array.elements;
  return i >= 0 && static_cast<std::size_t>(i) < elements.size() ? elements[i] : T(0);
}
inline int matrix_at(const Matrix& matrix, int i, int j) {
  return i >= 0 && i < 2 && j >= 0 && j < 3 ? (*matrix.elements)[i * 3 + j] : 0;
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
inline float expr_min(float a, float b) { return std::fmin(a, b); }
inline float expr_max(float a, float b) { return std::fmax(a, b); }
inline float expr_abs(float a) { return std::fabs(a); }
inline float expr_fabs(float a) { return std::fabs(a); }
inline float expr_fmax(float a, float b) { return std::fmax(a, b); }
inline float expr_fmod(float a, float b) { return std::fmod(a, b); }
inline float expr_floor(float a) { return std::floor(a); }
inline float expr_ceil(float a) { return std::ceil(a); }
inline float expr_round(float a) { return std::round(a); }
inline float expr_trunc(float a) { return std::trunc(a); }
inline float expr_sqrt(float a) { return std::sqrt(a); }
// NOTE: exp2f may differ from the reference by an ulp.
inline float expr_exp2(float a) { return static_cast<float>(std::exp2(static_cast<double>(a))); }
inline int to_i32(bool a) { return a ? 1 : 0; }
inline int to_i32(int a) { return a; }
inline int to_i32(float a) {
  if (std::isnan(a)) return 0;
  if (a >= 2147483648.0F) return INT32_MAX;
  return a < -2147483648.0F ? INT32_MIN : static_cast<int>(a);
}
inline float to_f32(bool a) { return a ? 1.0F : 0.0F; }
inline float to_f32(int a) { return static_cast<float>(a); }

}  // namespace attnjit::spec::shim

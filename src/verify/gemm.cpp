// SPDX-License-Identifier: Apache-2.0
// Computes matrix products in double precision, with clones for several instruction sets.
#include "verify/gemm.h"

#include <cstring>

namespace attnjit::verify {
namespace {

using Vector = double __attribute__((vector_size(32)));
constexpr std::int64_t kRows = 4;     // of C in registers
constexpr std::int64_t kColumns = 8;  // two vectors

// NOTE: always_inline, so that it is compiled once for each instruction set of its callers.
[[gnu::always_inline]] inline void tile(std::int64_t k, const double* a, std::int64_t a_row,
                                        const double* b, std::int64_t b_row, double* c,
                                        std::int64_t c_row) {
  Vector sum[kRows][2];
  for (int i = 0; i < kRows; ++i) {
    std::memcpy(&sum[i][0], c + i * c_row, sizeof(Vector));
    std::memcpy(&sum[i][1], c + i * c_row + 4, sizeof(Vector));
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Vector b0, b1;
    std::memcpy(&b0, b + p * b_row, sizeof(Vector));
    std::memcpy(&b1, b + p * b_row + 4, sizeof(Vector));
    for (int i = 0; i < kRows; ++i) {
      const double value = a[i * a_row + p];
      sum[i][0] += value * b0;
      sum[i][1] += value * b1;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    std::memcpy(c + i * c_row, &sum[i][0], sizeof(Vector));
    std::memcpy(c + i * c_row + 4, &sum[i][1], sizeof(Vector));
  }
}

[[gnu::always_inline]] inline void product(std::int64_t m, std::int64_t n, std::int64_t k,
                                           const double* a, std::int64_t a_row, const double* b,
                                           std::int64_t b_row, double* c, std::int64_t c_row) {
  const std::int64_t whole_m = m / kRows * kRows;
  const std::int64_t whole_n = n / kColumns * kColumns;
  for (std::int64_t j = 0; j < whole_n; j += kColumns) {
    for (std::int64_t i = 0; i < whole_m; i += kRows) {
      tile(k, a + i * a_row, a_row, b + j, b_row, c + i * c_row + j, c_row);
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = i < whole_m ? whole_n : 0; j < n; ++j) {
      double sum = c[i * c_row + j];
      for (std::int64_t p = 0; p < k; ++p) sum += a[i * a_row + p] * b[p * b_row + j];
      c[i * c_row + j] = sum;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void product_avx2(std::int64_t m, std::int64_t n,
                                                      std::int64_t k, const double* a,
                                                      std::int64_t a_row, const double* b,
                                                      std::int64_t b_row, double* c,
                                                      std::int64_t c_row) {
  product(m, n, k, a, a_row, b, b_row, c, c_row);
}
#endif

}  // namespace

void gemm_add(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_row,
              const double* b, std::int64_t b_row, double* c, std::int64_t c_row) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) {
    product_avx2(m, n, k, a, a_row, b, b_row, c, c_row);
    return;
  }
#endif
  product(m, n, k, a, a_row, b, b_row, c, c_row);
}

}  // namespace attnjit::verify

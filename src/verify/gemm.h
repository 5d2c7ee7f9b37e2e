// SPDX-License-Identifier: Apache-2.0
// A small double-precision matrix product, the work of the reference.
#pragma once

#include <cstdint>

namespace attnjit::verify {

/// C[m, n] += A[m, k] B[k, n], row-major with the given distances between rows.
/// Uses AVX2 and FMA where the processor has them.
void gemm_add(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t a_row,
              const double* b, std::int64_t b_row, double* c, std::int64_t c_row);

}  // namespace attnjit::verify

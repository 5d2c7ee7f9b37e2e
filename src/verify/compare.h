// SPDX-License-Identifier: Apache-2.0
// Compares a kernel's outputs with the reference, by the pass rule of docs/command-line.md.
#pragma once

#include <optional>
#include <string>

#include "attnjit/types.h"
#include "verify/problem.h"
#include "verify/reference.h"

namespace attnjit::verify {

/// passed: no NaN or Inf in o, rel_err <= tolerance, max_row_err <= 4 tolerance, each LSE off by at
/// most the tolerance and what the tensor cores' sums move it by (Reference::lse_moved) with -inf
/// matched exactly, exactly zero where the reference's row is zero.
struct Comparison {
  double tolerance = 0;
  double max_abs_err = 0;
  /// Norm of the difference over the norm of the reference. In both measures the norm of a row
  /// counts for at least two floors: that of a row of o's smallest precise numbers (2^-14 for fp16,
  /// 2^-6 for e4m3, 2^-126 otherwise), and 2^-118 / tolerance times the norm of the row of sums
  /// over all keys of |v|. Where a sink outweighs every key by so much, the rounding of o and what
  /// vanishes in f32 exponentials are all that there is to see (compare.cpp has the derivation).
  double rel_err = 0;
  double max_row_err = 0;  ///< the same of the worst row (one query of one head)
  std::optional<double> lse_max_abs_err;
  bool passed = false;
  std::string reason;  ///< the first rule that failed, with its position; empty if passed
};

/// 1e-2 for bf16, 2e-3 for fp16, 5e-2 for e4m3; the coarser of the two where o has another dtype.
double tolerance_of(const AttentionSpec& spec);

/// `lse` null: the kernel returned none.
/// @pre o and lse have Problem::o_shape and lse_shape; tolerance > 0
Comparison compare(const Problem& problem, const Reference& reference, const Tensor& o,
                   const Tensor* lse, double tolerance);

}  // namespace attnjit::verify

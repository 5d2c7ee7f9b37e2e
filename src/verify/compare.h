// SPDX-License-Identifier: Apache-2.0
// Compares a kernel's outputs with the reference, by the pass rule of docs/command-line.md.
#pragma once

#include <optional>
#include <string>

#include "attnjit/types.h"
#include "verify/problem.h"
#include "verify/reference.h"

namespace attnjit::verify {

/// passed: no NaN or Inf in o, rel_err <= tolerance, max_row_err <= 4 tolerance, lse_max_abs_err <=
/// tolerance with -inf matched exactly, exactly zero where the reference's row is zero.
struct Comparison {
  double tolerance = 0;
  double max_abs_err = 0;
  /// Norm of the difference over the norm of the reference. In both measures a norm counts for at
  /// least that of as many of o's smallest precise numbers (2^-14 for fp16, 2^-120 otherwise):
  /// where a sink outweighs every key by so much, o's own rounding is all that there is to see.
  double rel_err = 0;
  double max_row_err = 0;  ///< the same of the worst row (one query of one head)
  std::optional<double> lse_max_abs_err;
  bool passed = false;
  std::string reason;  ///< the first rule that failed, with its position; empty if passed
};

/// 1e-2 for bf16, 2e-3 for fp16, 5e-2 for e4m3; the coarser of the two where o has another dtype.
double tolerance_of(const AttentionSpec& spec);

/// `lse` null: the kernel returned none.
/// @pre o and lse have Problem::o_shape and lse_shape
Comparison compare(const Problem& problem, const Reference& reference, const Tensor& o,
                   const Tensor* lse, double tolerance);

}  // namespace attnjit::verify

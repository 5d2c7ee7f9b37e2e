// SPDX-License-Identifier: Apache-2.0
// Compiles expressions to stack code, which a kernel interprets (templates/common/stack_code.cuh).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attnjit/result.h"
#include "spec/expression.h"

#include "../../templates/common/stack_code.cuh"

namespace attnjit::spec {

/// A mask and a score modification as a launch gives them.
struct StackProgram {
  StackCode code = {};
  /// No parameter: the launch's q_offsets.
  static constexpr std::uint32_t kQOffsets = 0xffffffffU;
  /// The parameters that are the code's arrays, by their number among the declared ones.
  std::vector<std::uint32_t> arrays;
};

/// Compiles a mask, a score modification, or both; null: none. Both are parsed over the same
/// parameters, of which `params` has the values: numbers become literals, and of arrays the code
/// has the extents. Operands are ordered so that little of the stack is needed. `total_row` of a
/// ragged batch is read from one array more: `q_offsets` is how many the launch has, 0 of a batch
/// that is not ragged.
/// Errors: kUnsupported for code that is longer than kStackInstructions, needs a deeper stack than
/// kStackDepth, or names more than kStackArrays arrays.
Result<StackProgram> compile_stack_code(const Expression* mask, const Expression* score_mod,
                                        std::span<const ParamView> params,
                                        std::int32_t q_offsets = 0);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Expressions that say no more than a built-in score modification, whose kernels are faster.
//
// Thread rules: pure functions.
#pragma once

#include <optional>

#include "attnjit/spec.h"
#include "spec/expression.h"

namespace attnjit::spec {

/// The built-in modification that a score modification's expression is: none, or a softcap whose
/// cap is a number, in any order of its factors. Nothing where that is not certain.
std::optional<ScoreModSpec> builtin_score_mod(const Expression& expression);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Expressions that say no more than a built-in mask or score modification, whose kernels know more
// of it and are faster. Pure functions.
#pragma once

#include <optional>

#include "attnjit/spec.h"
#include "spec/expression.h"

namespace attnjit::spec {

/// The built-in mask without numbers that a mask's expression is, in any spelling: kCausal, or
/// kNull where it shows every key, whatever a launch's lengths. Nothing where that is not certain.
std::optional<MaskSpec::Kind> builtin_mask(const Expression& expression);

/// The built-in modification that a score modification's expression is: none, or a softcap whose
/// cap is a number, in any order of its factors. Nothing where that is not certain.
std::optional<ScoreModSpec> builtin_score_mod(const Expression& expression);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Expressions that say no more than a built-in mask, whose kernels know more of it.
#pragma once

#include <optional>

#include "attnjit/spec.h"
#include "spec/expression.h"

namespace attnjit::spec {

/// The built-in mask without numbers that a mask's expression is, in any spelling: kCausal, or
/// kNull where it shows every key, whatever a launch's lengths. Nothing where that is not certain.
std::optional<MaskSpec::Kind> builtin_mask(const Expression& expression);

}  // namespace attnjit::spec

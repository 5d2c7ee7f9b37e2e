// SPDX-License-Identifier: Apache-2.0
// A whole mask, built-in masks and trees among it, as one expression.
#pragma once

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/expression.h"

namespace attnjit::spec {

/// An expression that shows the keys which a mask shows, over the parameters that its custom code
/// declares. Errors: kUnsupported for what is no expression: trusted code, and materialized masks.
/// @pre windows and chunks have their numbers
Result<Expression> mask_expression(const AttentionSpec& spec);

}  // namespace attnjit::spec

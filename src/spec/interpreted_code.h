// SPDX-License-Identifier: Apache-2.0
// What a kernel that interprets is given of a spec: its mask and score modification as stack code.
#pragma once

#include <span>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/expression.h"
#include "spec/stack_code.h"

namespace attnjit::spec {

/// Whether the kernel of a spec interprets its mask: all of a tree that holds custom code.
bool interprets_mask(const AttentionSpec& spec);
/// Whether it interprets its score modification.
bool interprets_score_mod(const AttentionSpec& spec);

/// An expression that shows the keys which a whole mask shows, built-in masks and trees among it,
/// over the parameters that its custom code declares. Errors: kUnsupported for what is no
/// expression: trusted code, and materialized masks. @pre windows and chunks have their numbers
Result<Expression> mask_expression(const AttentionSpec& spec);

/// The stack code of a launch. `numbers`: those of spec_scalars(), of which a 0 and one that is
/// left out stand for the spec's; `params`: those of declared_params(); `batch`: of how many
/// sequences. Errors: kUnsupported for a mask that is no expression, and for code that is too long;
/// kInvalid for a number that no launch may give.
/// @pre the spec is valid
Result<StackProgram> interpreted_code(const AttentionSpec& spec, std::span<const double> numbers,
                                      std::span<const ParamView> params, std::int32_t batch);

/// Why no kernel can interpret the custom code of a spec; empty: one can.
std::string why_not_interpreted(const AttentionSpec& spec);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// What the forward kernels of all architectures share of a plan: their parameters' tail, the
// constants of masks and score modifications, and what of a spec neither can take.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

/// Whether a mask tree has a node of a kind.
bool contains(const MaskSpec& mask, MaskSpec::Kind kind);

/// Why a spec's user parameters cannot be kernel parameters; empty: they can.
std::string why_no_parameters(const AttentionSpec& spec);

/// What of a spec the forward templates of every architecture lack; empty: nothing.
std::string why_no_forward(const AttentionSpec& spec);

/// Appends the parameters: the four tensor maps, lse and sink where the spec has them, `integers`,
/// the scale, the scalars of masks and score modification, the user's parameters.
void add_forward_parameters(const AttentionSpec& spec, const std::vector<std::string>& integers,
                            KernelPlan& plan);

/// Appends the numbers of masks and score modification that are compiled in.
void add_user_constants(const AttentionSpec& spec, KernelPlan& plan);

}  // namespace attnjit

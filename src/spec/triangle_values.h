// SPDX-License-Identifier: Apache-2.0
// What a mask's expression is where causal shows keys, and where it hides them.
//
// Positions and lengths are sums of variables that are not negative (position_form in the source),
// so that each is a linear form, and a comparison is decided where the difference's form has one
// sign. What is decided holds for every row and key of any launch.
#pragma once

#include <cstdint>
#include <optional>

#include "spec/expression.h"

namespace attnjit::spec {

/// The most that a launch's q_len and kv_len may be.
inline constexpr std::int32_t kMostLength = 1 << 30;

/// The scores of all launches, by the side of the diagonal on which they lie.
enum class Triangle : bool {
  kSeen,    ///< kv_idx <= q_idx: what causal shows
  kHidden,  ///< kv_idx > q_idx
};

/// What a mask shows in all of a triangle: each score, or none. Nothing where that is not certain.
/// @pre the expression is a mask's.
std::optional<bool> value_in(const Expression& expression, Triangle triangle);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Custom code as a whole: checks a snippet of either tier, and shows where it is wrong.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attnjit/result.h"
#include "attnjit/spec.h"

namespace attnjit::spec {

/// What a snippet computes: whether a key is visible (bool), or a new score (f32).
enum class SnippetKind : std::uint8_t { kMask, kScoreMod };

/// Checks a snippet: an expression is parsed and its types are checked; a trusted body is checked
/// lexically. Errors: kInvalid with line, column and hint; `field` is left empty.
/// @pre the names of the parameters are good.
Status check_snippet(const CustomCode& custom, SnippetKind kind);

/// The line of a snippet that an error names, with a caret below its column:
///     p.doc[q_idx] = 3
///                  ^
/// Long lines are cut around the column. Empty if the snippet has no such place.
std::string caret_excerpt(std::string_view code, int line, int column);

}  // namespace attnjit::spec

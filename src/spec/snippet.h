// SPDX-License-Identifier: Apache-2.0
// What custom code computes, and where it is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attnjit::spec {

/// What a snippet computes: whether a key is visible (bool), or a new score (f32).
enum class SnippetKind : std::uint8_t { kMask, kScoreMod };

/// The line of a snippet that an error names, with a caret below its column:
///     p.doc[q_idx] = 3
///                  ^
/// Long lines are cut around the column. Empty if the snippet has no such place.
std::string caret_excerpt(std::string_view code, int line, int column);

}  // namespace attnjit::spec

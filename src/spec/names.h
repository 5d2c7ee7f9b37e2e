// SPDX-License-Identifier: Apache-2.0
// The names that custom code declares and sees, and whether a name may be declared.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit::spec {

/// The coordinates of a score, in the order of enum Coord: all i32.
enum class Coord : std::uint8_t { kB, kH, kKvH, kQIdx, kQRow, kKvIdx, kQLen, kKvLen, kTotalRow };
std::span<const std::string_view> coord_names();

/// True for [a-z0-9_]{1,64}: the name of a custom mask or score modification.
bool is_custom_name(std::string_view name);

/// Why a parameter cannot have this name ("a keyword", ..), or empty if it can.
std::string why_no_param_name(std::string_view name);

/// Every parameter that the custom code of a spec declares, each name once, in the order in which
/// the mask (preorder) and then the score modification declare them.
std::vector<ParamSpec> declared_params(const AttentionSpec& spec);

/// The materialized mask of a tree (there is one at most), or null.
const MaskSpec* materialized(const MaskSpec& mask);

/// Whether a tree has a materialized mask whose numbers are added to the scores.
bool adds_to_scores(const MaskSpec& mask);

}  // namespace attnjit::spec

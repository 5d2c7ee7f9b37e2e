// SPDX-License-Identifier: Apache-2.0
// What the pictures of masks and of score modifications share.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attnjit::cli {

/// Text between tags, or of an attribute.
std::string svg_text(std::string_view text);

/// "4,096"
std::string grouped(std::int64_t number);

/// A length in pixels, to a hundredth.
std::string px(double value);

}  // namespace attnjit::cli

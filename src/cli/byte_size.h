// SPDX-License-Identifier: Apache-2.0
// A size in bytes as people write it.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace attnjit::cli {

/// How a size may be written, for messages.
inline constexpr std::string_view kByteSizes = "a number of bytes, or such as 500M, 5G or 512MiB";

/// The bytes of "1048576", "1024K", "1M" or "1MiB", all of which are as much; "1MB" is a million.
/// Nothing for other text, and for what is too large.
std::optional<std::int64_t> byte_size(std::string_view text);

}  // namespace attnjit::cli

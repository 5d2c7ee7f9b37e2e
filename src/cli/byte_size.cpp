// SPDX-License-Identifier: Apache-2.0
// Reads a size in bytes.
#include "cli/byte_size.h"

#include <charconv>
#include <limits>

namespace attnjit::cli {

std::optional<std::int64_t> byte_size(std::string_view text) {
  std::int64_t bytes = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, bytes);
  if (status != std::errc{} || bytes < 0) return std::nullopt;
  std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (unit.empty() || unit == "B") return bytes;
  constexpr std::string_view kUnits = "KMGTkmgt";
  std::size_t power = kUnits.find(unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  power %= 4;
  unit.remove_prefix(1);
  if (!unit.empty() && unit != "iB" && unit != "B") return std::nullopt;
  const std::int64_t step = unit == "B" ? 1000 : 1024;
  for (std::size_t i = 0; i <= power; ++i) {
    if (bytes > std::numeric_limits<std::int64_t>::max() / step) return std::nullopt;
    bytes *= step;
  }
  return bytes;
}

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// Writes text and numbers as SVG takes them.
#include "cli/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace attnjit::cli {

std::string svg_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string px(double value) { return fmt::format("{:.6g}", std::round(value * 100) / 100); }

}  // namespace attnjit::cli

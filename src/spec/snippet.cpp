// SPDX-License-Identifier: Apache-2.0
// Shows where custom code is wrong.
#include "spec/snippet.h"

#include <algorithm>

namespace attnjit::spec {

std::string caret_excerpt(std::string_view code, int line, int column) {
  constexpr std::size_t kContext = 60;
  for (int i = 1; i < line; ++i) {
    const std::size_t end = code.find('\n');
    if (end == std::string_view::npos) return {};
    code.remove_prefix(end + 1);
  }
  code = code.substr(0, code.find('\n'));
  if (line < 1 || column < 1 || static_cast<std::size_t>(column) > code.size() + 1) return {};

  const auto at = static_cast<std::size_t>(column) - 1;
  const std::size_t begin = at > kContext ? at - kContext : 0;
  std::string shown(code.substr(begin, 2 * kContext));
  // One column a byte: what is not printable would shift the caret, or worse.
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return "    " + shown + "\n    " + std::string(at - begin, ' ') + "^\n";
}

}  // namespace attnjit::spec

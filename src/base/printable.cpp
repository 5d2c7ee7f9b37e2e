// SPDX-License-Identifier: Apache-2.0
// Escapes what a terminal would take for a command.
#include "base/printable.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace attnjit {
namespace {

/// The bytes of the UTF-8 character that `text` begins with; 0: it begins with none.
std::size_t character_bytes(std::string_view text, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  code = first & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kLeast[size] || code > 0x10ffff || surrogate ? 0 : size;
}

bool is_control(std::uint32_t code) {
  if (code == '\n' || code == '\t') return false;
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character_bytes(text, code);
    const std::string_view bytes = text.substr(0, size == 0 ? 1 : size);
    if (size != 0 && !is_control(code)) {
      out += bytes;
    } else {
      for (const char byte : bytes) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(bytes.size());
  }
  return out;
}

}  // namespace attnjit

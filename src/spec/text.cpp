// SPDX-License-Identifier: Apache-2.0
// Small text helpers of the spec room's messages: safe quoting, suggestions, lists.
#include "spec/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace attnjit::spec {
namespace {

constexpr std::string_view kKeywords[] = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return",
    "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
    "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline",
    "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
    "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
    "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "typeof", "union", "unsigned", "using", "virtual", "void", "volatile",
    "wchar_t", "while", "xor", "xor_eq",
    // NOTE: not keywords, but a compiler may define them as macros, which would change the text.
    "NULL", "EOF", "linux", "unix", "i386", "assert", "offsetof", "va_arg", "errno", "INFINITY",
    "NAN"};

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_length) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= max_length) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte > 0x7e) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) { return "\"" + printable(text) + "\""; }

std::string_view closest(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.empty() || name.size() > 40) return {};
  std::string_view best;
  int best_distance = static_cast<int>(std::max<std::size_t>(1, name.size() / 3)) + 1;
  for (const std::string_view candidate : candidates) {
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string join(std::span<const std::string_view> items) {
  return fmt::format("{}", fmt::join(items, ", "));
}

Error combine(std::vector<Error> problems) {
  Error first = std::move(problems.front());
  first.others.assign(std::make_move_iterator(problems.begin() + 1),
                      std::make_move_iterator(problems.end()));
  return first;
}

bool is_identifier(std::string_view text) {
  return !text.empty() && is_name_begin(text.front()) && std::ranges::all_of(text, is_name_part);
}

bool is_reserved_identifier(std::string_view text) {
  if (text.starts_with('_') || text.find("__") != std::string_view::npos) return true;
  return std::find(std::begin(kKeywords), std::end(kKeywords), text) != std::end(kKeywords);
}

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

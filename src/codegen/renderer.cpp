// SPDX-License-Identifier: Apache-2.0
// Fills the placeholders of a template, and refuses names that do not match.
#include "codegen/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace attnjit {
namespace {

constexpr std::string_view kOpen = "/*{";
constexpr std::string_view kClose = "}*/";

bool is_name(std::string_view name) {
  if (name.empty() || name[0] < 'a' || name[0] > 'z') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

int count_lines(std::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

Error at_line(int line, std::string message) {
  Error error = make_error(ErrorCode::kInternal, std::move(message), "template");
  error.line = line;
  error.column = 1;
  return error;
}

}  // namespace

Result<RenderedText> render(std::string_view text, const std::vector<TemplateValue>& values) {
  struct Entry {
    const std::string* text;
    bool used = false;
  };
  std::map<std::string_view, Entry> table;
  for (const TemplateValue& value : values) {
    if (!is_name(value.name)) {
      return make_error(ErrorCode::kInternal,
                        fmt::format("'{}' cannot name a placeholder", value.name), "template");
    }
    if (!table.emplace(value.name, Entry{&value.text}).second) {
      return make_error(ErrorCode::kInternal, fmt::format("two values for '{}'", value.name),
                        "template");
    }
  }

  RenderedText out;
  int out_line = 1;
  const auto append = [&out, &out_line](std::string_view piece) {
    out.text += piece;
    out_line += count_lines(piece);
  };
  std::size_t at = 0;
  for (;;) {
    const std::size_t open = text.find(kOpen, at);
    append(text.substr(at, open == std::string_view::npos ? open : open - at));
    if (open == std::string_view::npos) break;
    const int line = 1 + count_lines(text.substr(0, open));
    const std::size_t name_at = open + kOpen.size();
    const std::size_t close = text.find(kClose, name_at);
    if (close == std::string_view::npos) return at_line(line, "a placeholder has no end");
    const std::string_view name = text.substr(name_at, close - name_at);
    if (!is_name(name)) return at_line(line, "a placeholder's name must match [a-z][a-z0-9_]*");
    const auto found = table.find(name);
    if (found == table.end()) return at_line(line, fmt::format("no value for '{}'", name));
    found->second.used = true;
    out.positions.push_back({std::string(name), out_line});
    append(*found->second.text);
    at = close + kClose.size();
    const bool starts_line = open == 0 || text[open - 1] == '\n';
    const bool ends_line = at < text.size() && text[at] == '\n';
    if (found->second.text->empty() && starts_line && ends_line) ++at;
  }
  for (const auto& [name, entry] : table) {
    if (!entry.used) {
      return make_error(ErrorCode::kInternal,
                        fmt::format("the template has no placeholder for '{}'", name), "template");
    }
  }
  return out;
}

}  // namespace attnjit

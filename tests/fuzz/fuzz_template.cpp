// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the template renderer. The input's first line is the value of `value`, the rest is
// the template.
#include "codegen/renderer.h"
#include "fuzz_check.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {
namespace {

int lines_before(std::string_view text, std::size_t end) {
  int lines = 1;
  for (const char c : text.substr(0, end)) lines += c == '\n' ? 1 : 0;
  return lines;
}

}  // namespace

void fuzz_template(std::string_view input) {
  const std::size_t end = input.find('\n');
  const std::string value(input.substr(0, end));
  const std::string_view text = end == std::string_view::npos ? "" : input.substr(end + 1);
  const Result<RenderedText> rendered = render(text, {{"value", value}});
  if (!rendered) {
    require(rendered.error().code == ErrorCode::kInternal && !rendered.error().message.empty());
    return;
  }
  // Every placeholder of the template was this one, and its value was not scanned again.
  require(!rendered->positions.empty());
  constexpr std::string_view kPlaceholder = "/*{value}*/";
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(kPlaceholder, at)) != std::string_view::npos; ++found) {
    at += kPlaceholder.size();
  }
  require(found == rendered->positions.size());
  if (!value.empty()) {
    require(rendered->text.size() ==
            text.size() + found * value.size() - found * kPlaceholder.size());
  }
  for (const RenderedText::Position& position : rendered->positions) {
    require(position.name == "value" && position.line >= 1);
    require(position.line <= lines_before(rendered->text, rendered->text.size()));
  }
}

}  // namespace attnjit::fuzz

// SPDX-License-Identifier: Apache-2.0
// The strict template renderer: placeholders `/*{name}*/` in, text out.
//
// A placeholder is a C comment, so an editor reads an unrendered template as C++. The text of a
// template is otherwise copied as it is, and values are never scanned again: what a user writes
// cannot become a placeholder. Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"

namespace attnjit {

/// A named text that replaces each `/*{name}*/`.
struct TemplateValue {
  std::string name;  ///< [a-z][a-z0-9_]*
  std::string text;
};

struct RenderedText {
  /// Where a placeholder's value begins.
  struct Position {
    std::string name;
    int line = 0;  ///< 1-based, in the rendered text
  };
  std::string text;
  std::vector<Position> positions;  ///< in the order of the template
};

/// Replaces every placeholder. A placeholder alone on its line takes the line with it where its
/// value is empty. Errors, all kInternal with the template's line: a placeholder without a value, a
/// value without a placeholder, two values of one name, a malformed placeholder.
Result<RenderedText> render(std::string_view text, const std::vector<TemplateValue>& values);

}  // namespace attnjit

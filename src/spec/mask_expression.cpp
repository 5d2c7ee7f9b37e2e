// SPDX-License-Identifier: Apache-2.0
// Writes a mask tree as the text of one expression, and parses it.
#include "spec/mask_expression.h"

#include <fmt/format.h>

#include <string>

#include "spec/kinds.h"
#include "spec/names.h"

namespace attnjit::spec {
namespace {

Error no_expression(std::string what) {
  return make_error(ErrorCode::kUnsupported, std::move(what), "mask");
}

/// A row's text with the numbers of a node.
std::string with_numbers(const MaskSpec& mask) {
  const KindRow<MaskSpec>& row = row_of(mask);
  std::string text(row.expression);
  for (const KindScalar<MaskSpec>& scalar : row.scalars) {
    const std::string name = fmt::format("{{{}}}", scalar.name);
    const std::string value = fmt::format("{}", kernel_value(scalar, scalar.get(mask)));
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at)) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

Result<std::string> text_of(const MaskSpec& mask) {
  const KindRow<MaskSpec>& row = row_of(mask);
  if (row.holds == Holds::kCode) {
    if (mask.custom.trusted) return no_expression("a trusted function body is no expression");
    return mask.custom.code;
  }
  if (row.expression.empty()) {
    return no_expression(fmt::format("a {} mask is no expression", row.name));
  }
  if (row.holds != Holds::kOperands) return with_numbers(mask);
  std::string text;
  for (const MaskSpec& operand : mask.of) {
    Result<std::string> one = text_of(operand);
    if (!one) return one;
    if (!text.empty()) text += fmt::format(" {} ", row.expression);
    text += "(" + *one + ")";
  }
  return text;
}

}  // namespace

Result<Expression> mask_expression(const AttentionSpec& spec) {
  const Result<std::string> text = text_of(spec.mask);
  if (!text) return text.error();
  return parse_expression(*text, SnippetKind::kMask, declared_params(spec));
}

}  // namespace attnjit::spec

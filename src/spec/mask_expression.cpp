// SPDX-License-Identifier: Apache-2.0
// Writes a mask tree as the text of one expression, and parses it.
#include "spec/mask_expression.h"

#include <fmt/format.h>

#include <string>

#include "spec/names.h"

namespace attnjit::spec {
namespace {

Error no_expression(std::string what) {
  return make_error(ErrorCode::kUnsupported, std::move(what), "mask");
}

std::string window_text(std::int64_t left, std::int64_t right) {
  std::string text = right == 0    ? "kv_idx <= q_idx"
                     : right == -1 ? "true"
                                   : fmt::format("kv_idx - q_idx <= {}", right);
  if (left != -1) text += fmt::format(" && q_idx - kv_idx < {}", left);
  return text;
}

Result<std::string> text_of(const MaskSpec& mask) {
  switch (mask.kind) {
    case MaskSpec::Kind::kNull:
      return std::string("true");
    case MaskSpec::Kind::kCausal:
      return std::string("kv_idx <= q_idx");
    case MaskSpec::Kind::kSlidingWindow:
      return window_text(mask.window, mask.window_right);
    case MaskSpec::Kind::kChunked:
      return fmt::format("q_idx >= 0 && q_idx / {0} == kv_idx / {0}", mask.chunk);
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr: {
      std::string text;
      for (const MaskSpec& operand : mask.of) {
        Result<std::string> one = text_of(operand);
        if (!one) return one;
        if (!text.empty()) text += mask.kind == MaskSpec::Kind::kAnd ? " && " : " || ";
        text += "(" + *one + ")";
      }
      return text;
    }
    case MaskSpec::Kind::kMaterialized:
      return no_expression("a materialized mask is no expression");
    case MaskSpec::Kind::kCustom:
      if (mask.custom.trusted) return no_expression("a trusted function body is no expression");
      return mask.custom.code;
  }
  return no_expression("a mask of unknown kind");
}

}  // namespace

Result<Expression> mask_expression(const AttentionSpec& spec) {
  const Result<std::string> text = text_of(spec.mask);
  if (!text) return text.error();
  return parse_expression(*text, SnippetKind::kMask, declared_params(spec));
}

}  // namespace attnjit::spec

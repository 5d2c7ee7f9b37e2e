// SPDX-License-Identifier: Apache-2.0
// Evaluates custom code on the CPU with the parser and the evaluator of the spec room.
#include "verify/custom.h"

#include <string_view>
#include <utility>

namespace attnjit::verify {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// EXPRESSION of a body that is nothing but `return EXPRESSION;`, else empty.
std::string_view returned_expression(std::string_view body) {
  constexpr std::string_view kReturn = "return";
  std::string_view text = trimmed(body);
  if (!text.starts_with(kReturn) || !text.ends_with(';')) return {};
  text = text.substr(kReturn.size(), text.size() - kReturn.size() - 1);
  if (text.empty() || (kSpace.find(text[0]) == std::string_view::npos && text[0] != '(')) return {};
  return text;
}

}  // namespace

spec::ParamView view(const Tensor& tensor) {
  spec::ParamView view;
  if (tensor.shape.empty()) {
    if (tensor.dtype == Dtype::kF32) {
      view.f32 = *tensor.as<float>();
    } else {
      view.i32 = *tensor.as<std::int32_t>();
    }
    return view;
  }
  if (tensor.dtype == Dtype::kF32) {
    view.f32_data = tensor.as<float>();
  } else if (tensor.dtype == Dtype::kBf16) {
    view.bf16_data = tensor.as<std::uint16_t>();
  } else {
    view.i32_data = tensor.as<std::int32_t>();
  }
  const std::size_t rank = tensor.shape.size();
  view.planes = rank == 3 ? tensor.shape[0] : 0;
  view.rows = tensor.shape[rank == 3 ? 1 : 0];
  view.columns = rank > 1 ? tensor.shape[rank - 1] : 0;
  return view;
}

Result<std::shared_ptr<CustomFunction>> CustomFunction::make(const CustomCode& code,
                                                             spec::SnippetKind kind,
                                                             const Problem& problem) {
  const std::string_view text =
      code.trusted ? returned_expression(code.code) : std::string_view(code.code);
  Result<spec::Expression> expression = spec::parse_expression(text, kind, code.params);
  if (!expression) {
    if (!code.trusted) return std::move(expression).error();
    return make_error(ErrorCode::kUnsupported,
                      "a trusted function body has no reference to compare with", code.name,
                      "only a body of one return statement of an expression has");
  }
  std::vector<spec::ParamView> params;
  for (const ParamSpec& param : expression->params) {
    params.push_back(view(problem.at("param_" + param.name)));
  }
  // NOTE: new: the constructor is private, and the object must not move (the evaluator borrows).
  return std::shared_ptr<CustomFunction>(
      new CustomFunction(std::move(*expression), std::move(params)));
}

}  // namespace attnjit::verify

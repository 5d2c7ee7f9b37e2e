// SPDX-License-Identifier: Apache-2.0
// Compiles the mask and the score modification of a spec to the stack code of a launch.
#include "spec/interpreted_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "spec/kinds.h"
#include "spec/names.h"
#include "spec/scalars.h"
#include "spec/spec_facts.h"

namespace attnjit::spec {
namespace {

/// The spec with the numbers of a launch in its mask.
Result<AttentionSpec> with_numbers(const AttentionSpec& spec, std::span<const double> numbers) {
  AttentionSpec result = spec;
  const std::vector<SpecScalar> scalars = spec_scalars(spec);
  std::size_t index = 0;
  std::optional<Error> problem;
  visit_scalars(result, [&](const auto& scalar, auto& node) {
    const std::size_t at = index++;
    if constexpr (std::is_same_v<std::decay_t<decltype(node)>, MaskSpec>) {
      const Result<double> number = launch_number(scalars[at], numbers, at);
      if (number) return scalar.set(node, *number);
      if (!problem) problem = number.error();
    }
  });
  if (problem) return *std::move(problem);
  return result;
}

Error no_expression(std::string what) {
  return make_error(ErrorCode::kUnsupported, std::move(what), "mask");
}

/// A row's text with the numbers of a node.
std::string text_with_numbers(const MaskSpec& mask) {
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
  if (row.holds != Holds::kOperands) return text_with_numbers(mask);
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

bool interprets_mask(const AttentionSpec& spec) {
  return spec.interpreted && contains(spec.mask, MaskSpec::Kind::kCustom);
}

bool interprets_score_mod(const AttentionSpec& spec) {
  return spec.interpreted && spec.score_mod.kind == ScoreModSpec::Kind::kCustom;
}

Result<StackProgram> interpreted_code(const AttentionSpec& spec, std::span<const double> numbers,
                                      std::span<const ParamView> params, std::int32_t batch) {
  std::optional<Expression> mask, score_mod;
  if (interprets_mask(spec)) {
    const Result<AttentionSpec> whole = with_numbers(spec, numbers);
    if (!whole) return whole.error();
    Result<Expression> parsed = mask_expression(*whole);
    if (!parsed) return std::move(parsed).error();
    mask = *std::move(parsed);
  }
  if (interprets_score_mod(spec)) {
    if (spec.score_mod.custom.trusted) {
      return make_error(ErrorCode::kUnsupported, "a trusted function body is no expression",
                        "score_mod");
    }
    Result<Expression> parsed =
        parse_expression(spec.score_mod.custom.code, SnippetKind::kScoreMod, declared_params(spec));
    if (!parsed) return std::move(parsed).error();
    score_mod = *std::move(parsed);
  }
  return compile_stack_code(mask ? &*mask : nullptr, score_mod ? &*score_mod : nullptr, params,
                            spec.ragged ? batch + 1 : 0);
}

std::string why_not_interpreted(const AttentionSpec& spec) {
  if (interprets_score_mod(spec) && adds_to_scores(spec.mask)) {
    return "no kernel interprets a score modification beside a mask that is added to scores";
  }
  // Any number that a launch may give has as much code, but for -1: what has no bound has less.
  std::vector<double> numbers;
  for (const SpecScalar& scalar : spec_scalars(spec)) numbers.push_back(scalar.traits.sample);
  const std::vector<ParamView> params(declared_params(spec).size());
  const Result<StackProgram> code = interpreted_code(spec, numbers, params, 1);
  if (code) return {};
  return fmt::format("no kernel interprets this custom code: {}: {}", code.error().field,
                     code.error().message);
}

}  // namespace attnjit::spec

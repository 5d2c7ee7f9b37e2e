// SPDX-License-Identifier: Apache-2.0
// Lists the names that custom code declares and sees.
#include "spec/names.h"

#include <algorithm>

#include "spec/kinds.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

constexpr std::string_view kCoords[] = {"b",      "h",     "kv_h",   "q_idx",    "q_row",
                                        "kv_idx", "q_len", "kv_len", "total_row"};
constexpr std::size_t kMaxNameLength = 64;

void collect(const CustomCode& custom, std::vector<ParamSpec>& params) {
  for (const ParamSpec& param : custom.params) {
    const bool known = std::any_of(params.begin(), params.end(), [&](const ParamSpec& other) {
      return other.name == param.name;
    });
    if (!known) params.push_back(param);
  }
}

void collect(const MaskSpec& mask, std::vector<ParamSpec>& params) {
  const Holds holds = row_of(mask).holds;
  if (holds == Holds::kCode) collect(mask.custom, params);
  if (holds == Holds::kOperands) {
    for (const MaskSpec& operand : mask.of) collect(operand, params);
  }
}

}  // namespace

std::span<const std::string_view> coord_names() { return kCoords; }

bool is_custom_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

std::string why_no_param_name(std::string_view name) {
  if (name.empty()) return "empty";
  if (name.size() > kMaxNameLength) return "longer than 64 characters";
  if (!is_identifier(name)) return "no identifier";
  if (is_reserved_identifier(name)) return "a name that C++ reserves";
  if (name.starts_with("ATTNJIT_")) return "a name that the templates reserve";
  if (name == "score" || name == "p" ||
      std::find(std::begin(kCoords), std::end(kCoords), name) != std::end(kCoords)) {
    return "a name that custom code already sees";
  }
  return {};
}

std::vector<ParamSpec> declared_params(const AttentionSpec& spec) {
  std::vector<ParamSpec> params;
  collect(spec.mask, params);
  if (row_of(spec.score_mod).holds == Holds::kCode) collect(spec.score_mod.custom, params);
  return params;
}

const MaskSpec* materialized(const MaskSpec& mask) {
  if (mask.kind == MaskSpec::Kind::kMaterialized) return &mask;
  for (const MaskSpec& operand : mask.of) {
    if (const MaskSpec* found = materialized(operand)) return found;
  }
  return nullptr;
}

bool adds_to_scores(const MaskSpec& mask) {
  const MaskSpec* const tensor = materialized(mask);
  return tensor != nullptr && tensor->dtype != Dtype::kU8 && tensor->dtype != Dtype::kBits;
}

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Implements the entry points that read a spec's JSON, and the canonical writer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "attnjit/spec.h"
#include "spec/json_value.h"
#include "spec/spec_fields.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using nlohmann::ordered_json;
using spec::SpecField;

ordered_json custom_members(ordered_json object, const CustomCode& custom) {
  object["name"] = custom.name;
  object["code"] = custom.code;
  if (custom.trusted) object["trusted"] = true;
  if (!custom.params.empty()) {
    ordered_json params = ordered_json::array();
    for (const ParamSpec& param : custom.params) {
      params.push_back({{"name", param.name}, {"type", spec::to_string(param.type)}});
    }
    object["params"] = std::move(params);
  }
  return object;
}

ordered_json with_kind(std::string_view kind) {
  ordered_json object;
  object["kind"] = kind;
  return object;
}

/// A kind that has no member set is written as its name.
ordered_json name_or_object(ordered_json object) {
  return object.size() == 1 ? ordered_json(object["kind"]) : object;
}

ordered_json mask_json(const MaskSpec& mask) {
  ordered_json object = with_kind(spec::mask_kinds()[static_cast<std::size_t>(mask.kind)].name);
  switch (mask.kind) {
    case MaskSpec::Kind::kSlidingWindow:
      if (mask.window != 0) object["window"] = mask.window;
      if (mask.constant) object["constant"] = true;
      break;
    case MaskSpec::Kind::kChunked:
      if (mask.chunk != 0) object["chunk"] = mask.chunk;
      if (mask.constant) object["constant"] = true;
      break;
    case MaskSpec::Kind::kMaterialized:
      if (mask.dtype != Dtype::kF32) object["dtype"] = to_string(mask.dtype);
      break;
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr:
      object["of"] = ordered_json::array();
      for (const MaskSpec& operand : mask.of) object["of"].push_back(mask_json(operand));
      break;
    case MaskSpec::Kind::kCustom:
      return custom_members(std::move(object), mask.custom);
    case MaskSpec::Kind::kNull:
    case MaskSpec::Kind::kCausal:
      break;
  }
  return name_or_object(std::move(object));
}

ordered_json score_mod_json(const ScoreModSpec& mod) {
  ordered_json object = with_kind(spec::score_mod_kinds()[static_cast<std::size_t>(mod.kind)].name);
  if (mod.kind == ScoreModSpec::Kind::kCustom) {
    return custom_members(std::move(object), mod.custom);
  }
  if (mod.kind == ScoreModSpec::Kind::kSoftcap) {
    if (mod.cap != 0) object["cap"] = mod.cap;
    if (mod.constant) object["constant"] = true;
  }
  return name_or_object(std::move(object));
}

/// Writes one field, or nothing where it has its default.
struct FieldWriter {
  const SpecField& field;
  const AttentionSpec& attention;
  const PlanOptions& options;
  ordered_json& object;

  static const AttentionSpec& defaults() {
    static const AttentionSpec value;
    return value;
  }
  void put(ordered_json value) const { object[std::string(field.name)] = std::move(value); }

  template <class Member>
  bool is_default(Member member) const {
    return !field.required && attention.*member == defaults().*member;
  }

  void operator()(int AttentionSpec::*member) const {
    if (!is_default(member)) put(attention.*member);
  }
  void operator()(bool AttentionSpec::*member) const {
    if (!is_default(member)) put(attention.*member);
  }
  void operator()(Arch AttentionSpec::*member) const {
    if (!is_default(member)) put(to_string(attention.*member));
  }
  void operator()(Mla AttentionSpec::*member) const {
    if (!is_default(member)) put(spec::to_string(attention.*member));
  }
  void operator()(Dtype AttentionSpec::*member) const {
    if (!is_default(member)) put(to_string(attention.*member));
  }
  void operator()(std::optional<Dtype> AttentionSpec::*member) const {
    if (attention.*member) put(to_string(*(attention.*member)));
  }
  void operator()(MaskSpec AttentionSpec::*member) const {
    if ((attention.*member).kind != MaskSpec::Kind::kNull) put(mask_json(attention.*member));
  }
  void operator()(ScoreModSpec AttentionSpec::*member) const {
    if ((attention.*member).kind != ScoreModSpec::Kind::kIdentity) {
      put(score_mod_json(attention.*member));
    }
  }
  void operator()(std::optional<int> PlanOptions::*member) const {
    if (options.*member) put(*(options.*member));
  }
  void operator()(std::optional<bool> PlanOptions::*member) const {
    if (options.*member) put(*(options.*member));
  }
};

}  // namespace

Result<SpecDocument> spec_from_json(std::string_view json) {
  Result<spec::JsonValue> root = spec::parse_json(json);
  if (!root) return std::move(root).error();
  return spec::read_spec(*root);
}

std::string spec_to_json(const AttentionSpec& attention, const PlanOptions& options) {
  ordered_json object = ordered_json::object();
  for (const SpecField& field : spec::spec_fields()) {
    std::visit(FieldWriter{field, attention, options, object}, field.member);
  }
  // NOTE: `replace`, because a spec made in C++ may hold bytes that are not UTF-8, and dump would
  // throw.
  return object.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Implements the entry points that read a spec's JSON, and the canonical writer.

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "attnjit/spec.h"
#include "spec/kinds.h"
#include "spec/resolved_spec.h"
#include "spec/spec_fields.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using nlohmann::ordered_json;
using spec::Holds;
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

/// A kind that has no member set is written as its name.
ordered_json name_or_object(ordered_json object) {
  return object.size() == 1 ? ordered_json(object["kind"]) : object;
}

/// A number: an integer is written as one.
ordered_json number(double value, bool is_integer) {
  if (is_integer) return static_cast<std::int64_t>(value);
  return value;
}

/// A mask or a score modification.
template <class Node>
ordered_json node_json(const Node& node) {
  const spec::KindRow<Node>& row = spec::row_of(node);
  ordered_json object;
  object["kind"] = row.name;
  for (const spec::KindScalar<Node>& scalar : row.scalars) {
    const double value = scalar.get(node);
    if (value != 0) object[std::string(scalar.name)] = number(value, scalar.is_integer());
  }
  if (!row.scalars.empty() && node.constant) object["constant"] = true;
  if (row.holds == Holds::kCode) return custom_members(std::move(object), node.custom);
  if constexpr (std::is_same_v<Node, ScoreModSpec>) {
    if (row.holds == Holds::kSlopes && node.slopes) object["slopes"] = true;
  }
  if constexpr (std::is_same_v<Node, MaskSpec>) {
    if (row.holds == Holds::kDtype && node.dtype != Dtype::kF32) {
      object["dtype"] = to_string(node.dtype);
    }
    if (row.holds == Holds::kOperands) {
      object["of"] = ordered_json::array();
      for (const MaskSpec& operand : node.of) object["of"].push_back(node_json(operand));
    }
  }
  return name_or_object(std::move(object));
}

/// A field's value; null where an optional one is unset.
struct ValueJson {
  ordered_json operator()(int value) const { return value; }
  ordered_json operator()(bool value) const { return value; }
  ordered_json operator()(Arch value) const { return to_string(value); }
  ordered_json operator()(Dtype value) const { return to_string(value); }
  template <spec::NamedEnum Enum>
  ordered_json operator()(Enum value) const {
    return spec::to_string(value);
  }
  template <class T>
  ordered_json operator()(const std::optional<T>& value) const {
    return value ? (*this)(*value) : ordered_json();
  }
  template <spec::Masking Node>
  ordered_json operator()(const Node& node) const {
    return node_json(node);
  }
};

}  // namespace

Result<SpecDocument> spec_from_json(std::string_view json) {
  Result<ResolvedSpec> resolved = ResolvedSpec::from_json(json);
  if (!resolved) return std::move(resolved).error();
  if (resolved->state().arch_from == spec::ArchFrom::kNative) {
    return make_error(ErrorCode::kInvalid, "is native, which a plain spec cannot hold", "arch",
                      "leave it out and set AttentionSpec::arch, or give the text to "
                      "Service::prepare, which looks at the GPU at hand");
  }
  return SpecDocument{resolved->given(), resolved->options()};
}

std::string spec_to_json(const AttentionSpec& attention, const PlanOptions& options) {
  static const SpecDocument kDefaults;
  const struct {
    const AttentionSpec& spec;
    const PlanOptions& options;
  } given{attention, options};
  ordered_json object = ordered_json::object();
  for (const SpecField& field : spec::spec_fields()) {
    ordered_json value = spec::visit_field(field, given, ValueJson{});
    // NOTE: specs that say the same have one canonical form. JSON without an arch is for the GPU at
    // hand, and so each has one.
    const bool by_default =
        value == spec::visit_field(field, kDefaults, ValueJson{}) ||
        (field.name == "num_partitions" && value == spec::default_partitions(attention));
    if (field.required || field.name == "arch" || !by_default) {
      object[std::string(field.name)] = std::move(value);
    }
  }
  // NOTE: `replace`, because a spec made in C++ may hold bytes that are not UTF-8, and dump would
  // throw.
  return object.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

std::string spec::field_text(const SpecField& field, const AttentionSpec& attention) {
  const ordered_json value = visit_field(field, SpecDocument{attention, {}}, ValueJson{});
  return (value.is_object() ? value["kind"] : value).dump();
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Implements the entry points that read a spec's JSON, and the canonical writer.
#include <fmt/format.h>

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
    // NOTE: specs that say the same have one canonical form.
    const bool by_default = member == &AttentionSpec::num_partitions &&
                            attention.num_partitions == spec::default_partitions(attention);
    if (!by_default && !is_default(member)) put(attention.*member);
  }
  void operator()(bool AttentionSpec::*member) const {
    if (!is_default(member)) put(attention.*member);
  }
  // NOTE: always: JSON without one is for the GPU at hand.
  void operator()(Arch AttentionSpec::*member) const { put(to_string(attention.*member)); }
  template <spec::NamedEnum Enum>
  void operator()(Enum AttentionSpec::*member) const {
    if (!is_default(member)) put(spec::to_string(attention.*member));
  }
  void operator()(Dtype AttentionSpec::*member) const {
    if (!is_default(member)) put(to_string(attention.*member));
  }
  void operator()(std::optional<Dtype> AttentionSpec::*member) const {
    if (attention.*member) put(to_string(*(attention.*member)));
  }
  void operator()(MaskSpec AttentionSpec::*member) const {
    if ((attention.*member).kind != MaskSpec::Kind::kNull) put(node_json(attention.*member));
  }
  void operator()(ScoreModSpec AttentionSpec::*member) const {
    if ((attention.*member).kind != ScoreModSpec::Kind::kIdentity) {
      put(node_json(attention.*member));
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
  ordered_json object = ordered_json::object();
  for (const SpecField& field : spec::spec_fields()) {
    std::visit(FieldWriter{field, attention, options, object}, field.member);
  }
  // NOTE: `replace`, because a spec made in C++ may hold bytes that are not UTF-8, and dump would
  // throw.
  return object.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

}  // namespace attnjit

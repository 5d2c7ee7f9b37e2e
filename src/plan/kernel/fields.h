// SPDX-License-Identifier: Apache-2.0
// Field: a row of a plan's table of fields, from which come its JSON and its kernel's constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

using FieldValue = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>>;

template <class Plan>
struct Field {
  const char* name;      ///< in JSON; null: it is not shown
  const char* constant;  ///< the member of struct Config; null: the kernel does not need it
  FieldValue (*value)(const Plan&);
};

/// What a member holds, or what a function without arguments gives.
template <auto kMember, class Plan>
FieldValue value_of(const Plan& plan) {
  return std::invoke(kMember, plan);
}
/// The same of the spec that a plan is of.
template <auto kMember, class Plan>
FieldValue fact_of(const Plan& plan) {
  return std::invoke(kMember, *plan.spec);
}

/// A row of a member that JSON shows under its own name, and one of a constant alone.
#define ATTNJIT_FIELD(Plan, member, constant) \
  attnjit::Field<Plan> { #member, constant, &attnjit::value_of < &Plan::member, Plan> }
#define ATTNJIT_CONSTANT(Plan, member, constant) \
  attnjit::Field<Plan> { nullptr, constant, &attnjit::value_of<&Plan::member, Plan> }

/// Shows the fields of a table that have names.
template <class Plan, std::size_t kSize>
void add_fields(const Field<Plan> (&fields)[kSize], const Plan& plan,
                nlohmann::ordered_json& json) {
  for (const Field<Plan>& field : fields) {
    if (field.name == nullptr) continue;
    std::visit([&](const auto& value) { json[field.name] = value; }, field.value(plan));
  }
}

/// A member of a type under its own name, for add_members().
#define ATTNJIT_MEMBER(Type, name) \
  std::pair { #name, &Type::name }

/// Shows members of `from`: numbers, constants, and what functions without arguments give; and
/// other values under the names that they are given with.
template <class From, class... Members>
void add_members(const From& from, nlohmann::ordered_json& json,
                 const std::pair<const char*, Members>&... members) {
  const auto value_of = [&](auto member) {
    if constexpr (std::is_invocable_v<decltype(member), const From&>) {
      return std::invoke(member, from);
    } else if constexpr (std::is_pointer_v<decltype(member)>) {
      return *member;
    } else {
      return member;
    }
  };
  ((json[members.first] = value_of(members.second)), ...);
}

inline nlohmann::ordered_json ranges_json(const std::vector<MemoryRange>& ranges) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const MemoryRange& range : ranges) {
    json.push_back({{"name", range.name}, {"begin", range.begin}, {"size", range.size}});
  }
  return json;
}

inline nlohmann::ordered_json barriers_json(const std::vector<BarrierPlan>& barriers) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BarrierPlan& barrier : barriers) {
    json.push_back({{"name", barrier.name}, {"arrivals", barrier.arrivals}});
  }
  return json;
}

}  // namespace attnjit

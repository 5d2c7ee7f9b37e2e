// SPDX-License-Identifier: Apache-2.0
// Field: a row of a plan's table of fields, from which come its JSON and its kernel's constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

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

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Deviations: where a finished plan is not as a reference configuration has it.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "attnjit/plan.h"
#include "plan/kernel/fields.h"

namespace attnjit {

/// Adds a deviation where the two values differ.
template <class T>
void deviate(std::vector<Deviation>& deviations, const std::string& name, const T& reference,
             const T& actual, const std::string& reason) {
  if (reference == actual) return;
  deviations.push_back({name, fmt::format("{}", reference), fmt::format("{}", actual), reason});
}

/// A field that a reference and a plan both have, for compare().
#define ATTNJIT_BOTH(Reference, Plan, name) \
  std::tuple { #name, &Reference::name, &Plan::name }

/// Adds those of some fields that differ, for one reason. Of each: its name, and what the reference
/// and the plan have: a member, a function without arguments, or a number. `prefix`: of names.
template <class Reference, class Plan, class... Fields>
void compare(const Reference& reference, const Plan& plan, const std::string& prefix,
             const std::string& reason, std::vector<Deviation>& deviations,
             const Fields&... fields) {
  const auto value_of = [](const auto& of, auto field) -> FieldValue {
    if constexpr (std::is_invocable_v<decltype(field), decltype(of)>) {
      return std::invoke(field, of);
    } else {
      return std::int64_t{field};
    }
  };
  const auto add = [&](const auto& field) {
    std::visit(
        [&]<class T>(const T& value) {
          deviate(deviations, prefix + std::get<0>(field), value,
                  std::get<T>(value_of(plan, std::get<2>(field))), reason);
        },
        value_of(reference, std::get<1>(field)));
  };
  (add(fields), ...);
}

}  // namespace attnjit

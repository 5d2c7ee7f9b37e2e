// SPDX-License-Identifier: Apache-2.0
// What the JSON of a plan is made of: members under their own names, ranges of memory, barriers.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attnjit/plan.h"

/// A member of a type under its own name, for add_members().
#define ATTNJIT_MEMBER(Type, name) \
  std::pair { #name, &Type::name }

namespace attnjit {

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

inline nlohmann::ordered_json range_json(std::string_view name, std::int64_t begin,
                                         std::int64_t size) {
  return {{"name", std::string(name)}, {"begin", begin}, {"size", size}};
}

inline nlohmann::ordered_json barriers_json(const std::vector<BarrierPlan>& barriers) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BarrierPlan& barrier : barriers) {
    json.push_back({{"name", barrier.name}, {"arrivals", barrier.arrivals}});
  }
  return json;
}

}  // namespace attnjit

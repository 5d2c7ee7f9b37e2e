// SPDX-License-Identifier: Apache-2.0
// What the JSON of a plan is made of: tables of fields, ranges of memory, barriers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

/// A field of a plan, by its name in JSON.
template <class Plan>
struct Field {
  const char* name;
  std::variant<int Plan::*, std::int64_t Plan::*, bool Plan::*, double Plan::*,
               std::vector<std::int64_t> Plan::*>
      member;
};

template <class Plan, std::size_t kSize>
void add_fields(const Field<Plan> (&fields)[kSize], const Plan& plan,
                nlohmann::ordered_json& json) {
  for (const Field<Plan>& field : fields) {
    std::visit([&](auto member) { json[field.name] = plan.*member; }, field.member);
  }
}

inline nlohmann::ordered_json range_json(std::string_view name, std::int64_t begin,
                                         std::int64_t size) {
  return {{"name", std::string(name)}, {"begin", begin}, {"size", size}};
}

template <class Barrier>
nlohmann::ordered_json barriers_json(const std::vector<Barrier>& barriers) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Barrier& barrier : barriers) {
    json.push_back({{"name", barrier.name}, {"arrivals", barrier.arrivals}});
  }
  return json;
}

}  // namespace attnjit

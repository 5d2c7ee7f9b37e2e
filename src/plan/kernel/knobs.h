// SPDX-License-Identifier: Apache-2.0
// The choices of a plan that a tuning row may make, each with the member that it sets.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/tuning.h"
#include "spec/text.h"

namespace attnjit {

/// NOTE: `attnjit tune` tries the values that stand here and no others.
template <class Plan>
struct Knob {
  std::string_view name;
  std::variant<int Plan::*, bool Plan::*> member;
  std::vector<std::int64_t> values;
  std::string_view old_name = {};  ///< which tables may still call it by

  bool is_called(std::string_view by) const {
    return by == name || (by == old_name && !by.empty());
  }
  void set(std::int64_t value, Plan& plan) const {
    std::visit([&](auto one) { plan.*one = static_cast<std::decay_t<decltype(plan.*one)>>(value); },
               member);
  }
  std::int64_t chosen(const Plan& plan) const {
    return std::visit([&](auto one) { return std::int64_t{plan.*one}; }, member);
  }
};

/// Values that are the same for every plan.
template <std::int64_t... kValues, class Plan>
std::vector<std::int64_t> tries(const Plan& /*plan*/) {
  return {kValues...};
}

/// Applies a tuned choice. Errors: kInvalid, at tuning.NAME, for a name or value that `knobs`
/// does not hold; `kernel` says in the message whose knobs they are.
template <class Plan>
Status apply_knobs(const std::vector<Knob<Plan>>& knobs, std::string_view kernel,
                   const TuningValues& tuned, Plan& plan) {
  for (const TuningValues::value_type& choice : tuned) {
    const auto& [name, value] = choice;
    const auto knob = std::ranges::find_if(
        knobs, [&](const Knob<Plan>& one) { return one.is_called(choice.first); });
    if (knob == knobs.end()) {
      std::vector<std::string_view> names(knobs.size());
      std::ranges::transform(knobs, names.begin(), &Knob<Plan>::name);
      return spec::invalid("tuning." + name, "'{}' is no choice of {}: {}", name, kernel,
                           fmt::join(names, ", "));
    }
    if (std::ranges::find(knob->values, value) == knob->values.end()) {
      return spec::invalid("tuning." + name, "{} = {} in a tuning table: {} takes {}", name, value,
                           kernel, fmt::join(knob->values, ", "));
    }
    knob->set(value, plan);
  }
  return {};
}

/// The knobs with what `plan` has chosen.
template <class Plan>
std::vector<TuningKnob> chosen_knobs(const std::vector<Knob<Plan>>& knobs, const Plan& plan) {
  std::vector<TuningKnob> found(knobs.size());
  std::ranges::transform(knobs, found.begin(), [&](const Knob<Plan>& knob) {
    return TuningKnob{std::string(knob.name), knob.values, knob.chosen(plan)};
  });
  return found;
}

}  // namespace attnjit

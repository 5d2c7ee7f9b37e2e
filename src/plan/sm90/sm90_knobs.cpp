// SPDX-License-Identifier: Apache-2.0
// Applies tuned choices to sm_90a plans, and lists them.
#include "plan/sm90/sm90_knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

namespace attnjit {

Status sm90_apply(const std::vector<Sm90Knob>& knobs, std::string_view kernel,
                  const TuningValues& tuned, Sm90Plan& plan) {
  for (const auto& [name, value] : tuned) {
    const Sm90Knob* knob = nullptr;
    std::vector<std::string_view> names;
    for (const Sm90Knob& one : knobs) {
      if (one.name == name) knob = &one;
      names.push_back(one.name);
    }
    if (knob == nullptr) {
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("'{}' is no choice of {}: {}", name, kernel, fmt::join(names, ", ")), name);
    }
    if (std::find(knob->values.begin(), knob->values.end(), value) == knob->values.end()) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("{} = {} in a tuning table: {} takes {}", name, value, kernel,
                                    fmt::join(knob->values, ", ")),
                        name);
    }
    if (const auto* number = std::get_if<int Sm90Plan::*>(&knob->member)) {
      plan.** number = static_cast<int>(value);
    } else {
      plan.*std::get<bool Sm90Plan::*>(knob->member) = value != 0;
    }
  }
  return {};
}

bool sm90_chooses(const std::vector<Sm90Knob>& knobs, const TuningValues& tuned,
                  int Sm90Plan::*member) {
  return std::any_of(knobs.begin(), knobs.end(), [&](const Sm90Knob& knob) {
    const auto* number = std::get_if<int Sm90Plan::*>(&knob.member);
    return number != nullptr && *number == member && tuned.contains(std::string(knob.name));
  });
}

std::vector<TuningKnob> sm90_chosen(const std::vector<Sm90Knob>& knobs, const Sm90Plan& plan) {
  std::vector<TuningKnob> found;
  for (const Sm90Knob& knob : knobs) {
    const auto* number = std::get_if<int Sm90Plan::*>(&knob.member);
    const std::int64_t chosen = number != nullptr
                                    ? plan.**number
                                    : std::int64_t{plan.*std::get<bool Sm90Plan::*>(knob.member)};
    found.push_back({std::string(knob.name), knob.values, chosen});
  }
  return found;
}

}  // namespace attnjit

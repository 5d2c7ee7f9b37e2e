// SPDX-License-Identifier: Apache-2.0
// Reads a tuning row by the table of choices, and shows what a plan chose.
#include "plan/sm100/sm100_plan.h"
#include "spec/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attnjit {
namespace {

bool applies(const Sm100Knob& knob, bool one_tile) { return knob.any_kernel || !one_tile; }

}  // namespace

Sm100Knob::Values polynomial_shares(const Sm100Plan& plan) {
  Sm100Knob::Values shares;
  for (std::int64_t eighths = 0; eighths <= 4; ++eighths) {
    const std::int64_t pairs = plan.exp2_pairs * eighths / 8;
    if (shares.empty() || shares.back() != pairs) shares.push_back(pairs);
  }
  return shares;
}

std::int64_t registers_of(const Sm100Plan& plan, std::optional<Sm100Role::Id> id) {
  for (const Sm100Role& role : plan.roles) {
    if (!id || role.id == *id) return role.registers;
  }
  return 0;
}

Result<Sm100Tuning> Sm100Tuning::read(const TuningValues* values, bool one_tile) {
  Sm100Tuning tuning;
  if (values == nullptr) return tuning;
  for (const TuningValues::value_type& choice : *values) {
    const std::string& name = choice.first;
    const auto* knob = std::ranges::find(kSm100Knobs, name, &Sm100Knob::name);
    if (knob == std::end(kSm100Knobs) || !applies(*knob, one_tile)) {
      std::set<std::string_view> names;
      for (const Sm100Knob& one : kSm100Knobs) {
        if (applies(one, one_tile)) names.insert(one.name);
      }
      return spec::invalid("tuning." + name, "is no choice of this kernel; allowed: {}",
                           fmt::join(names, ", "));
    }
    tuning.*(knob->choice) = choice.second;
  }
  return tuning;
}

Status Sm100Tuning::take(Choice Sm100Tuning::*choice, std::int64_t least, std::int64_t most,
                         std::int64_t step, std::int64_t& target) const {
  const Choice value = this->*choice;
  if (!value) return {};
  if (*value < least || *value > most || (*value - least) % step != 0) {
    return bad_choice(choice, "is {}; allowed: {} to {}{}", *value, least, most,
                      step > 1 ? fmt::format(" in steps of {}", step) : "");
  }
  target = *value;
  return {};
}

Error bad_choice_of(Sm100Tuning::Choice Sm100Tuning::*choice, std::string message) {
  const auto* knob = std::ranges::find(kSm100Knobs, choice, &Sm100Knob::choice);
  return make_error(ErrorCode::kInvalid, std::move(message), fmt::format("tuning.{}", knob->name));
}

std::vector<TuningKnob> sm100_knobs(const Sm100Plan& plan) {
  std::vector<TuningKnob> knobs;
  for (const Sm100Knob& knob : kSm100Knobs) {
    if (!applies(knob, plan.softmax_warpgroups == 1)) continue;
    knobs.push_back({std::string(knob.name),
                     knob.to_try == nullptr ? Sm100Knob::Values() : knob.to_try(plan),
                     knob.chosen(plan)});
  }
  return knobs;
}

}  // namespace attnjit

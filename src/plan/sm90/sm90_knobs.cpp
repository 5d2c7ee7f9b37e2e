// SPDX-License-Identifier: Apache-2.0
// Applies tuned choices to sm_90a plans, and lists them.
#include "plan/sm90/sm90_knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plan/map/map_plan.h"

namespace attnjit {

std::vector<Sm90Knob> sm90_forward_knobs(const Sm90Plan& plan) {
  const bool transposes = plan.num_row_stages > 0 && !plan.widens_kv;  // e4m3
  // A lane of the four warps that copy finds a row.
  std::vector<std::int64_t> keys{64, 80, 96, 112, 128};
  if (!plan.row_copies) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (transposes) keys = {64, 96, 128, 160, 192, 224};
  // A lane widens a key.
  if (plan.widens_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.mapped) std::erase_if(keys, [](std::int64_t one) { return kMapBlock % one != 0; });
  std::vector<Sm90Knob> all{
      {"BN", &Sm90Plan::BN, std::move(keys)},
      {"num_stages", &Sm90Plan::num_stages, {2, 3, 4, 5, kSm90MaxStages}},
      {"num_q_stages", &Sm90Plan::num_q_stages, {1, 2}},
  };
  if (plan.num_consumers > 1) {
    if (!plan.mapped && !plan.widens_kv) {
      all.push_back({"num_consumers", &Sm90Plan::num_consumers, {2, 3}});
    }
    all.push_back({"ping_pong", &Sm90Plan::ping_pong, {0, 1}});
  }
  if (plan.num_row_stages > 0) {
    all.push_back({"num_row_stages", &Sm90Plan::num_row_stages, {1, 2, 3, kSm90MaxRowStages}});
  }
  if (transposes) {
    all.push_back({"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs, {0, 1, 2, 3, 4}});
  }
  all.push_back({"pair_tiles", &Sm90Plan::pair_tiles, {0, 1}});
  if (plan.claims_work) all.push_back({"claims_work", &Sm90Plan::claims_work, {0, 1}});
  return all;
}

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

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return sm90_chosen(sm90_forward_knobs(plan), plan);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The table of choices, and what is read from it.
#include "plan/sm100/sm100_knobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

using Values = std::vector<std::int64_t>;

struct Row {
  const char* name;
  Sm100Tuning::Choice Sm100Tuning::*choice;
  bool any_kernel;  ///< also the kernel of Depth512Config has it
  Values (*to_try)(
      const Sm100Plan&);  ///< null: a row may choose it, `attnjit tune` does not try it
  std::int64_t (*chosen)(const Sm100Plan&);
};

// An eighth of a row's exponentials at a time, to a half.
Values polynomial_shares(const Sm100Plan& plan) {
  Values shares;
  for (std::int64_t eighths = 0; eighths <= 4; ++eighths) {
    const std::int64_t pairs = plan.exp2_pairs * eighths / 8;
    if (shares.empty() || shares.back() != pairs) shares.push_back(pairs);
  }
  return shares;
}

const Sm100Variant& body(const Sm100Plan& plan) { return plan.variants.front(); }

// NOTE: `attnjit tune` tries what stands here and nothing else, in this order.
const Row kRows[] = {
    {"BN", &Sm100Tuning::BN, false,
     [](const Sm100Plan&) {
       return Values{64, 96, 128, 160};
     },
     [](const Sm100Plan& plan) { return body(plan).BN; }},
    {"use_fused_kv", &Sm100Tuning::use_fused_kv, false,
     [](const Sm100Plan&) {
       return Values{0, 1};
     },
     [](const Sm100Plan& plan) { return std::int64_t{body(plan).use_fused_kv}; }},
    {"num_kv_stages", &Sm100Tuning::num_kv_stages, true,
     [](const Sm100Plan&) { return Values{2, 3, 4, 5, 6, 8, 10, 12}; },
     [](const Sm100Plan& plan) { return body(plan).num_kv_stages; }},
    {"exp2_fma_pairs", &Sm100Tuning::exp2_fma_pairs, true, &polynomial_shares,
     [](const Sm100Plan& plan) { return plan.exp2_fma_pairs; }},
    {"num_qk_stages", &Sm100Tuning::num_qk_stages, false, nullptr, nullptr},
    {"softmax_registers", &Sm100Tuning::softmax_registers, true, nullptr, nullptr},
    {"correction_registers", &Sm100Tuning::correction_registers, true, nullptr, nullptr},
    {"other_registers", &Sm100Tuning::other_registers, true, nullptr, nullptr},
};

bool applies(const Row& row, ConfigKind kind) {
  return row.any_kernel || kind != ConfigKind::kDepth512;
}

}  // namespace

Result<Sm100Tuning> Sm100Tuning::read(const TuningValues* values, ConfigKind kind) {
  Sm100Tuning tuning;
  if (values == nullptr) return tuning;
  for (const auto& [name, value] : *values) {
    const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& one) { return one.name == name; });
    if (row == std::end(kRows) || !applies(*row, kind)) {
      std::set<std::string> names;
      for (const Row& one : kRows) {
        if (applies(one, kind)) names.insert(one.name);
      }
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("is no choice of this kernel; allowed: {}", fmt::join(names, ", ")),
          "tuning." + name);
    }
    tuning.*(row->choice) = value;
  }
  return tuning;
}

Status Sm100Tuning::take(Choice Sm100Tuning::*choice, std::int64_t least, std::int64_t most,
                         std::int64_t step, std::int64_t& target) const {
  const Choice value = this->*choice;
  if (!value) return {};
  if (*value < least || *value > most || (*value - least) % step != 0) {
    return bad_choice(choice, fmt::format("is {}; allowed: {} to {}{}", *value, least, most,
                                          step > 1 ? fmt::format(" in steps of {}", step) : ""));
  }
  target = *value;
  return {};
}

Error bad_choice(Sm100Tuning::Choice Sm100Tuning::*choice, std::string message) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& one) { return one.choice == choice; });
  return make_error(ErrorCode::kInvalid, std::move(message), fmt::format("tuning.{}", row->name));
}

std::vector<TuningKnob> sm100_knobs(const Sm100Plan& plan) {
  std::vector<TuningKnob> knobs;
  for (const Row& row : kRows) {
    if (row.to_try == nullptr || !applies(row, plan.reference)) continue;
    knobs.push_back({row.name, row.to_try(plan), row.chosen(plan)});
  }
  return knobs;
}

}  // namespace attnjit

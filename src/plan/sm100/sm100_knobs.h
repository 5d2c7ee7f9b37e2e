// SPDX-License-Identifier: Apache-2.0
// The choices that a tuning row can make for an sm_100 kernel, as one table.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/tuning.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {

/// A row's choices by name; what it leaves open is unset.
struct Sm100Tuning {
  using Choice = std::optional<std::int64_t>;
  Choice BN;  // NOLINT(readability-identifier-naming): the reference's name
  Choice use_fused_kv;
  Choice num_kv_stages;
  Choice num_qk_stages;
  Choice pv_first_quarters;
  Choice num_pv_stages;
  Choice exp2_fma_pairs;
  Choice persistent;
  Choice pair_cta;
  Choice num_qo;
  Choice softmax_registers;
  Choice correction_registers;
  Choice other_registers;

  /// Errors: kInvalid for a name that the kernel has no choice of. `one_tile`: the kernel with one
  /// O, whose tile and kind of ring are fixed.
  static Result<Sm100Tuning> read(const TuningValues* values, bool one_tile);

  /// Takes a choice within bounds and on a grid into `target`; nothing where it is unset. Errors:
  /// kInvalid.
  Status take(Choice Sm100Tuning::*choice, std::int64_t least, std::int64_t most, std::int64_t step,
              std::int64_t& target) const;
};

/// An error of a choice: kInvalid, under its name.
Error bad_choice_of(Sm100Tuning::Choice Sm100Tuning::*choice, std::string message);
template <class... Args>
Error bad_choice(Sm100Tuning::Choice Sm100Tuning::*choice, fmt::format_string<Args...> message,
                 Args&&... args) {
  return bad_choice_of(choice, fmt::format(message, std::forward<Args>(args)...));
}

struct Sm100Knob {
  using Values = std::vector<std::int64_t>;
  std::string_view name;
  Sm100Tuning::Choice Sm100Tuning::*choice;
  bool any_kernel;  ///< also the kernel with one O has it
  std::int64_t (*chosen)(const Sm100Plan&);
  Values (*to_try)(const Sm100Plan&);  ///< null: a row may choose it, `attnjit tune` does not
  /// Where the plan has it, with nothing that follows from it: its place, and the most that a row
  /// may choose.
  std::int64_t Sm100Plan::*place = nullptr;
  std::int64_t (*most)(const Sm100Plan&) = nullptr;
};

/// An eighth of a row's exponentials at a time, to a half.
Sm100Knob::Values polynomial_shares(const Sm100Plan& plan);
/// The registers per thread of the first role that is `id`, or whatever the first role is.
std::int64_t registers_of(const Sm100Plan& plan, std::optional<Sm100Role::Id> id);

/// The same for every plan.
template <std::int64_t... kValues>
Sm100Knob::Values tries(const Sm100Plan& /*plan*/) {
  return {kValues...};
}
/// What the first body has.
template <auto kMember>
std::int64_t body_value(const Sm100Plan& plan) {
  return std::int64_t{std::invoke(kMember, plan.variants.front())};
}
template <auto kMember>
std::int64_t plan_value(const Sm100Plan& plan) {
  return std::int64_t{plan.*kMember};
}

// NOTE: `attnjit tune` tries what stands here and nothing else, in this order.
inline constexpr Sm100Knob kSm100Knobs[] = {
    {"BN", &Sm100Tuning::BN, false, &body_value<&Sm100Variant::BN>, &tries<64, 96, 128, 160>},
    {"use_fused_kv", &Sm100Tuning::use_fused_kv, false, &body_value<&Sm100Variant::use_fused_kv>,
     &tries<0, 1>},
    {"num_kv_stages", &Sm100Tuning::num_kv_stages, true, &body_value<&Sm100Variant::num_kv_stages>,
     &tries<2, 3, 4, 5, 6, 8, 10, 12>},
    {"exp2_fma_pairs", &Sm100Tuning::exp2_fma_pairs, true, &plan_value<&Sm100Plan::exp2_fma_pairs>,
     &polynomial_shares, &Sm100Plan::exp2_fma_pairs, &plan_value<&Sm100Plan::exp2_pairs>},
    {"persistent", &Sm100Tuning::persistent, true, &plan_value<&Sm100Plan::persistent>,
     [](const Sm100Plan& plan) {
       // In pairs no tile is stolen, but where a row may choose pairs it may choose none.
       const bool steals_tiles = plan.can_steal_tiles || (plan.can_persist && plan.can_pair);
       return steals_tiles       ? Sm100Knob::Values{0, 1, 2}
              : plan.can_persist ? Sm100Knob::Values{0, 1}
                                 : Sm100Knob::Values{};
     },
     &Sm100Plan::persistent,
     [](const Sm100Plan& plan) -> std::int64_t {
       return plan.can_steal_tiles ? 2 : plan.can_persist ? 1 : 0;
     }},
    {"pair_cta", &Sm100Tuning::pair_cta, true,
     [](const Sm100Plan& plan) { return std::int64_t{plan.cluster > 1}; },
     [](const Sm100Plan& plan) {
       return plan.can_pair ? Sm100Knob::Values{0, 1} : Sm100Knob::Values{};
     }},
    {"num_qo", &Sm100Tuning::num_qo, false, &body_value<&Sm100Variant::num_qo>,
     [](const Sm100Plan& plan) {
       return plan.can_choose_num_qo ? Sm100Knob::Values{1, 2} : Sm100Knob::Values{};
     }},
    {"pv_first_quarters", &Sm100Tuning::pv_first_quarters, true,
     &plan_value<&Sm100Plan::pv_first_quarters>,
     // By the clock one and two quarters gain nowhere (docs/performance-sm100.md).
     &tries<3, 4>},
    {"num_pv_stages", &Sm100Tuning::num_pv_stages, true, &body_value<&Sm100Variant::num_pv_stages>,
     nullptr},
    {"num_qk_stages", &Sm100Tuning::num_qk_stages, false, &body_value<&Sm100Variant::num_qk_stages>,
     nullptr},
    {"softmax_registers", &Sm100Tuning::softmax_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, std::nullopt); }, nullptr},
    {"correction_registers", &Sm100Tuning::correction_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, Sm100Role::Id::kCorrection); }, nullptr},
    {"other_registers", &Sm100Tuning::other_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, Sm100Role::Id::kMma); }, nullptr},
};

}  // namespace attnjit

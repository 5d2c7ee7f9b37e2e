// SPDX-License-Identifier: Apache-2.0
// Asks an architecture's planner which values a tuning row can choose.
#include <algorithm>

#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {
namespace {

std::vector<TuningKnob> sm100_knobs(const Sm100Plan& plan) {
  const Sm100Variant& variant = plan.variants.front();
  std::vector<TuningKnob> knobs;
  if (plan.reference != "depth512") {
    knobs.push_back({"BN", {64, 96, 128, 160}, variant.BN});
    knobs.push_back({"use_fused_kv", {0, 1}, std::int64_t{variant.use_fused_kv}});
  }
  knobs.push_back({"num_kv_stages", {2, 3, 4, 5, 6, 8, 10, 12}, variant.num_kv_stages});
  std::vector<std::int64_t> shares;  // an eighth of the row at a time, to a half
  for (std::int64_t eighths = 0; eighths <= 4; ++eighths) {
    const std::int64_t pairs = plan.exp2_pairs * eighths / 8;
    if (shares.empty() || shares.back() != pairs) shares.push_back(pairs);
  }
  knobs.push_back({"exp2_fma_pairs", std::move(shares), plan.exp2_fma_pairs});
  return knobs;
}

}  // namespace

std::vector<TuningKnob> tuning_knobs(const KernelPlan& plan) {
  if (!plan.supported) return {};
  if (plan.sm90 != nullptr) return sm90_knobs(*plan.sm90);
  return plan.sm100 == nullptr ? std::vector<TuningKnob>{} : sm100_knobs(*plan.sm100);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The table of kernel families, and what asks it.
#include "plan/family.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "plan/forward_support.h"
#include "plan/merge/merge_plan.h"
#include "plan/sm100/sm100_json.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm100_mla/sm100_mla_json.h"
#include "plan/sm100_mla/sm100_mla_plan.h"
#include "plan/sm90/sm90_json.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit {
namespace {

Status plan_sm90(const TuningValues* tuned, KernelPlan& plan) {
  Result<Sm90Plan> sm90 = make_sm90_plan(plan.spec, tuned);
  if (!sm90) return sm90.error();
  plan.sm90 = std::make_shared<const Sm90Plan>(*std::move(sm90));
  plan.reason = sm90_unsupported_reason(plan.spec, *plan.sm90);
  plan.supported = plan.reason.empty();
  return plan.supported ? fill_from_sm90(*plan.sm90, plan) : Status();
}

Status plan_sm90_mla(const TuningValues* tuned, KernelPlan& plan) {
  plan.reason = sm90_mla_unsupported_reason(plan.spec);
  plan.supported = plan.reason.empty();
  Result<Sm90Plan> mla = make_sm90_mla_plan(plan.spec, tuned);
  if (!mla) return mla.error();
  plan.sm90 = std::make_shared<const Sm90Plan>(*std::move(mla));
  return plan.supported ? fill_from_sm90_mla(*plan.sm90, plan) : Status();
}

Status plan_sm100(const TuningValues* tuned, KernelPlan& plan) {
  Result<Sm100Plan> sm100 = make_sm100_plan(plan.spec, tuned);
  if (!sm100) {
    if (sm100.error().code != ErrorCode::kUnsupported) return sm100.error();
    plan.reason = sm100.error().message;
    return {};
  }
  plan.sm100 = std::make_shared<const Sm100Plan>(*std::move(sm100));
  plan.reason = sm100_unsupported_reason(plan.spec, *plan.sm100);
  plan.supported = plan.reason.empty();
  return fill_from_sm100(*plan.sm100, plan);
}

Status plan_sm100_mla(const TuningValues* tuned, KernelPlan& plan) {
  plan.reason = sm100_mla_unsupported_reason(plan.spec);
  plan.supported = plan.reason.empty();
  if (!plan.supported) return {};
  Result<Sm100MlaPlan> mla = make_sm100_mla_plan(plan.spec, tuned);
  if (!mla) return mla.error();
  plan.sm100_mla = std::make_shared<const Sm100MlaPlan>(*std::move(mla));
  fill_from_sm100_mla(*plan.sm100_mla, plan);
  return {};
}

/// A choice of partitions that has nothing else to tell.
template <auto kPartitions>
PartitionChoice only(const KernelPlan& plan, const LaunchShapes& shapes,
                     const DeviceShape& device) {
  const std::int32_t partitions = kPartitions(plan, shapes, device);
  return {partitions, partitions};
}

constexpr KernelFamily kSm90{
    &plan_sm90,
    &sm90_partitions,
    true,
    true,
    nullptr,
    &plan_sm90_launch,
    [](const KernelPlan& plan) { return sm90_knobs(*plan.sm90); },
    [](const KernelPlan& plan, nlohmann::ordered_json& json) {
      if (plan.sm90 != nullptr) add_sm90(*plan.sm90, json);
    },
};
constexpr KernelFamily kSm90Mla{
    &plan_sm90_mla, &sm90_mla_partitions,  false,           false,
    nullptr,        &plan_sm90_mla_launch, &sm90_mla_knobs, kSm90.print,
};
constexpr KernelFamily kSm100{
    &plan_sm100,
    &only<&sm100_partitions>,
    false,
    true,
    &sm100_rows_per_list,
    &plan_sm100_launch,
    [](const KernelPlan& plan) { return sm100_knobs(*plan.sm100); },
    [](const KernelPlan& plan, nlohmann::ordered_json& json) {
      if (plan.sm100 != nullptr) add_sm100(*plan.sm100, json);
    },
};
constexpr KernelFamily kSm100Mla{
    &plan_sm100_mla,
    &sm100_mla_partitions,
    false,
    false,
    nullptr,
    &plan_sm100_mla_launch,
    &sm100_mla_knobs,
    [](const KernelPlan& plan, nlohmann::ordered_json& json) {
      if (plan.sm100_mla != nullptr) add_sm100_mla(*plan.sm100_mla, json);
    },
};

constexpr KernelFamily kMerge{
    [](const TuningValues*, KernelPlan& plan) { return plan_merge(plan); },
    nullptr,
    false,
    false,
    nullptr,
    &plan_merge_launch,
    [](const KernelPlan&) { return std::vector<TuningKnob>(); },
    [](const KernelPlan&, nlohmann::ordered_json&) {},
};

}  // namespace

const KernelFamily& family_of(const AttentionSpec& spec) {
  if (spec.merge) return kMerge;
  switch (spec.arch) {
    case Arch::kSm90a:
      return spec.mla == Mla::kDecode || has_deep_heads(spec) ? kSm90Mla : kSm90;
    case Arch::kSm100a:
    case Arch::kSm103a:
      return spec.mla == Mla::kDecode || has_deep_heads(spec) ? kSm100Mla : kSm100;
  }
  return kSm100;
}

std::vector<TuningKnob> tuning_knobs(const KernelPlan& plan) {
  return plan.supported ? family_of(plan.spec).knobs(plan) : std::vector<TuningKnob>();
}

}  // namespace attnjit

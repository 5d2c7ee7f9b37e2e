// SPDX-License-Identifier: Apache-2.0
// The table of kernel families, and what asks it.
#include "plan/family.h"

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "plan/kernel/family_traits.h"
#include "plan/merge/merge_plan.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm100_mla/sm100_mla_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit {
namespace {

/// A choice of partitions that says nothing else.
template <auto kPartitions>
PartitionChoice only(const KernelPlan& plan, const LaunchShapes& shapes,
                     const DeviceShape& device) {
  const std::int32_t partitions = kPartitions(plan, shapes, device);
  return {partitions, partitions};
}

/// Adds the fields of the plan that a family made, if it made one.
template <auto kMade, auto kAdd>
void print(const KernelPlan& plan, nlohmann::ordered_json& json) {
  if (plan.*kMade != nullptr) kAdd(plan.spec, *(plan.*kMade), json);
}

/// The launches of a kernel of absorbed MLA and head_dim above 256.
template <auto kMade>
PartitionChoice mla_parts(const KernelPlan& plan, const LaunchShapes& shapes,
                          const DeviceShape& device) {
  const auto& mla = *(plan.*kMade);
  return mla_partitions(mla.tiles, mla.kRates, shapes, device);
}
template <auto kMade>
Status mla_launch(const KernelPlan& plan, const LaunchRequest& request, LaunchRecipe& recipe) {
  return plan_mla_launch(plan, (plan.*kMade)->tiles, request, recipe);
}

std::vector<TuningKnob> no_knobs(const KernelPlan&) { return {}; }
void print_nothing(const KernelPlan&, nlohmann::ordered_json&) {}

/// By FamilyId.
constexpr std::array<KernelFamily, 5> kFamilies{{
    {&plan_sm90, &sm90_partitions, nullptr, &plan_sm90_launch,
     [](const KernelPlan& plan) { return sm90_knobs(*plan.sm90); },
     &print<&KernelPlan::sm90, &add_sm90>},
    {&plan_sm90_mla, &mla_parts<&KernelPlan::sm90_mla>, nullptr, &mla_launch<&KernelPlan::sm90_mla>,
     &sm90_mla_knobs, &print<&KernelPlan::sm90_mla, &add_sm90_mla>},
    {&plan_sm100, &only<&sm100_partitions>, &sm100_rows_per_list, &plan_sm100_launch,
     [](const KernelPlan& plan) { return sm100_knobs(*plan.sm100); },
     &print<&KernelPlan::sm100, &add_sm100>},
    {&plan_sm100_mla, &mla_parts<&KernelPlan::sm100_mla>, nullptr,
     &mla_launch<&KernelPlan::sm100_mla>, &sm100_mla_knobs,
     &print<&KernelPlan::sm100_mla, &add_sm100_mla>},
    {[](const TuningValues*, KernelPlan& plan) { return plan_merge(plan); }, nullptr, nullptr,
     &plan_merge_launch, &no_knobs, &print_nothing},
}};

}  // namespace

const KernelFamily& family_of(const SpecFacts& spec) {
  return kFamilies.at(static_cast<std::size_t>(family_id(spec)));
}

std::vector<TuningKnob> tuning_knobs(const KernelPlan& plan) {
  return plan.supported ? family_of(plan.spec).knobs(plan) : std::vector<TuningKnob>();
}

}  // namespace attnjit

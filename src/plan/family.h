// SPDX-License-Identifier: Apache-2.0
// The kernel families: what each knows to do.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/launch/family_launch.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Siblings: a new one is a folder beside sm90/ and sm100/, its traits, and a row.
struct KernelFamily {
  /// Plans the kernel of a spec into a plan that has its spec and its workspaces. `tuned` may be
  /// null. A spec that the family does not serve leaves `supported` false with the reason. Errors:
  /// kInvalid for a tuned name or value that the kernel cannot take.
  Status (*plan)(const TuningValues* tuned, KernelPlan& plan);
  /// The parts that a launch of a supported plan splits the keys into; null where it does not
  /// (FamilyTraits::splits).
  PartitionChoice (*partitions)(const KernelPlan& plan, const LaunchShapes& shapes,
                                const DeviceShape& device);
  /// Rows of a map's blocks that a work tile has in a launch; null where its main kernel reads the
  /// map itself (FamilyTraits::lists).
  std::int32_t (*rows_per_list)(const KernelPlan& plan, const LaunchShapes& shapes,
                                const DeviceShape& device);
  /// Plans a launch of the main kernel of a supported plan.
  /// `recipe`: as of fill_recipe().
  Status (*launch)(const KernelPlan& plan, const LaunchRequest& request, LaunchRecipe& recipe);
  /// What a tuning row may choose, with what a supported plan has.
  std::vector<TuningKnob> (*knobs)(const KernelPlan& plan);
  /// Adds the family's own fields to the plan's JSON.
  void (*print)(const KernelPlan& plan, nlohmann::ordered_json& json);
};

/// That of family_id().
const KernelFamily& family_of(const SpecFacts& spec);

}  // namespace attnjit

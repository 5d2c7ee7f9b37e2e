// SPDX-License-Identifier: Apache-2.0
// The kernel families, one per generation of GPU, and which of them serves an architecture.
//
// Thread rules: constant data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/launch/family_launch.h"

namespace attnjit {

/// What a family knows to do. Siblings: a new one is a folder beside sm90/ and sm100/, and a row.
struct KernelFamily {
  /// Plans the kernel of a spec into a plan that has its spec and its workspaces. `tuned` may be
  /// null. A spec that the family does not serve leaves `supported` false with the reason. Errors:
  /// kInvalid for a tuned name or value that the kernel cannot take.
  Status (*plan)(const TuningValues* tuned, KernelPlan& plan);
  /// The parts that a launch of a supported plan splits the keys into; null: the family does not
  /// split them.
  PartitionChoice (*partitions)(const KernelPlan& plan, const LaunchShapes& shapes,
                                const DeviceShape& device);
  /// Whether launches that choose by themselves cut the long tiles of a ragged batch. Others leave
  /// all whole: a launch knows the longest sequence alone, and parts of all cost more than they
  /// gain.
  bool cuts_ragged;
  /// Whether its main kernel can walk a map of the mask.
  bool maps;
  /// Rows of a map's blocks that a work tile has in a launch; null: its main kernel reads the map
  /// itself, without lists of its work tiles' own.
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

/// The family of a spec's kernel: a merge has its own; otherwise it is the architecture's, of which
/// absorbed MLA has one apart, which serves deep heads, too.
const KernelFamily& family_of(const AttentionSpec& spec);

}  // namespace attnjit

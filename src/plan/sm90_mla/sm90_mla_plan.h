// SPDX-License-Identifier: Apache-2.0
// The Sm90Plan of absorbed MLA, all query heads over one row of K per key, whose latent part is V,
// and of heads deeper than 256.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/mla/mla_tiles.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

/// Why the template does not serve a spec; empty: it does.
std::string sm90_mla_unsupported_reason(const ResolvedSpec& spec);

/// Plans the kernel. K's stages hold V, too; docs/mla.md has the arithmetic. `tuned` holds what a
/// tuning row overrides, or is null. Errors: kInvalid for a tuned name or value that this plan
/// cannot take.
Result<Sm90Plan> make_sm90_mla_plan(const ResolvedSpec& spec, const TuningValues* tuned);

/// Fills the kernel of a supported plan. Errors: kInvalid where a tuned choice does not fit the
/// shared memory. @pre plan.workspaces is filled.
Status fill_from_sm90_mla(const Sm90Plan& mla, KernelPlan& plan);

/// The parts that a launch splits the keys into.
PartitionChoice sm90_mla_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                    const DeviceShape& device);

/// Plans a launch of the kernel.
Status plan_sm90_mla_launch(const KernelPlan& plan, const LaunchRequest& request,
                            LaunchRecipe& recipe);

/// What a tuning row may choose, with what this plan has.
std::vector<TuningKnob> sm90_mla_knobs(const KernelPlan& plan);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Where an sm_100 plan leaves its reference configuration, and why.
#pragma once

#include <string>
#include <vector>

#include "attnjit/plan.h"
#include "plan/reference/depth512_config.h"
#include "plan/reference/fa4_config.h"
#include "plan/sm100/sm100_knobs.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm100/sm100_ring.h"

namespace attnjit {

inline constexpr const char* kSm100WholeLines = "a row of a TMA box is a whole line of L2";

/// Why heads are fused into a tile, or not.
const char* sm100_why_groups(const Sm100Variant& body);

/// Records where the bodies of the kernel with two O leave what the reference has without a row, by
/// what it counts. `config`: the reference's with what a row and the caller choose. NOTE: before
/// roles record theirs.
void sm100_deviate(const ResolvedSpec& resolved, const Fa4Config& config, const Sm100Ring& ring,
                   bool ring_is_tuned, Sm100Plan& plan);

/// Records where the kernel with one O leaves Depth512Config, which is a pair of CTAs.
void sm100_deviate(const Depth512Config& reference, const Sm100Variant& body,
                   const Sm100Tuning& tuned, std::vector<Deviation>& deviations);
/// Records where it leaves Fa4Config, of which two O take all of tensor memory.
void sm100_deviate(const Fa4Config& reference, const Sm100Variant& body, const Sm100Tuning& tuned,
                   std::vector<Deviation>& deviations);

}  // namespace attnjit

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

/// Why a ring is not the reference's. `rope_uncounted`: this counts no bytes of the rope part.
std::string sm100_ring_reason(const Sm100Ring& ring, const Fa4Config& reference,
                              const Sm100Variant& variant, bool rope_uncounted);

/// Records what a body's ring is, under names that begin with `prefix`.
void sm100_record_ring(const Fa4Config& reference, const Sm100Variant& variant,
                       const std::string& prefix, const std::string& reason,
                       std::vector<Deviation>& deviations);

/// Records where the kernel with one O leaves Depth512Config, which is a pair of CTAs.
void sm100_deviate(const Depth512Config& reference, const Sm100Variant& body,
                   const Sm100Tuning& tuned, std::vector<Deviation>& deviations);
/// Records where it leaves Fa4Config, of which two O take all of tensor memory.
void sm100_deviate(const Fa4Config& reference, const Sm100Variant& body, const Sm100Tuning& tuned,
                   std::vector<Deviation>& deviations);

}  // namespace attnjit

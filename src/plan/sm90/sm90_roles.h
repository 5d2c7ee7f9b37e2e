// SPDX-License-Identifier: Apache-2.0
// The warps of the sm_90a forward kernel: what they do, and the registers that they have.
#pragma once

#include <vector>

#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_traits.h"

namespace attnjit {

/// Warps that rewrite what comes: the producer's warpgroup's last ones transpose or upcast V, and
/// where K is upcast, a warpgroup of its own does that.
inline constexpr int kSm90VRewriters = 3, kSm90KRewriters = 4;
inline constexpr int kSm90FirstVRewriter = 4 - kSm90VRewriters;

/// The warps that copy K and V row by row: all of the producer's warpgroup, but one where the
/// others rewrite what comes.
int sm90_copy_warps(const Sm90Plan& plan);

/// What the warps of a CTA do.
std::vector<PlannedKernel::Role> sm90_roles(const Sm90Plan& plan);

/// Shares the registers out between the producer's warps and the consumers'.
void sm90_share_registers(Sm90Plan& plan);

}  // namespace attnjit

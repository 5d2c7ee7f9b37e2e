// SPDX-License-Identifier: Apache-2.0
// The choices of an sm_90a plan that a tuning row may make.
//
// Thread rules: pure functions.
#pragma once

#include <vector>

#include "plan/kernel/knobs.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

/// Stages of K, and of tiles that are rewritten, that the knobs allow.
inline constexpr int kSm90MaxStages = 6, kSm90MaxRowStages = 4;

/// The knobs of the forward kernel.
std::vector<Knob<Sm90Plan>> sm90_forward_knobs(const Sm90Plan& plan);

}  // namespace attnjit

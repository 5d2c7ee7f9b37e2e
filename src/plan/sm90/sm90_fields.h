// SPDX-License-Identifier: Apache-2.0
// The fields of an Sm90Plan as tuning rows and the kernel see them.
#pragma once

#include <vector>

#include "plan/kernel/knobs.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

/// Stages of K, and of tiles that are rewritten, that the knobs allow.
inline constexpr int kSm90MaxStages = 6, kSm90MaxRawStages = 4;

/// What a tuning row may choose.
std::vector<Knob<Sm90Plan>> sm90_forward_knobs(const Sm90Plan& plan);

/// The members of Config, or of Config::Low (body 1).
std::vector<ConfigConstant> sm90_constants(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                           int body);

}  // namespace attnjit

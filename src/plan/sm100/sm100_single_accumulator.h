// SPDX-License-Identifier: Apache-2.0
// Plans of the sm_100 kernel with one O, where two would take all of tensor memory.
#pragma once

#include "attnjit/plan.h"
#include "attnjit/result.h"
#include "plan/reference/config_kind.h"
#include "plan/sm100/sm100_knobs.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {

/// Errors: kUnsupported with the reason where no tile serves the spec; kInvalid for a tuned value
/// that cannot be.
Result<Sm100Plan> plan_single_accumulator(const ResolvedSpec& resolved, ConfigKind kind,
                                          const Sm100Tuning& tuned);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans of the two sm_100 kernels: with a single accumulator of O, where two would take all of
// tensor memory, and with dual ones, as Fa4Config and MlaConfig have.
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
Result<Sm100Plan> plan_dual_accumulator(const ResolvedSpec& resolved, ConfigKind kind,
                                        const Sm100Tuning& tuned);

}  // namespace attnjit

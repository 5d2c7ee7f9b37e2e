// SPDX-License-Identifier: Apache-2.0
// The roles of an sm_100 kernel's warps, and the registers that they have.
#pragma once

#include <cstdint>

#include "attnjit/result.h"
#include "plan/sm100/sm100_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Registers per thread.
struct Sm100Budgets {
  std::int64_t softmax = 0;
  std::int64_t correction = 0;
  std::int64_t other = 0;
  std::int64_t upcasting = 0;  // 0: no warps upcast
};

/// What the roles were seen to use (docs/sm100.md) in the kernel with two O: a correction warp
/// keeps 64 values of O on their way, the MMA thread its descriptors.
Sm100Budgets dual_accumulator_budgets(const SpecFacts& spec);

/// The same of the kernel with a single accumulator. A plan's cluster, map and upcasting decide.
Sm100Budgets single_accumulator_budgets(const Sm100Plan& plan);

/// Gives a plan its roles and threads, with these registers or those that a row chooses. Errors:
/// kInvalid for a choice that cannot be.
Status sm100_assign_roles(Sm100Budgets budgets, const Sm100Tuning& tuned, Sm100Plan& plan);

}  // namespace attnjit

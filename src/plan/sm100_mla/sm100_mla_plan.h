// SPDX-License-Identifier: Apache-2.0
// Sm100MlaPlan: what the sm_100a and sm_103a kernel of absorbed MLA and head_dim above 256 uses.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/mla/mla_launch.h"
#include "plan/mla/mla_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// docs/mla.md has the arithmetic.
struct Sm100MlaPlan : MlaPlan {
  /// Estimates for a B200 (148 SMs at 1.85 GHz, 7.7 TB/s), where nobody has measured: docs/mla.md.
  /// The rate of products is 0.8 of what those of 64 rows can have, the half of 15.2e6.
  static constexpr MlaRates kRates{.alone_bytes = 100e3, .shared_bytes = 52e3, .flop = 6e6};

  MemoryLayout tmem;

  /// Columns of tensor memory, and those that are allocated.
  std::int64_t tmem_used() const { return tmem.end_of_last(); }
  std::int64_t tmem_allocated() const { return allocated_columns(tmem_used()); }
};

// What a KernelFamily has (plan/family.h).
Status plan_sm100_mla(const TuningValues* tuned, KernelPlan& plan);
std::vector<TuningKnob> sm100_mla_knobs(const KernelPlan& plan);
void add_sm100_mla(const SpecFacts& spec, const Sm100MlaPlan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

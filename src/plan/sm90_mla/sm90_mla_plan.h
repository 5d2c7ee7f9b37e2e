// SPDX-License-Identifier: Apache-2.0
// Sm90MlaPlan: what the sm_90a kernel of absorbed MLA and head_dim above 256 uses.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/mla/mla_launch.h"
#include "plan/mla/mla_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// docs/mla.md has the arithmetic.
struct Sm90MlaPlan : MlaPlan {
  static constexpr int kConsumers = 2;  ///< warpgroups, after the one that loads
  static constexpr int kThreads = 128 * (1 + kConsumers);
  /// Estimates for an H200: docs/mla.md.
  static constexpr MlaRates kRates{.alone_bytes = 57e3,
                                   .shared_bytes = 34e3,
                                   .flop = 5e6,
                                   .empty_merge = 1.2,
                                   .reduce_whole = 3.0,
                                   .reduce_part = 4.2,
                                   .apart = 1.05};

  int producer_registers = 0;
  int consumer_registers = 0;
};

// What a KernelFamily has (plan/family.h).
Status plan_sm90_mla(const TuningValues* tuned, KernelPlan& plan);
std::vector<TuningKnob> sm90_mla_knobs(const KernelPlan& plan);
void add_sm90_mla(const SpecFacts& spec, const Sm90MlaPlan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

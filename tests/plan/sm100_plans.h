// SPDX-License-Identifier: Apache-2.0
// Plans for sm_100a and sm_103a, and what holds of every one of them, for tests.
#pragma once

#include "plan/sm100/sm100_plan.h"
#include "planned.h"

namespace attnjit::plan_test {

inline AttentionSpec dense(int depth, Dtype dtype = Dtype::kBf16) {
  AttentionSpec spec;
  spec.num_q_heads = 32;
  spec.qk_depth = depth;
  spec.qkv_dtype = dtype;
  return spec;
}

/// Null where nothing of that name deviates.
inline const Deviation* deviation(const KernelPlan& plan, const std::string& name) {
  for (const Deviation& entry : plan.deviations) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

/// The launch of sequences of one length; an empty recipe where there is none, which is told.
LaunchRecipe launch_of(const KernelPlan& plan, std::int32_t batch, std::int32_t q_len,
                       std::int32_t kv_len, int sm_count = 148);

/// Shared and tensor memory, barriers, registers, maps: as the hardware takes them and as the parts
/// of a plan say them of each other.
void check_plan(const KernelPlan& plan, const std::string& what);

}  // namespace attnjit::plan_test

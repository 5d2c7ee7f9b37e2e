// SPDX-License-Identifier: Apache-2.0
// Lists the knobs of sm_90a plans.
#include "plan/sm90/sm90_knobs.h"

#include <cstdint>
#include <utility>

#include "plan/map/map_plan.h"

namespace attnjit {

std::vector<Knob<Sm90Plan>> sm90_forward_knobs(const Sm90Plan& plan) {
  const bool transposes = plan.num_row_stages > 0 && !plan.widens_kv;  // e4m3
  // A lane of the four warps that copy finds a row.
  std::vector<std::int64_t> keys{64, 80, 96, 112, 128};
  if (!plan.row_copies) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (transposes) keys = {64, 96, 128, 160, 192, 224};
  // A lane widens a key.
  if (plan.widens_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.mapped) std::erase_if(keys, [](std::int64_t one) { return kMapBlock % one != 0; });
  std::vector<Knob<Sm90Plan>> all{
      {"BN", &Sm90Plan::BN, std::move(keys)},
      {"num_stages", &Sm90Plan::num_stages, {2, 3, 4, 5, kSm90MaxStages}},
      {"num_q_stages", &Sm90Plan::num_q_stages, {1, 2}},
  };
  if (plan.num_consumers > 1) {
    if (!plan.mapped && !plan.widens_kv) {
      all.push_back({"num_consumers", &Sm90Plan::num_consumers, {2, 3}});
    }
    all.push_back({"ping_pong", &Sm90Plan::ping_pong, {0, 1}});
  }
  if (plan.num_row_stages > 0) {
    all.push_back({"num_row_stages", &Sm90Plan::num_row_stages, {1, 2, 3, kSm90MaxRowStages}});
  }
  if (transposes) {
    all.push_back({"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs, {0, 1, 2, 3, 4}});
  }
  all.push_back({"pair_tiles", &Sm90Plan::pair_tiles, {0, 1}});
  if (plan.claims_work) all.push_back({"claims_work", &Sm90Plan::claims_work, {0, 1}});
  return all;
}

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return chosen_knobs(sm90_forward_knobs(plan), plan);
}

}  // namespace attnjit

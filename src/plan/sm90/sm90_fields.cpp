// SPDX-License-Identifier: Apache-2.0
// The fields of an Sm90Plan as JSON, as a tuning row chooses them, and as the kernel reads them
// with what follows from them.
#include "plan/sm90/sm90_fields.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/forward_support.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"

namespace attnjit {
namespace {

// Where regions of shared memory begin; 0, which is Q's, where there is none.
constexpr std::pair<Region, const char*> kOffsets[] = {{Region::kQ, "kQOffset"},
                                                       {Region::kK, "kKOffset"},
                                                       {Region::kV, "kVOffset"},
                                                       {Region::kRawV, "kRowsOffset"},
                                                       {Region::kO, "kOOffset"},
                                                       {Region::kOnes, "kOnesOffset"},
                                                       {Region::kLists, "kListsOffset"},
                                                       {Region::kStash, "kStashOffset"},
                                                       {Region::kNotes, "kNotesOffset"},
                                                       {Region::kRowWords, "kRowWordsOffset"},
                                                       {Region::kWork, "kWorkOffset"},
                                                       {Region::kKeyScales, "kKeyScalesOffset"},
                                                       {Region::kBarriers, "kBarrierOffset"}};

}  // namespace

void add_sm90(const SpecFacts& /*spec*/, const Sm90Plan& plan, nlohmann::ordered_json& json) {
  add_fields(kSm90Fields, plan, json);
  if (plan.low != nullptr) add_fields(kSm90Fields, *plan.low, json["small_tile_variant"]);
}

std::vector<Knob<Sm90Plan>> sm90_forward_knobs(const Sm90Plan& plan) {
  const bool transposes = plan.num_raw_stages > 0 && !plan.spec->upcasts_kv;  // e4m3
  // A lane of the four warps that copy finds a row.
  std::vector<std::int64_t> keys{64, 80, 96, 112, 128};
  if (!plan.spec->copies_rows) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (transposes) keys = {64, 96, 128, 160, 192, 224};
  // A lane upcasts a key.
  if (plan.spec->upcasts_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.mapped) std::erase_if(keys, [](std::int64_t one) { return kMapBlock % one != 0; });
  std::vector<Knob<Sm90Plan>> all{
      {"BN", &Sm90Plan::BN, std::move(keys)},
      {"num_stages", &Sm90Plan::num_stages, {2, 3, 4, 5, kSm90MaxStages}},
      {"num_q_stages", &Sm90Plan::num_q_stages, {1, 2}},
  };
  if (plan.num_consumers > 1) {
    if (!plan.mapped && !plan.spec->upcasts_kv) {
      all.push_back({"num_consumers", &Sm90Plan::num_consumers, {2, 3}});
    }
    all.push_back({"ping_pong", &Sm90Plan::ping_pong, {0, 1}});
  }
  if (plan.num_raw_stages > 0) {
    all.push_back({"num_raw_stages",
                   &Sm90Plan::num_raw_stages,
                   {1, 2, 3, kSm90MaxRawStages},
                   "num_row_stages"});
  }
  if (transposes) {
    all.push_back({"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs, {0, 1, 2, 3, 4}});
  }
  all.push_back({"pair_tiles", &Sm90Plan::pair_tiles, {0, 1}});
  if (plan.dynamic_schedule)
    all.push_back({"dynamic_schedule", &Sm90Plan::dynamic_schedule, {0, 1}, "claims_work"});
  return all;
}

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return chosen_knobs(sm90_forward_knobs(plan), plan);
}

std::vector<ConfigConstant> sm90_constants(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                           int body) {
  Constants constants;
  constants.add_spec(resolved);
  constants.add_fields(kSm90Fields, sm90);
  for (const auto& [region, constant] : kOffsets) {
    constants.add(constant, sm90.smem.begin_of(region));
  }
  constants.add_barriers(sm90.barriers);
  constants.add("kStashBytes", kSm90StashBytes);
  constants.add("kFirstVRewriter", kSm90FirstVRewriter);
  constants.add("kVRewriters", sm90.num_raw_stages > 0 ? kSm90VRewriters : 0);
  constants.add("kKRewriters", sm90.spec->upcasts_kv ? kSm90KRewriters : 0);
  const int packed_heads = sm90_packed_heads(sm90, resolved);
  const bool units = kSm90ConsumerRows % packed_heads != 0;
  constants.add("kGqaShift", units ? 0 : rows_shift(packed_heads));
  constants.add("kUnitPositions", units ? kSm90ConsumerRows / packed_heads : 0);
  constants.add("kBody", body);
  // What kernels of absorbed MLA may do.
  constants.add("kCluster", 1);
  constants.add("kJoins", false);
  constants.add("kTrimsTiles", false);
  return std::move(constants).take();
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel: its tile, and all that follows from that.
#include "plan/sm90/sm90_plan.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/knobs.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_heuristics.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/text.h"

namespace attnjit {
namespace {

std::vector<Knob<Sm90Plan>> knobs_of(const Sm90Plan& plan) {
  std::vector<Knob<Sm90Plan>> knobs;
  for (const Sm90Knob& one : kSm90Knobs) {
    std::vector<std::int64_t> values = one.values(plan);
    if (!values.empty()) knobs.push_back({one.name, one.member, std::move(values), one.old_name});
  }
  return knobs;
}

/// Makes partitions of fixed keys whole KV tiles: the longest that are, up to the one chosen.
/// Errors: kInvalid for a tile of a tuning row that is none.
Status fit_partitions(const TuningValues* tuned, Sm90Plan& plan) {
  const int keys = plan.spec->partition_keys;
  if (keys == 0 || keys % kPartitionStep != 0) return {};  // none, or not served
  const bool chosen = tuned != nullptr && tuned->contains("BN");
  if (chosen && keys % plan.BN != 0) {
    return spec::invalid("tuning.BN", "BN = {} in a tuning table: partition_keys {} is no multiple",
                         plan.BN, keys);
  }
  int longest = kPartitionStep;
  for (const Knob<Sm90Plan>& knob : knobs_of(plan)) {
    if (knob.name != "BN") continue;
    for (const std::int64_t value : knob.values) {
      if (value <= plan.BN && keys % value == 0) longest = static_cast<int>(value);
    }
  }
  plan.BN = longest;
  plan.partition_tiles = keys / plan.BN;
  return {};
}

/// What follows from the tile.
void complete(Sm90Plan& plan) {
  const SpecFacts& spec = *plan.spec;
  plan.pack_gqa = sm90_packs_gqa(spec, plan.block_mask);
  plan.BM = kSm90ConsumerRows * plan.num_consumers;
  plan.sums_by_product = sm90_sums_by_product(sm90_traits(plan));
  plan.q_register_steps = sm90_q_register_steps(sm90_traits(plan));
  plan.box_keys = spec.page_size > 0 ? std::gcd(spec.page_size, plan.BN) : plan.BN;
  if (spec.copies_rows) plan.box_keys = 0;
  sm90_share_registers(plan);
  sm90_size_tiles(plan);
}

}  // namespace

Sm90Knob::Values sm90_tile_keys(const Sm90Plan& plan) {
  // A lane of the four warps that copy finds a row.
  Sm90Knob::Values keys{64, 80, 96, 112, 128};
  if (!plan.spec->copies_rows) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (plan.transposes_v()) keys = {64, 96, 128, 160, 192, 224};
  // A lane upcasts a key.
  if (plan.spec->upcasts_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.block_mask) std::erase_if(keys, [](std::int64_t one) { return kMaskBlock % one != 0; });
  return keys;
}

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return chosen_knobs(knobs_of(plan), plan);
}

void add_sm90(const SpecFacts& /*spec*/, const Sm90Plan& plan, nlohmann::ordered_json& json) {
  add_fields(kSm90Fields, plan, json);
  if (plan.small_tile != nullptr)
    add_fields(kSm90Fields, *plan.small_tile, json["small_tile_variant"]);
}

Result<Sm90Plan> make_sm90_plan(const ResolvedSpec& spec, const TuningValues* tuned) {
  Sm90Plan plan = sm90_choose_tile(spec);
  const std::vector<TuningKnob> untuned = sm90_knobs(plan);
  if (tuned != nullptr) {
    Status status = apply_knobs(knobs_of(plan), "an sm_90a plan", *tuned, plan);
    if (!status) return status.error();
    if (!plan.spec->is_e4m3) plan.num_v_stages = plan.num_stages;
  }
  // NOTE: a row that chooses what is chosen anyway makes the same kernel.
  const bool as_untuned =
      std::ranges::equal(untuned, sm90_knobs(plan), {}, &TuningKnob::chosen, &TuningKnob::chosen);
  if (Status fitted = fit_partitions(tuned, plan); !fitted) return fitted.error();
  complete(plan);
  if (as_untuned && sm90_has_small_tiles(sm90_traits(plan))) {
    Sm90Plan small = sm90_small_tile(plan);
    complete(small);
    sm90_lay_out(small);
    plan.small_tile = std::make_shared<const Sm90Plan>(std::move(small));
  }
  sm90_lay_out(plan);
  return plan;
}

}  // namespace attnjit

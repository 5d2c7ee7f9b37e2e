// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel: its tile, and all that follows from that.
#include "plan/sm90/sm90_plan.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "plan/kernel/forward_support.h"
#include "plan/sm90/sm90_fields.h"
#include "plan/sm90/sm90_heuristics.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/text.h"

namespace attnjit {
namespace {

/// Makes partitions of `keys` keys whole KV tiles: the longest that are, up to the one chosen.
/// Errors: kInvalid for a tile of a tuning row that is none.
Status fit_partitions(int keys, const TuningValues* tuned, Sm90Plan& plan) {
  if (keys % kPartitionStep != 0) return {};  // not served
  const bool chosen = tuned != nullptr && tuned->contains("BN");
  if (chosen && keys % plan.BN != 0) {
    return spec::invalid("BN", "BN = {} in a tuning table: partition_keys {} is no multiple",
                         plan.BN, keys);
  }
  int longest = kPartitionStep;
  for (const Knob<Sm90Plan>& knob : sm90_forward_knobs(plan)) {
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
void complete(const SpecFacts& spec, Sm90Traits facts, Sm90Plan& plan) {
  plan.pack_gqa = sm90_packs_gqa(spec, plan.mapped);
  plan.BM = kSm90ConsumerRows * plan.num_consumers;
  plan.sums_by_product = sm90_sums_by_product(facts | sm90_plan_traits(spec, plan));
  plan.held_q_steps = sm90_held_q_steps(facts | sm90_plan_traits(spec, plan));
  plan.box_keys = spec.page_size > 0 ? std::gcd(spec.page_size, plan.BN) : plan.BN;
  if (plan.spec->copies_rows) plan.box_keys = 0;
  sm90_share_registers(spec, facts, plan);
  sm90_size_tiles(spec, plan);
}

}  // namespace

int sm90_packed_heads(const Sm90Plan& plan, const SpecFacts& spec) {
  return plan.pack_gqa ? spec.group : 1;
}

Result<Sm90Plan> make_sm90_plan(const ResolvedSpec& spec, const TuningValues* tuned) {
  const SpecFacts& resolved = spec;
  const Sm90Traits facts = sm90_spec_traits(spec);
  Sm90Plan plan = sm90_choose_tile(spec, facts);
  const std::vector<TuningKnob> untuned = sm90_knobs(plan);
  if (tuned != nullptr) {
    Status status = apply_knobs(sm90_forward_knobs(plan), "an sm_90a plan", *tuned, plan);
    if (!status) return status.error();
    if (!resolved.is_e4m3) plan.num_v_stages = plan.num_stages;
  }
  // NOTE: a row that chooses what is chosen anyway makes the same kernel.
  const bool as_untuned =
      std::ranges::equal(untuned, sm90_knobs(plan), {}, &TuningKnob::chosen, &TuningKnob::chosen);
  if (resolved.partition_keys > 0) {
    if (Status fitted = fit_partitions(resolved.partition_keys, tuned, plan); !fitted) {
      return fitted.error();
    }
  }
  complete(resolved, facts, plan);
  if (as_untuned && sm90_has_small_tiles(facts | sm90_plan_traits(resolved, plan))) {
    Sm90Plan low = sm90_small_tile(plan);
    complete(resolved, facts, low);
    sm90_lay_out(low);
    plan.low = std::make_shared<const Sm90Plan>(std::move(low));
  }
  sm90_lay_out(plan);
  return plan;
}

}  // namespace attnjit

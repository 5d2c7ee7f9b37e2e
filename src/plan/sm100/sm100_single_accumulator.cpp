// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100 kernel with one O.
#include "plan/sm100/sm100_heuristics.h"

#include <utility>

#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_deviations.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_ring.h"
#include "plan/sm100/sm100_roles.h"
#include "plan/sm100/sm100_support.h"

namespace attnjit {

Result<Sm100Plan> plan_single_accumulator(const ResolvedSpec& resolved, ConfigKind kind,
                                          const Sm100Tuning& tuned) {
  const SpecFacts& spec = resolved;
  const PlanOptions options = sm100_options(resolved, tuned);
  if (options.num_qo.value_or(1) != 1) {
    const char* nothing_left = spec.ov_depth > 192 ? "S no tensor memory"
                               : spec.upcasts_kv   ? "the upcasting no registers"
                                                   : "K and V no room for two stages";
    return sm100_unsupported("num_qo is {}; two O of depth {} leave {}, and one query tile has one",
                             *options.num_qo, spec.ov_depth, nothing_left);
  }
  Sm100Plan plan;
  plan.reference = kind;
  plan.softmax_warpgroups = 1;
  plan.spec = &spec;
  const bool pair = options.pair_cta.value_or(sm100_pairs_by_default(resolved));
  sm100_choose_work(resolved, pair, tuned, plan);
  Sm100LayoutRequest tile = sm100_layout_request(spec, plan);
  tile.num_qo = 1;
  tile.single_accumulator = true;
  tile.pair_cta = pair;
  plan.cluster = tile.pair_cta ? 2 : 1;
  const std::int64_t of_reference = depth512_args(spec, options).swizzle_mode;
  PlanOptions chosen = options;
  chosen.pair_cta = tile.pair_cta;
  tile.swizzle_bytes = sm100_swizzle(spec, chosen).value_or(of_reference);
  plan.swizzle_bytes = tile.swizzle_bytes;
  deviate(plan.deviations, "swizzle_bytes", of_reference, tile.swizzle_bytes, kSm100WholeLines);
  tile.BN = sm100_single_accumulator_keys(tile.pair_cta);
  const Result<Sm100SplitOfP> split_p = sm100_choose_split_of_p(spec, tile.BN, tuned);
  if (!split_p) return split_p.error();
  tile.split_p = *split_p;
  Result<Sm100Ring> ring = sm100_tune_ring(tile, sm100_choose_ring(tile), tuned);
  if (!ring) return ring.error();
  Sm100Variant body = lay_out_fa4(tile, ring->slots, ring->fused, ring->qk_stages);
  if (body.num_kv_stages < 2) {
    return sm100_unsupported("{} K/V stages fit the shared memory; the least is 2",
                             body.num_kv_stages);
  }
  const auto record = [&](const char* name, auto expected, auto actual, const char* why) {
    deviate(plan.deviations, name, expected, actual, why);
  };
  const char* why_groups = sm100_why_groups(body);
  Sm100Budgets reference_budgets{192, 88, 40};
  if (kind == ConfigKind::kDepth512) {
    const Depth512Config reference(depth512_args(spec, options));
    sm100_deviate(reference, body, tuned, plan.deviations);
    record("fuse_gqa", reference.fuse_gqa, body.fuse_gqa, why_groups);
    record("BM_eff", reference.BM_eff(), body.BM_eff, why_groups);
    reference_budgets = {256, 184, 64};
  } else {
    const Fa4Config reference(fa4_args(resolved.given(), resolved.options()));
    sm100_deviate(reference, body, tuned, plan.deviations);
    record("fuse_gqa", reference.fuse_gqa, body.fuse_gqa, why_groups);
    record("BM_eff", reference.BM_eff(), body.BM_eff,
           reference.num_qo() == 1 ? why_groups : "one query tile has one O");
  }
  if (Status status =
          sm100_assign_roles(reference_budgets, single_accumulator_budgets(plan), tuned, plan);
      !status) {
    return status.error();
  }
  plan.pv_first_quarters = split_p->first_quarters;
  plan.variants = {std::move(body)};
  return plan;
}

}  // namespace attnjit

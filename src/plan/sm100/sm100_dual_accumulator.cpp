// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100 kernel with two O.
#include "plan/sm100/sm100_heuristics.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_deviations.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_ring.h"
#include "plan/sm100/sm100_roles.h"
#include "plan/sm100/sm100_support.h"

namespace attnjit {
namespace {

constexpr std::int64_t kLeastDepth = 64;  // that the reference serves

}  // namespace

Result<Sm100Plan> plan_dual_accumulator(const ResolvedSpec& resolved, ConfigKind kind,
                                        const Sm100Tuning& tuned) {
  const SpecFacts& spec = resolved;
  const PlanOptions options = sm100_options(resolved, tuned);
  Sm100Plan plan;
  plan.reference = kind;
  // Sizes count what the kernel loads.
  const bool mla = kind == ConfigKind::kMla;
  if (mla && options.pair_cta.value_or(false)) {
    return sm100_unsupported(
        "pair_cta is not for mla; the same depths without `mla` are computed in pairs");
  }
  const Fa4Config config =
      mla ? Fa4Config(MlaConfig(mla_args(spec, options))) : sm100_fa4_config(spec, options);
  if (config.ov_depth != spec.ov_depth) {
    return sm100_unsupported("ov_depth is {}; mla has qk_depth less the rope part's 64, {}",
                             spec.ov_depth, config.ov_depth);
  }
  // Lesser depths have the same tiles, which TMA fills up with zeros.
  Fa4Config::Args least = config.args;
  least.qk_depth = kLeastDepth;
  const Fa4Config tiles = config.qk_depth < kLeastDepth ? Fa4Config(least) : config;
  // NOTE: stages are of this kernel's keys, which are fewer: sm100_choose_ring says how many there
  // are.
  if (std::string reason = sm100_why_no_tiles(tiles); !reason.empty()) {
    return sm100_unsupported("{}", reason);
  }
  plan.swizzle_bytes = config.swizzle_mode;
  plan.spec = &spec;
  sm100_choose_work(resolved, config.pair_cta, tuned, plan);
  const Result<std::int64_t> keys = sm100_choose_keys(spec, config, tuned, plan);
  if (!keys) return keys.error();
  Sm100LayoutRequest tile = sm100_layout_request(spec, plan, config);
  tile.BN = *keys;
  const Result<Sm100SplitOfP> split_p = sm100_choose_split_of_p(spec, *keys, tuned);
  if (!split_p) return split_p.error();
  tile.split_p = *split_p;
  Sm100Ring ring = sm100_choose_ring(tile);
  // Two query tiles may leave K and V no room, as with O of 4-byte elements.
  if (ring.stages() < 2 && !options.num_qo && !config.pair_cta && spec.partition_keys == 0) {
    tile.num_qo = 1;
    ring = sm100_choose_ring(tile);
  }
  if (sm100_has_own_o(tile, tuned)) {
    tile.own_o = true;
    ring = sm100_ring_beside_o(tile);
  }
  const Result<Sm100Ring> chosen = sm100_tune_ring(tile, ring, tuned);
  if (!chosen) return chosen.error();
  const bool ring_is_tuned = chosen->slots != ring.slots || chosen->fused != ring.fused ||
                             chosen->qk_stages != ring.qk_stages;
  ring = *chosen;
  Sm100Variant main = lay_out_fa4(tile, ring.slots, ring.fused, ring.qk_stages);
  if (main.num_kv_stages < 2 && tuned.num_qo) {
    return bad_choice(&Sm100Tuning::num_qo,
                      "is {}; so many query tiles leave room for {} stages of K and V, "
                      "and the least is 2",
                      *tuned.num_qo, main.num_kv_stages);
  }
  if (main.num_kv_stages < 2) {
    return sm100_unsupported("{} K/V stages fit the shared memory; the least is 2",
                             main.num_kv_stages);
  }
  // The 1Q sibling shares its code: its ring is of the same kind, its K is staged alike, and the
  // barriers are one list.
  std::optional<Sm100Variant> sibling;
  Sm100Ring sibling_ring;
  // NOTE: where partitions have fixed keys a row's bits are its own: a warpgroup has a query tile
  // to itself in every launch.
  if (tile.num_qo == 2 && !config.pair_cta && config.qk_depth <= 256 && spec.partition_keys == 0) {
    Sm100LayoutRequest one = tile;
    one.num_qo = 1;
    one.max_qk_stages = main.num_qk_stages;
    one.exact_qk_stages = true;
    one.barrier_num_qo = 2;
    sibling_ring = sm100_choose_ring(one, ring.fused);
    Sm100LayoutRequest both = tile;
    both.barrier_stages = one.barrier_stages = std::max(ring.stages(), sibling_ring.stages());
    Sm100Variant two = lay_out_fa4(both, ring.slots, ring.fused, ring.qk_stages);
    sibling = lay_out_fa4(one, sibling_ring.slots, sibling_ring.fused, sibling_ring.qk_stages);
    share_small_regions(two, *sibling);
    if (sibling->num_kv_stages >= 2 && fits(two) && fits(*sibling)) {
      main = std::move(two);
    } else {
      sibling.reset();
    }
  }
  plan.variants.push_back(std::move(main));
  if (sibling) {
    plan.can_switch_to_1q = true;
    plan.variants.push_back(*std::move(sibling));
  }
  sm100_deviate(resolved, config, ring, ring_is_tuned, plan);

  const bool deep = config.args.is_mla || config.rope_depth() > 0;
  const Sm100Budgets of_reference = deep ? Sm100Budgets{184, 96, 48} : Sm100Budgets{192, 88, 40};
  if (Status status = sm100_assign_roles(of_reference, dual_accumulator_budgets(spec), tuned, plan);
      !status) {
    return status.error();
  }
  plan.cluster = static_cast<int>(config.cta_group());
  plan.pv_first_quarters = split_p->first_quarters;
  return plan;
}

}  // namespace attnjit

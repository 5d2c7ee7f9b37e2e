// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100a and sm_103a kernels: with two O or with one, and what both have.
#include "plan/sm100/sm100_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/kernel/partials.h"
#include "plan/map/map_plan.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_deviations.h"
#include "plan/sm100/sm100_heuristics.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_ring.h"
#include "plan/sm100/sm100_roles.h"

namespace attnjit {
namespace {

/// Plans the kernel with a single accumulator, where two would take all of tensor memory. Errors:
/// kUnsupported with the reason where no tile serves the spec; kInvalid for a tuned value that
/// cannot be.
Result<Sm100Plan> plan_single_accumulator(const ResolvedSpec& resolved, ConfigKind kind,
                                          const Sm100Tuning& tuned) {
  const SpecFacts& spec = resolved;
  PlanOptions options = sm100_options(resolved, tuned);
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
  Sm100LayoutRequest tile(spec, plan);
  tile.num_qo = 1;
  tile.pair_cta = pair;
  plan.cluster = pair ? 2 : 1;
  options.pair_cta = pair;
  tile.swizzle_bytes =
      sm100_swizzle(spec, options).value_or(depth512_args(spec, options).swizzle_mode);
  plan.swizzle_bytes = tile.swizzle_bytes;
  tile.BN = sm100_single_accumulator_keys(pair);
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
  Status status = sm100_assign_roles(single_accumulator_budgets(plan), tuned, plan);
  if (!status) return status.error();
  plan.pv_first_quarters = split_p->first_quarters;
  plan.variants = {std::move(body)};
  sm100_deviate(resolved, tuned, plan);
  return plan;
}

/// The same with two, as Fa4Config and MlaConfig have.
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
  constexpr std::int64_t kLeastDepth = 64;  // that the reference serves
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
  Sm100Reasons reasons;
  const Result<std::int64_t> keys =
      sm100_choose_keys(spec, config, tuned, plan.block_mask, reasons.keys);
  if (!keys) return keys.error();
  Sm100LayoutRequest tile(spec, plan, config);
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
    tile.separate_o = true;
    ring = sm100_ring_beside_o(tile);
  }
  const Result<Sm100Ring> chosen = sm100_tune_ring(tile, ring, tuned);
  if (!chosen) return chosen.error();
  reasons.ring_is_tuned = chosen->slots != ring.slots || chosen->fused != ring.fused ||
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
  plan.variants.push_back(std::move(main));
  // The 1Q sibling shares its code: its ring is of the same kind, its K is staged alike, and the
  // barriers are one list.
  // NOTE: where partitions have fixed keys a row's bits are its own: a warpgroup has a query tile
  // to itself in every launch.
  if (tile.num_qo == 2 && !config.pair_cta && config.qk_depth <= 256 && spec.partition_keys == 0) {
    Sm100LayoutRequest one = tile;
    one.num_qo = 1;
    one.max_qk_stages = plan.variants.front().num_qk_stages;
    one.exact_qk_stages = true;
    one.barrier_num_qo = 2;
    const Sm100Ring sibling_ring = sm100_choose_ring(one, ring.fused);
    Sm100LayoutRequest both = tile;
    both.barrier_stages = one.barrier_stages = std::max(ring.stages(), sibling_ring.stages());
    Sm100Variant two = lay_out_fa4(both, ring.slots, ring.fused, ring.qk_stages);
    Sm100Variant sibling =
        lay_out_fa4(one, sibling_ring.slots, sibling_ring.fused, sibling_ring.qk_stages);
    share_small_regions(two, sibling);
    plan.can_switch_to_1q = sibling.num_kv_stages >= 2 && fits(two) && fits(sibling);
    if (plan.can_switch_to_1q) {
      plan.variants.front() = std::move(two);
      plan.variants.push_back(std::move(sibling));
    }
  }
  Status status = sm100_assign_roles(dual_accumulator_budgets(spec), tuned, plan);
  if (!status) return status.error();
  plan.cluster = static_cast<int>(config.cta_group());
  plan.pv_first_quarters = split_p->first_quarters;
  reasons.ring = ring;
  sm100_deviate(resolved, config, reasons, plan);
  return plan;
}

}  // namespace

Result<Sm100Plan> make_sm100_plan(const ResolvedSpec& resolved, const TuningValues* values) {
  const SpecFacts& spec = resolved;
  if (std::optional<Error> error = sm100_check_shape(spec)) return *std::move(error);
  const ConfigKind kind = resolve_config_kind(ConfigKind::kAuto, spec, resolved.options());
  const bool single_accumulator = sm100_has_single_accumulator(spec, resolved.options(), kind);
  const Result<Sm100Tuning> tuned = Sm100Tuning::read(values, single_accumulator);
  Sm100Tuning choices = tuned ? *tuned : Sm100Tuning();
  const bool can_pair = sm100_may_choose_pairs(resolved, kind, single_accumulator);
  // A row's match cannot name the caller's options, nor that a mask has a map: these go first.
  const PlanOptions& options = resolved.options();
  if (options.pair_cta || options.num_qo || walks_block_mask(resolved)) choices.pair_cta.reset();
  std::int64_t pair = 0;
  Status status = choices.take(&Sm100Tuning::pair_cta, 0, can_pair ? 1 : 0, 1, pair);
  if (!can_pair) choices.pair_cta.reset();
  const bool can_choose_num_qo = !options.num_qo && spec.partition_keys == 0 &&
                                 !single_accumulator && !options.pair_cta.value_or(pair != 0);
  std::int64_t num_qo = 2;
  if (options.num_qo) choices.num_qo.reset();
  if (status) {
    status = choices.take(&Sm100Tuning::num_qo, can_choose_num_qo ? 1 : 2, 2, 1, num_qo);
  }
  if (!can_choose_num_qo) choices.num_qo.reset();
  Result<Sm100Plan> plan = single_accumulator ? plan_single_accumulator(resolved, kind, choices)
                                              : plan_dual_accumulator(resolved, kind, choices);
  if (!plan) return plan;
  // A spec that no tiles serve is unsupported, whatever a row chooses for it.
  if (!tuned) return tuned.error();
  if (!status) return status.error();
  const Sm100Variant& body = plan->variants.front();
  plan->split = splits(spec);
  plan->partition_tiles = spec.partition_keys / body.BN;
  add_tensor_maps(*plan);
  plan->exp2_pairs = body.BN / 2;
  plan->exp2_fma_pairs = sm100_polynomial_pairs(spec, *plan, body);
  plan->can_pair = can_pair;
  // Where two query tiles leave no room there is no choice.
  plan->can_choose_num_qo = can_choose_num_qo && (choices.num_qo || body.num_qo == 2);
  for (const Sm100Knob& knob : kSm100Knobs) {
    if (knob.place == nullptr) continue;
    status = choices.take(knob.choice, 0, knob.most(*plan), 1, *plan.*knob.place);
    if (!status) return status.error();
  }
  if (spec.qkv_dtype == Dtype::kE4m3) {
    // The greatest power of two below e4m3's 448, so that nothing of P that can be kept is lost,
    // and the most that a maximum may grow: 2^(8 + 0.75) = 431 (docs/sm100.md).
    plan->p_bias = 8;
    plan->rescale_threshold = 0.75;
  } else if (plan->spec->upcasts_kv) {
    // P is fp16, whose small numbers are kept: with what a maximum may grow by it is 2^15 at most,
    // half of what fp16 holds.
    plan->p_bias = 7;
  }
  return plan;
}

}  // namespace attnjit

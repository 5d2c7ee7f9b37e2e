// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100a and sm_103a kernels: with two O or with one, and what both have.
#include "plan/sm100/sm100_plan.h"

#include <algorithm>
#include <optional>

#include "plan/kernel/partials.h"
#include "plan/map/map_plan.h"
#include "plan/reference/config_kind.h"
#include "plan/sm100/sm100_heuristics.h"
#include "plan/sm100/sm100_knobs.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_support.h"

namespace attnjit {

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
  if (options.pair_cta || options.num_qo || walks_map(resolved)) choices.pair_cta.reset();
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
  plan->row_copies = spec.copies_rows && !spec.upcasts_kv;
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
  for (const Sm100Variant& variant : plan->variants) {
    plan->smem_bytes = std::max(plan->smem_bytes, variant.smem_bytes);
  }
  return plan;
}

}  // namespace attnjit

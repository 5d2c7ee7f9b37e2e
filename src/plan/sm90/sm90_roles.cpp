// SPDX-License-Identifier: Apache-2.0
// Says what the warps of the sm_90a forward kernel do, and shares out the registers.
#include "plan/sm90/sm90_roles.h"

#include <fmt/format.h>

#include "plan/kernel/forward_support.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/names.h"

namespace attnjit {
namespace {

/// Whether consumers beside scales of keys keep as little as they can in registers: where they
/// spilled otherwise, and take no more time. NOTE: at depth 64 it took 1.02 to 1.09 of the time,
/// but 0.93 of a mask of bits, and at 256 1.02 of expressions (docs/sm90.md).
bool places_rows_anew(const AttentionSpec& spec, const Sm90Plan& plan) {
  const bool bools =
      contains(spec, MaskSpec::Kind::kMaterialized) && !spec::adds_to_scores(spec.mask);
  return plan.key_scales && (bools || (spec.qk_depth > 64 && spec.qk_depth <= 192));
}

/// Whether consumers have no registers for what they know of a work tile while its keys are
/// multiplied. NOTE: many of these kernels spilled, 8 to 656 bytes; others have room, and read
/// nothing again.
bool parks_work(const AttentionSpec& spec, const Sm90Plan& plan) {
  using Kind = MaskSpec::Kind;
  const int depth = spec.qk_depth;
  const bool simple = spec.mask.kind == Kind::kNull || spec.mask.kind == Kind::kCausal;
  const bool decode = decodes(spec, kSm90ConsumerRows);
  if (plan.places_rows_anew) return false;
  // Numbers of a tensor take registers with each tile; bools do where K and V have 16 bits.
  const bool eight_bits = is_e4m3(spec) || plan.widens_kv;
  const bool reads =
      contains(spec, Kind::kMaterialized) && (!eight_bits || spec::adds_to_scores(spec.mask));
  if (reads && plan.split && (!plan.widens_kv || depth <= 192)) return true;
  if (plan.widens_kv) {
    if (depth > 192) return !simple && !spec::adds_to_scores(spec.mask);
    return !simple && spec.ov_depth > 128 && plan.listed && plan.split;
  }
  if (decode) return depth > 192;
  // NOTE: causal ones spill 24 bytes, and took 1.05 of the time when they parked (docs/sm90.md).
  if (plan.key_scales && !simple && (depth <= 64 ? !plan.listed : plan.split)) return true;
  if (plan.key_scales && depth <= 64 && plan.split && plan.partition_tiles > 0) return true;
  if (!is_e4m3(spec) && depth > 128 && spec.ov_depth <= 128) {
    return !simple || plan.kv_lens || plan.split;
  }
  // NOTE: chunks with a softcap over pages spilled 28 bytes where they parked, and none without,
  // but for O of another type.
  const bool own_o = spec.output_dtype.value_or(spec.qkv_dtype) != spec.qkv_dtype;
  const bool alike = spec.score_mod.kind == ScoreModSpec::Kind::kIdentity || !plan.kv_lens || own_o;
  if (reads && depth > 192) return true;
  if (contains(spec, Kind::kChunked) && depth > 64 && alike && !is_e4m3(spec)) return true;
  if (depth <= 64) return false;
  if (depth > 192) {
    const bool part_of_keys = is_e4m3(spec) ? plan.partition_tiles > 0 : plan.split;
    const bool of_pages = plan.kv_lens && (spec.page_size > 0 || plan.listed);
    return (!simple && part_of_keys) || (!is_e4m3(spec) && of_pages);
  }
  const bool windowed = contains(spec, Kind::kSlidingWindow);
  const bool heads_apart = spec.group > 1 && !plan.pack_gqa;
  return plan.num_consumers == 3 &&
         ((windowed && (spec.return_lse || heads_apart || own_o || plan.split)) ||
          (!is_e4m3(spec) && plan.kv_lens && (plan.box_keys < plan.BN || plan.cuts)));
}

}  // namespace

bool sm90_rewrites_kv(const AttentionSpec& spec) { return is_e4m3(spec) || widens_kv(spec); }

int sm90_copy_warps(const Sm90Plan& plan) { return plan.num_row_stages > 0 ? 1 : 4; }

std::vector<PlannedKernel::Role> sm90_roles(const Sm90Plan& plan) {
  std::vector<PlannedKernel::Role> roles{{"load", 0, plan.row_copies ? sm90_copy_warps(plan) : 1}};
  if (plan.num_row_stages > 0) {
    roles.push_back(
        {plan.widens_kv ? "widen V" : "transpose", kSm90FirstVRewriter, kSm90VRewriters});
  }
  if (plan.widens_kv) roles.push_back({"widen K", 4, kSm90KRewriters});
  for (int i = 0; i < plan.num_consumers; ++i) {
    roles.push_back({fmt::format("consumer {}", i), 4 * (plan.producer_warpgroups() + i), 4});
  }
  return roles;
}

int sm90_launch_registers(const Sm90Plan& plan) {
  constexpr int kRegisterFile = 65536;  // of an SM
  return kRegisterFile / (plan.threads() * plan.ctas_per_sm) / 8 * 8;
}

void sm90_share_registers(const AttentionSpec& spec, Sm90Plan& plan) {
  // In all no more than the CTA is launched with: 3 x 168, or 4 x 128.
  // A producer that loads a tile in several boxes or row by row, or asks a mask about tiles, has
  // more of its own; and still more where it walks a map, too, or where sequences differ.
  const bool deep = spec.qk_depth > 128;
  const bool of_sequences = plan.listed && plan.kv_lens;
  const bool many = (plan.mapped && (plan.kv_lens || plan.split || (plan.map_bits && deep))) ||
                    (of_sequences && deep);
  // As much where it counts units of rows, in each sequence.
  const bool units = plan.kv_lens && plan.pack_gqa && kSm90ConsumerRows % spec.group != 0;
  const bool several = plan.box_keys < plan.BN || plan.listed || units ||
                       (plan.kv_lens && plan.split && spec.qk_depth > 192);
  // Most where sequences' keys have parts, too, and O has columns to spare.
  const bool most_of_sequences = of_sequences && plan.split && deep && spec.ov_depth <= 128;
  const int spare = most_of_sequences ? 48 : many ? 32 : several ? 16 : 0;
  plan.producer_registers = plan.num_consumers == 2 ? 24 + spare : 32;
  plan.consumer_registers = plan.num_consumers == 2 ? 240 - spare / 2 : 160;
  if (plan.num_consumers == 3 && of_sequences && spec.qk_depth > 64 && plan.box_keys < plan.BN) {
    plan.producer_registers = 56;
    plan.consumer_registers = 152;
  }
  if (plan.num_consumers == 1) {
    plan.producer_registers = 24 + spare;
    plan.consumer_registers = 232 - spare;
  }
  if (plan.widens_kv) {
    // Consumers have what the two warpgroups before them leave of what the CTA is launched with.
    // NOTE: two CTAs per SM have none to spare.
    const bool rows_of_sequences = plan.row_copies && plan.kv_lens && spec.qk_depth <= 96;
    const bool lacks = units || (spec.qk_depth > 64 ? of_sequences || rows_of_sequences
                                                    : plan.key_scales && plan.kv_lens);
    const bool more = lacks && plan.ctas_per_sm == 1;
    // NOTE: O of 256 columns leaves no more.
    const bool most = more && spec.qk_depth > 192 && spec.ov_depth < 256;
    plan.producer_registers = most ? 56 : more ? 48 : 40;
    const int left = plan.threads() / 128 * sm90_launch_registers(plan) -
                     plan.producer_warpgroups() * plan.producer_registers;
    plan.consumer_registers = left / plan.num_consumers / 8 * 8;
  }
  if (is_e4m3(spec)) {
    // Of e4m3 its warpgroup transposes V, and P of the others has half of the registers. NOTE:
    // beside O of more columns the sums by product need what three consumers have of 16 bits.
    const bool most =
        plan.num_consumers == 3 && spec.qk_depth > 96 && plan.sums_by_product && !plan.row_copies;
    const bool holds = plan.held_q_steps > 0;
    plan.producer_registers = most ? 32 : holds ? 40 : 56;
    plan.consumer_registers = most                      ? 160
                              : plan.num_consumers == 3 ? 152
                              : holds                   ? 232
                              : plan.num_consumers == 2 ? 224
                                                        : 200;
  }
  // NOTE: of other types one thread or warp of it has work, for which as few are enough.
  plan.few_registers = plan.widens_kv || (is_e4m3(spec) && plan.producer_registers < 40);
  plan.parks_list = plan.few_registers && !plan.kv_lens && !plan.claims_work;
  plan.places_rows_anew = places_rows_anew(spec, plan);
  plan.parks_work = parks_work(spec, plan);
  // Four warpgroups were launched with 128 each: the idle one has what a producer has.
  if (plan.idle_warpgroups > 0) plan.consumer_registers = 256 - plan.producer_registers;
}

}  // namespace attnjit

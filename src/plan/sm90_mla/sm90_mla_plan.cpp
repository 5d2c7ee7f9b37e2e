// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel of absorbed MLA and head_dim above 256: what it serves, its stages, its
// shared memory.
#include "plan/sm90_mla/sm90_mla_plan.h"

#include <fmt/format.h>

#include <utility>

#include "plan/kernel/fields.h"
#include "plan/kernel/partials.h"

namespace attnjit {
namespace {

constexpr int kConsumers = Sm90MlaPlan::kConsumers;
constexpr int kWarps = 4;  // of a warpgroup
/// P of 64 x 64 in 16 bits, and of each thread's two rows the maximum and the sum.
constexpr int kRecordBytes = 64 * 64 * 2 + 128 * 16;

/// CTAs that may upcast blocks of K for each other: where the heads of a position are two tiles.
int most_cluster_of(const SpecFacts& spec) {
  const bool halves = (1 << mla_head_shift(spec)) == 2 * MlaTiles::kRows;
  return halves && spec.cache_format == CacheFormat::kDsv32 ? 2 : 1;
}

/// What follows of the stages and of the cluster: shared memory and barriers, in their order.
void lay_out(Sm90MlaPlan& plan) {
  MlaTiles& tiles = plan.tiles;
  // NOTE: not where K is upcast: consumers have no registers for it, and spilled 48 bytes; and a
  // CTA that upcasts for another one has that as its cluster's.
  tiles.cluster_reduces = tiles.stream_k && tiles.cluster == 1 && tiles.upcast_blocks == 0;
  tiles.clusters_for_l2 = tiles.cluster == 1 && !tiles.separate_v();
  // One lane of each warp that read it releases memory; what V has not of K, such as the rope's
  // block, is of the warpgroup that makes S. What a CTA upcasts for the other, both release to
  // it.
  add_mla_barriers({.work = kConsumers * kWarps,
                    .q = kConsumers * kWarps,
                    .latent = kWarps * tiles.cluster,
                    .middle_block = kConsumers * kWarps * tiles.cluster,
                    .rope = kWarps},
                   plan);
  if (tiles.cluster_reduces) {
    plan.barriers.add_group("kBarClusterReduce", "peer done", kConsumers * kWarps);
    plan.barriers.add("peer's results full", 1);
  }
  lay_out_mla_smem({.p_bytes = kRecordBytes,
                    .stash_bytes = MlaTiles::kStashBytes,
                    .q_name = "Q 0",
                    .work_name = "work tiles"},
                   plan);
}

/// What a tuning row may choose.
std::vector<Knob<MlaTiles>> knobs_of(const MlaTiles& tiles) {
  // Even: the parity of a stage says whose tile it is. One of head_dim above 256 counts as two
  // (MlaTiles::barrier_stages).
  std::vector<std::int64_t> stages{2, 4, 6, 8};
  if (tiles.separate_v()) stages = {1, 2};
  std::vector<Knob<MlaTiles>> knobs{{"num_stages", &MlaTiles::num_stages, std::move(stages)}};
  if (most_cluster_of(*tiles.spec) > 1) knobs.push_back({"cluster", &MlaTiles::cluster, {1, 2}});
  return knobs;
}

Constants constants_of(const ResolvedSpec& resolved, const Sm90MlaPlan& plan) {
  Constants constants = mla_constants(resolved, plan.tiles, Sm90MlaPlan::kThreads);
  constants.add("kPBias", 0.0);
  constants.add("kExp2FmaPairs", 0);
  constants.add("kSumsByProduct", false);
  constants.add("kKeyScalesOffset", 0);
  constants.add("kProducerRegisters", plan.producer_registers);
  constants.add("kConsumerRegisters", plan.consumer_registers);
  add_mla_regions(plan.smem, constants);
  return constants;
}

/// Shares registers out: in all no more than the CTA is launched with, 3 x 168. Copies of a tile in
/// several boxes take more, and so do copies of rows: most where a lane upcasts them, or copies 32
/// of K or V.
void share_registers(const SpecFacts& spec, Sm90MlaPlan& plan) {
  const MlaTiles& tiles = plan.tiles;
  const bool one_box = !tiles.row_copies && tiles.box_keys == MlaTiles::kKeys;
  const bool most = tiles.upcast_blocks > 0 || (tiles.row_copies && tiles.separate_v());
  // Consumers whose half of O is narrow leave more to those that load, and to those that upcast K.
  const bool narrow = spec.ov_depth <= 256;
  const bool least = one_box && !narrow;
  plan.producer_registers = least ? 24 : most ? 56 : 40;
  plan.consumer_registers = least ? 240 : most ? 224 : 232;
  if (tiles.upcast_blocks > 0 && narrow) {
    plan.producer_registers = 88;
    plan.consumer_registers = 208;
  }
}

/// Why the template does not serve a spec; empty: it does.
std::string sm90_mla_unsupported_reason(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  const PlanOptions& options = resolved.options();
  if (options.pair_cta.value_or(false)) return "sm_90a has no MMA of two CTAs (pair_cta)";
  if (options.debug_waits.value_or(false)) {
    return fmt::format(
        "{} bounded waits (debug_waits) on sm_90a: O leaves no registers for them",
        spec.head_dim_above_256 ? "head_dim above 256 (qk_depth) has no" : "absorbed MLA has no");
  }
  return mla_unsupported_reason(resolved);
}

/// `tuned` holds what a tuning row overrides, or is null. Errors: kInvalid for a tuned name or
/// value that this plan cannot take.
Result<Sm90MlaPlan> make_sm90_mla_plan(const ResolvedSpec& resolved, const TuningValues* tuned) {
  const SpecFacts& spec = resolved;
  Sm90MlaPlan plan;
  MlaTiles& tiles = plan.tiles;
  tiles = mla_tiles(resolved);
  tiles.two_readers = true;
  // V of its own is released in the order in which it is loaded.
  tiles.stage_loaders = tiles.separate_v() || tiles.row_copies ? 1 : 2;
  tiles.cluster = most_cluster_of(spec);
  share_registers(spec, plan);
  Status chosen = choose_mla_tiles(knobs_of(tiles), "sm_90a", tuned, &lay_out, plan);
  if (!chosen) return chosen.error();
  lay_out(plan);
  return plan;
}

Status fill_from_sm90_mla(const Sm90MlaPlan& mla, KernelPlan& plan) {
  const MlaTiles& tiles = mla.tiles;
  Status filled = fill_mla_kernel(mla, "sm90_mla/decode.cuh", Sm90MlaPlan::kThreads,
                                  constants_of(plan.spec, mla), plan);
  std::vector<PlannedKernel::Role>& roles = plan.main().roles;
  roles = {{"load", 0, tiles.row_copies ? kWarps : tiles.stage_loaders}};
  for (int i = 0; i < kConsumers; ++i) {
    roles.push_back({fmt::format("consumer {}", i), kWarps * (1 + i), kWarps});
  }
  plan.partials.quad_order = splits(*tiles.spec);
  return filled;
}

}  // namespace

Status plan_sm90_mla(const TuningValues* tuned, KernelPlan& plan) {
  plan.reason = sm90_mla_unsupported_reason(plan.spec);
  plan.supported = plan.reason.empty();
  Result<Sm90MlaPlan> mla = make_sm90_mla_plan(plan.spec, tuned);
  if (!mla) return mla.error();
  plan.sm90_mla = std::make_shared<const Sm90MlaPlan>(*std::move(mla));
  return plan.supported ? fill_from_sm90_mla(*plan.sm90_mla, plan) : Status();
}

std::vector<TuningKnob> sm90_mla_knobs(const KernelPlan& plan) {
  const MlaTiles& tiles = plan.sm90_mla->tiles;
  return chosen_knobs(knobs_of(tiles), tiles);
}

void add_sm90_mla(const SpecFacts& spec, const Sm90MlaPlan& plan, nlohmann::ordered_json& json) {
  const MlaTiles& tiles = plan.tiles;
  // As of an Sm90Plan, with what this kernel always has.
#define TILE(name) ATTNJIT_MEMBER(MlaTiles, name)
  add_members(
      tiles, json, std::pair{"BM", MlaTiles::kRows}, std::pair{"BN", MlaTiles::kKeys},
      TILE(box_keys), std::pair{"num_consumers", kConsumers}, std::pair{"ctas_per_sm", 1},
      TILE(num_stages), std::pair{"num_v_stages", tiles.separate_v() ? tiles.num_stages : 0},
      std::pair{"num_q_stages", 1}, std::pair{"num_raw_stages", 0}, std::pair{"o_blocks", 0},
      std::pair{"ping_pong", false}, TILE(pair_tiles), std::pair{"kv_lens", spec.lengths_differ},
      std::pair{"dynamic_schedule", false}, TILE(row_copies), std::pair{"overlaps", true},
      std::pair{"block_sparse", tiles.spec->block_sparse}, std::pair{"block_mask", false},
      std::pair{"block_mask_bits", false}, std::pair{"split", splits(spec)}, TILE(stream_k),
      TILE(partition_tiles), std::pair{"rescale_by_row", spec.partition_keys > 0},
      std::pair{"pack_gqa", mla_packed_heads(spec) == spec.group}, TILE(l2_bytes),
      std::pair{"producer_registers", plan.producer_registers},
      std::pair{"consumer_registers", plan.consumer_registers},
      std::pair{"padded_qk_depth", spec.qk_depth}, std::pair{"padded_ov_depth", spec.ov_depth},
      std::pair{"q_bytes", mla_tile_bytes(spec)}, std::pair{"k_bytes", mla_tile_bytes(spec)},
      std::pair{"v_bytes", mla_own_v_bytes(spec)}, std::pair{"v_raw_stage_bytes", 0},
      std::pair{"k_raw_stage_bytes", 0}, std::pair{"upcasts_kv", false},
      std::pair{"kv_row_bytes", 128}, std::pair{"exp2_fma_pairs", 0},
      std::pair{"sums_by_product", false}, std::pair{"q_register_steps", 0},
      std::pair{"p_bias", 0.0}, std::pair{"rescale_threshold", MlaPlan::kRescaleThreshold});
#undef TILE
}

}  // namespace attnjit

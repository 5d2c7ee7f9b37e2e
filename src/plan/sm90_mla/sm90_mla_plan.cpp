// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel of absorbed MLA and deep heads: what it serves, its stages, its shared
// memory.
#include "plan/sm90_mla/sm90_mla_plan.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "plan/constants.h"
#include "plan/forward_support.h"
#include "plan/merge/merge_plan.h"
#include "plan/sm90/sm90_knobs.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"

namespace attnjit {
namespace {

constexpr int kConsumers = 2;
constexpr int kWarps = 4;  // of a warpgroup
/// P of 64 x 64 in 16 bits, and of each thread's two rows the maximum and the sum.
constexpr int kRecordBytes = 64 * 64 * 2 + 128 * 16;
// Even: the parity of a stage says whose tile it is. One of deep heads counts as two
// (MlaTiles::barrier_stages).
constexpr std::array kStages{2, 4, 6, 8};
constexpr std::array kDeepStages{1, 2};

/// CTAs that may widen blocks of K for each other: where the heads of a position are two tiles.
int most_cluster_of(const AttentionSpec& spec) {
  const bool halves = (1 << mla_head_shift(spec)) == 2 * MlaTiles::kRows;
  return halves && spec.cache_format == CacheFormat::kDsv32 ? 2 : 1;
}

std::vector<std::int64_t> stages_of(const Sm90Plan& plan) {
  if (plan.v_bytes > 0) return {kDeepStages.begin(), kDeepStages.end()};
  return {kStages.begin(), kStages.end()};
}

/// The mbarriers, in the order in which they lie in shared memory.
std::vector<MlaBarrierGroup> barrier_groups(const AttentionSpec& spec, const Sm90Plan& plan) {
  // One lane of each warp that read it hands memory back; what V has not of K, such as the rope's
  // block, is of the warpgroup that makes S. What a CTA widens for the other, both hand back to it.
  MlaReaders readers;
  readers.work = kConsumers * kWarps;
  readers.q = kConsumers * kWarps;
  readers.latent = kWarps * plan.cluster;
  readers.middle_block = kConsumers * kWarps * plan.cluster;
  readers.rope = kWarps;
  std::vector<MlaBarrierGroup> groups = mla_barrier_groups(spec, plan.mla, readers);
  if (plan.mla.joins) {
    groups.push_back(
        {"kBarJoin", {{"peer done", kConsumers * kWarps}, {"peer's results full", 1}}});
  }
  return groups;
}

/// What follows of the stages and of the cluster: shared memory and barriers, in their order.
void lay_out(const AttentionSpec& spec, Sm90Plan& plan) {
  using enum Sm90Region;
  MlaTiles& tiles = plan.mla;
  tiles.num_stages = plan.num_stages;
  tiles.cluster = plan.cluster;
  // NOTE: not where K is widened: consumers have no registers for it, and spilled 48 bytes; and a
  // CTA that widens for another one has that as its cluster's.
  tiles.joins = tiles.runs && tiles.cluster == 1 && tiles.widened_blocks == 0;
  tiles.couples = tiles.cluster == 1 && !tiles.own_v;
  plan.barriers = mla_barriers(barrier_groups(spec, plan));
  MemoryLayout<Sm90Region> smem;
  smem.add(kQ, plan.q_bytes);
  for (int i = 0; i < plan.num_stages; ++i) {
    smem.add(kK, plan.k_bytes, 1, i);
    smem.add(kV, plan.v_bytes, 1, i);
  }
  smem.add(kP, kRecordBytes);
  smem.add(kListed, mla_listed_bytes(spec, tiles));
  smem.add(kLists, tiles.parks_lists() ? MlaTiles::kListsBytes : 0);
  smem.add(kParked, MlaTiles::kParkedBytes);
  smem.add(kWork, MlaTiles::kWorkBytes);
  smem.add(kBarriers, std::int64_t{8} * static_cast<std::int64_t>(plan.barriers.size()));
  plan.smem_bytes = smem.end_of_last();
  plan.smem = std::move(smem);
}

/// What a tuning row may choose.
std::vector<Sm90Knob> knobs_of(const AttentionSpec& spec, const Sm90Plan& plan) {
  std::vector<Sm90Knob> knobs{{"num_stages", &Sm90Plan::num_stages, stages_of(plan)}};
  if (most_cluster_of(spec) > 1) knobs.push_back({"cluster", &Sm90Plan::cluster, {1, 2}});
  return knobs;
}

std::vector<ConfigConstant> constants_of(const AttentionSpec& spec, const Sm90Plan& plan) {
  Constants constants;
  add_mla_constants(spec, plan.mla, constants);
  constants.add("kThreads", plan.threads());
  constants.add_bool("kRescaleByRow", plan.rescale_by_row);
  constants.add_bool("kDebugWaits", false);
  constants.add_float("kRescaleThreshold", plan.rescale_threshold);
  constants.add_float("kPBias", plan.p_bias);
  constants.add("kExp2FmaPairs", plan.exp2_fma_pairs);
  constants.add("kProducerRegisters", plan.producer_registers);
  constants.add("kConsumerRegisters", plan.consumer_registers);
  constants.add("kQOffset", sm90_begin_of(Sm90Region::kQ, plan));
  constants.add("kKvOffset", sm90_begin_of(Sm90Region::kK, plan));
  constants.add("kRecordOffset", sm90_begin_of(Sm90Region::kP, plan));
  constants.add("kListedOffset", sm90_begin_of(Sm90Region::kListed, plan));
  constants.add("kListsOffset", sm90_begin_of(Sm90Region::kLists, plan));
  constants.add("kParkedOffset", sm90_begin_of(Sm90Region::kParked, plan));
  constants.add("kWorkOffset", sm90_begin_of(Sm90Region::kWork, plan));
  constants.add("kBarrierOffset", sm90_begin_of(Sm90Region::kBarriers, plan));
  add_mla_barriers(barrier_groups(spec, plan), constants);
  constants.add("kSmemBytes", plan.smem_bytes);
  constants.add_users(spec);
  return std::move(constants).take();
}

}  // namespace

std::string sm90_mla_unsupported_reason(const ResolvedSpec& resolved) {
  const PlanOptions& options = resolved.options();
  if (options.pair_cta.value_or(false)) return "sm_90a has no MMA of two CTAs (pair_cta)";
  if (options.debug_waits.value_or(false)) {
    return fmt::format("{} bounded waits (debug_waits) on sm_90a: O leaves no registers for them",
                       has_deep_heads(*resolved) ? "heads deeper than 256 (qk_depth) have no"
                                                 : "absorbed MLA has no");
  }
  return mla_unsupported_reason(resolved);
}

Result<Sm90Plan> make_sm90_mla_plan(const ResolvedSpec& resolved, const TuningValues* tuned) {
  const AttentionSpec& spec = *resolved;
  Sm90Plan plan;
  MlaTiles& tiles = plan.mla;
  tiles = mla_tiles(resolved);
  tiles.two_readers = true;
  // V of its own is handed back in the order in which it is loaded.
  tiles.stage_loaders = tiles.own_v || tiles.row_copies ? 1 : 2;
  plan.BN = MlaTiles::kKeys;
  plan.num_consumers = kConsumers;
  plan.num_q_stages = 1;
  plan.pack_gqa = mla_packed_heads(spec) == spec.group;
  plan.overlaps = true;
  plan.kv_lens = tiles.kv_lens;
  plan.split = tiles.split;
  plan.runs = tiles.runs;
  plan.listed = tiles.trims;
  plan.row_copies = tiles.row_copies;
  plan.widened_blocks = tiles.widened_blocks;
  plan.cluster = most_cluster_of(spec);
  plan.box_keys = tiles.box_keys;
  plan.partition_tiles = tiles.partition_tiles;
  plan.rescale_by_row = spec.partition_keys > 0;
  plan.l2_bytes = tiles.l2_bytes;
  // In all no more than the CTA is launched with, 3 x 168. Copies of a tile in several boxes take
  // more, and so do copies of rows: most where a lane widens them, or copies 32 of K or V.
  const bool one_box = !plan.row_copies && plan.box_keys == plan.BN;
  const bool most = tiles.widened_blocks > 0 || (plan.row_copies && tiles.own_v);
  // Consumers whose half of O is narrow leave more to those that load, and to those that widen K.
  const bool narrow = spec.ov_depth <= 256;
  const bool least = one_box && !narrow;
  plan.producer_registers = least ? 24 : most ? 56 : 40;
  plan.consumer_registers = least ? 240 : most ? 224 : 232;
  if (tiles.widened_blocks > 0 && narrow) {
    plan.producer_registers = 88;
    plan.consumer_registers = 208;
  }
  plan.padded_qk_depth = spec.qk_depth;
  plan.padded_ov_depth = spec.ov_depth;
  plan.q_bytes = plan.k_bytes = mla_tile_bytes(spec);
  plan.v_bytes = mla_own_v_bytes(spec);
  plan.pair_tiles = tiles.pair_tiles;
  for (const std::int64_t stages : stages_of(plan)) {
    Sm90Plan more = plan;
    more.num_stages = static_cast<int>(stages);
    lay_out(spec, more);
    const bool fits = more.smem_bytes <= sm90_smem_room(more);
    if (plan.num_stages == 0 || fits) plan.num_stages = more.num_stages;
  }
  if (tuned != nullptr) {
    if (Status status = sm90_apply(
            knobs_of(spec, plan),
            tiles.own_v ? "an sm_90a plan of deep heads" : "an sm_90a plan of absorbed MLA", *tuned,
            plan);
        !status)
      return status.error();
  }
  if (tiles.own_v) plan.num_v_stages = plan.num_stages;
  plan.BM = MlaTiles::kRows;
  lay_out(spec, plan);
  return plan;
}

Status fill_from_sm90_mla(const Sm90Plan& mla, KernelPlan& plan) {
  if (mla.smem_bytes > sm90_smem_room(mla)) {
    // Only a tuning table can ask for this; the choice above is tested to fit.
    return make_error(ErrorCode::kInvalid,
                      fmt::format("{} stages need {} bytes of shared memory; a CTA has {}",
                                  mla.num_stages, mla.smem_bytes, sm90_smem_room(mla)),
                      "num_stages");
  }
  PlannedKernel& kernel = plan.main();
  kernel.entry = mla.v_bytes > 0 ? "attnjit_deep_forward" : "attnjit_mla_decode";
  kernel.kernel_header = "sm90_mla/decode.cuh";
  kernel.threads = mla.threads();
  kernel.cluster = mla.cluster;
  kernel.overlaps = mla.overlaps;
  kernel.launch_registers = sm90_launch_registers(mla);
  kernel.smem_bytes = mla.smem_bytes;
  kernel.smem_map =
      mla.smem.named([&](const Sm90SmemRange& range) { return sm90_range_name(range, mla); });
  kernel.barriers = mla.barriers;
  kernel.roles = sm90_roles(mla);
  if (!mla.row_copies) kernel.roles.front().num_warps = mla.mla.stage_loaders;
  kernel.constants = constants_of(plan.spec, mla);
  kernel.parameters = mla_parameters(plan, mla.mla);
  add_split_deviation(plan);
  return {};
}

std::vector<TuningKnob> sm90_mla_knobs(const KernelPlan& plan) {
  return sm90_chosen(knobs_of(plan.spec, *plan.sm90), *plan.sm90);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100a kernel of absorbed MLA and head_dim above 256: what it serves, its stages, its
// shared and tensor memory.
#include "plan/sm100_mla/sm100_mla_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "plan/kernel/fields.h"
#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr int kThreads = 384;
constexpr int kRegisters = launch_registers(kThreads);
constexpr int kBuffers = 2;  // of S and of P
constexpr int kSoftmaxWarps = 4;
constexpr int kProductWarps = 2;
constexpr int kMaxStages = 8;

/// Shared memory and barriers, in their order.
void lay_out(Sm100MlaPlan& plan) {
  const MlaTiles& tiles = plan.tiles;
  // Products release what they read: of a latent block of K those of S and those of O, of V of
  // its own those of O.
  const int latent = tiles.cluster * (tiles.separate_v() ? 1 : 2);
  add_mla_barriers({.work = kSoftmaxWarps + kProductWarps,
                    .q = 1,
                    .latent = latent,
                    .middle_block = latent,
                    .rope = tiles.cluster,
                    .listed = kSoftmaxWarps},
                   plan);
  plan.barriers.add_group("kBarSFull", "S {} full", 1, kBuffers);
  plan.barriers.add_group("kBarSEmpty", "S {} empty", kSoftmaxWarps, kBuffers);
  plan.barriers.add_group("kBarPFull", "P {} full", kSoftmaxWarps, kBuffers);
  plan.barriers.add_group("kBarOFull", "O {} full", 1, kBuffers);
  lay_out_mla_smem({.tmem_address_bytes = 8}, plan);
}

/// A product of 64 rows has half of the lanes: O's two halves share their columns, and P, of which
/// each needs one, lies in both.
void lay_out_tmem(const SpecFacts& spec, Sm100MlaPlan& plan) {
  using enum Region;
  const int columns = MlaTiles::kBlockColumns;
  plan.tmem.add(kO, "O", std::int64_t{(mla_latent_blocks(spec) + 1) / 2} * columns);
  plan.tmem.add_stages(kS, "S{}", kBuffers, MlaTiles::kKeys);
  plan.tmem.add_stages(kP, "P{}", kBuffers, MlaTiles::kKeys / 2);
}

/// CTAs that may load blocks of K and V for each other: of absorbed MLA where a position's heads
/// are two tiles. NOTE: waits that are bounded are for the CTA's own barriers.
int most_cluster_of(const ResolvedSpec& resolved, const MlaTiles& tiles) {
  const bool bounded = resolved.options().debug_waits.value_or(false);
  const bool halves = tiles.separate_v() || (1 << mla_head_shift(resolved)) > MlaTiles::kRows;
  return tiles.row_copies || bounded || !halves ? 1 : 2;
}

/// Whether they do where no row says: of prompts of head_dim above 256, for whose K and V L2 is too
/// slow (docs/mla.md). Ragged batches and pages hold decodes, too, of which a cluster's other CTA
/// would have no rows.
bool clusters_by_default(const ResolvedSpec& resolved, const MlaTiles& tiles) {
  const SpecFacts& spec = resolved;
  return tiles.separate_v() && !spec.lengths_differ && !splits(spec) &&
         !spec.decodes(MlaTiles::kRows) && most_cluster_of(resolved, tiles) > 1;
}

/// What a tuning row may choose.
std::vector<Knob<MlaTiles>> knobs_of(const ResolvedSpec& resolved, const MlaTiles& tiles) {
  // A tile is loaded while another is multiplied; where V has memory of its own, K while V is.
  std::vector<std::int64_t> stages;
  for (int i = tiles.separate_v() ? 1 : 2; i <= kMaxStages; ++i) stages.push_back(i);
  std::vector<std::int64_t> clusters{1};
  if (most_cluster_of(resolved, tiles) > 1) clusters.push_back(2);
  return {{"num_stages", &MlaTiles::num_stages, std::move(stages)},
          {"cluster", &MlaTiles::cluster, std::move(clusters)}};
}

/// One warp loads by TMA, four copy rows; half of them load V where it has memory of its own.
std::vector<PlannedKernel::Role> roles_of(const MlaTiles& tiles) {
  const int loading = tiles.row_copies ? 4 : 1, half = tiles.row_copies ? 2 : 1;
  std::vector<PlannedKernel::Role> roles{{"load", 0, loading}};
  if (tiles.loads_apart) roles = {{"load K", 0, half}, {"load V", 2, half}};
  roles.insert(roles.end(),
               {{"softmax", 4, kSoftmaxWarps}, {"products S", 8, 1}, {"products O", 9, 1}});
  return roles;
}

constexpr const char* kPacked =
    "a tile has the heads of a group where that wastes no rows, or in decodes";

/// Where depth 512 leaves Depth512Config, a pair of CTAs that multiply 128 rows. @pre the plan is
/// whole but for these.
void add_deviations(const Sm100MlaPlan& mla, KernelPlan& plan) {
  const SpecFacts& spec = plan.spec;
  const Depth512Config reference(depth512_args(spec, plan.spec.options()));
  const auto add = [&](const char* why, const auto&... fields) {
    compare(reference, mla, "", why, plan.deviations, fields...);
  };
  using D512 = Depth512Config;
  const int keys = MlaTiles::kKeys, shift = mla_head_shift(spec);
  // Also of a cluster, whose CTAs load for each other, each has products of its own.
  add("one CTA serves decodes, ragged batches and uneven masks, too",
      std::tuple{"cluster", D512::cta_group, mla.tiles.cluster},
      std::tuple{"MMA_M", &D512::MMA_M, MlaTiles::kRows},
      std::tuple{"k_rows_per_cta", &D512::k_rows_per_cta, keys},
      std::tuple{"v_cols_per_cta", &D512::v_cols_per_cta, spec.ov_depth});
  add("P is read from tensor memory, and K and V of one CTA have a place each",
      std::tuple{"BN", &D512::BN, keys}, std::tuple{"BK1", &D512::BK1, keys},
      std::tuple{"p_buffer_bytes", &D512::p_buffer_bytes, 0},
      ATTNJIT_BOTH(D512, Sm100MlaPlan, tmem_used));
  const char* whole = "a stage is a whole tile of K and one of V, in blocks of 64 columns";
  const bool tuned_stages =
      plan.tuned_by != nullptr && plan.tuned_by->choose.contains("num_stages");
  add(tuned_stages ? "tuned" : whole,
      std::tuple{"num_kv_stages", &D512::num_kv_stages, mla.tiles.num_stages});
  add(whole, std::tuple{"num_qk_stages", &D512::num_qk_stages, mla_blocks(spec)},
      std::tuple{"BK0", &D512::BK0, MlaTiles::kBlockColumns},
      std::tuple{"smem_used", &D512::smem_used, mla.smem.end_of_last()},
      std::tuple{"num_mbarriers", &D512::num_mbarriers, mla.barriers.size()});
  deviate(plan.deviations, "fuse_gqa", reference.fuse_gqa(), shift > 0, kPacked);
  add(kPacked, std::tuple{"BM_eff", &D512::BM_eff, std::max(MlaTiles::kRows >> shift, 1)});
  add("no role gives registers away, and none spills",
      std::tuple{"registers of the softmax warps", 256, kRegisters},
      std::tuple{"registers of the MMA and load warps", 64, kRegisters});
  add("the softmax warps rescale O themselves", std::tuple{"warps of correction", 4, 0});
}

Constants constants_of(const ResolvedSpec& resolved, const Sm100MlaPlan& plan) {
  Constants constants = mla_constants(resolved, plan.tiles, kThreads);
  add_mla_regions(plan.smem, constants);
  constants.add("kTmemO", plan.tmem.begin_of(Region::kO));
  constants.add("kTmemS", plan.tmem.begin_of(Region::kS));
  constants.add("kTmemP", plan.tmem.begin_of(Region::kP));
  constants.add("kTmemColumns", plan.tmem_allocated());
  return constants;
}

/// Why the template does not serve a spec; empty: it does.
std::string sm100_mla_unsupported_reason(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  if (resolved.options().pair_cta.value_or(false)) {
    return fmt::format("the kernel of {} has no pairs of CTAs (pair_cta) yet",
                       spec.head_dim_above_256 ? "head_dim above 256 (qk_depth)" : "absorbed MLA");
  }
  return mla_unsupported_reason(resolved);
}

/// `tuned` holds what a tuning row overrides, or is null. Errors: kInvalid for a tuned name or
/// value that this plan cannot take.
Result<Sm100MlaPlan> make_sm100_mla_plan(const ResolvedSpec& resolved, const TuningValues* tuned) {
  const SpecFacts& spec = resolved;
  Sm100MlaPlan plan;
  plan.tiles = mla_tiles(resolved);
  plan.tiles.loads_apart = plan.tiles.separate_v();
  plan.tiles.cluster = clusters_by_default(resolved, plan.tiles) ? 2 : 1;
  Status chosen =
      choose_mla_tiles(knobs_of(resolved, plan.tiles), "sm_100a", tuned, &lay_out, plan);
  if (!chosen) return chosen.error();
  // NOTE: the barrier of a sequence's last tile is one for all stages. With several, the CTA that
  // is ahead could load the next sequence's before the other has heard of all of this one's.
  if (plan.tiles.cluster > 1 && plan.tiles.spec->lengths_differ && plan.tiles.num_stages > 1) {
    return spec::invalid(
        "tuning.cluster",
        "is 2; where sequences differ in length only with one stage (num_stages 1)");
  }
  lay_out(plan);
  lay_out_tmem(spec, plan);
  return plan;
}

Status fill_from_sm100_mla(const Sm100MlaPlan& mla, KernelPlan& plan) {
  plan.main().tmem_map = mla.tmem.map();
  plan.main().roles = roles_of(mla.tiles);
  if (resolve_config_kind(ConfigKind::kAuto, plan.spec.given(), plan.spec.options()) ==
      ConfigKind::kDepth512) {
    add_deviations(mla, plan);
  }
  return fill_mla_kernel(mla, "sm100_mla/decode.cuh", kThreads, constants_of(plan.spec, mla), plan);
}

}  // namespace

Status plan_sm100_mla(const TuningValues* tuned, KernelPlan& plan) {
  plan.reason = sm100_mla_unsupported_reason(plan.spec);
  plan.supported = plan.reason.empty();
  if (!plan.supported) return {};
  Result<Sm100MlaPlan> mla = make_sm100_mla_plan(plan.spec, tuned);
  if (!mla) return mla.error();
  plan.sm100_mla = std::make_shared<const Sm100MlaPlan>(*std::move(mla));
  return fill_from_sm100_mla(*plan.sm100_mla, plan);
}

std::vector<TuningKnob> sm100_mla_knobs(const KernelPlan& plan) {
  const MlaTiles& tiles = plan.sm100_mla->tiles;
  return chosen_knobs(knobs_of(plan.spec, tiles), tiles);
}

void add_sm100_mla(const SpecFacts& spec, const Sm100MlaPlan& plan, nlohmann::ordered_json& json) {
#define TILE(name) ATTNJIT_MEMBER(MlaTiles, name)
#define MEMBER(name) ATTNJIT_MEMBER(Sm100MlaPlan, name)
  json["BM"] = plan.tiles.rows();
  json["BN"] = MlaTiles::kKeys;
  add_members(plan.tiles, json, TILE(box_keys), TILE(row_copies),
              std::pair{"kv_lens", spec.lengths_differ}, std::pair{"split", splits(spec)},
              TILE(stream_k), TILE(pair_tiles), TILE(partition_tiles), TILE(l2_bytes),
              TILE(num_stages));
  json["q_bytes"] = mla_tile_bytes(spec);
  json["v_bytes"] = mla_own_v_bytes(spec);
  add_members(plan, json, MEMBER(tmem_used), MEMBER(tmem_allocated),
              std::pair{"rescale_threshold", MlaPlan::kRescaleThreshold});
  json["roles"] = nlohmann::ordered_json::array();
  for (const PlannedKernel::Role& role : roles_of(plan.tiles)) {
    json["roles"].push_back({{"name", role.name},
                             {"first_warp", role.first_warp},
                             {"num_warps", role.num_warps},
                             {"registers", kRegisters}});
  }
#undef MEMBER
#undef TILE
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100a kernel of absorbed MLA and deep heads: what it serves, its stages, its shared
// and tensor memory.
#include "plan/sm100_mla/sm100_mla_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/json_fields.h"
#include "plan/kernel/partials.h"
#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxSmemBytes = DeviceShape{}.max_smem_bytes;
constexpr int kRegisterFile = 65536;  // of an SM
constexpr int kThreads = 384;
constexpr int kRegisters = kRegisterFile / kThreads / 8 * 8;  // per thread
constexpr int kBuffers = 2;                                   // of S and of P
constexpr int kSoftmaxWarps = 4;
constexpr int kProductWarps = 2;
constexpr int kMaxStages = 8;
constexpr const char* kStages = "num_stages";
constexpr const char* kCluster = "cluster";
/// A tile is loaded while another is multiplied; where V has memory of its own, K while V is.
int least_stages(const MlaTiles& tiles) { return tiles.own_v ? 1 : 2; }

std::vector<MlaBarrierGroup> barrier_groups(const SpecFacts& spec, const MlaTiles& tiles) {
  // Products hand back what they read: of a latent block of K those of S and those of O, of V of
  // its own those of O.
  MlaReaders readers;
  readers.work = kSoftmaxWarps + kProductWarps;
  readers.q = 1;
  readers.latent = readers.middle_block = tiles.cluster * (tiles.own_v ? 1 : 2);
  readers.rope = tiles.cluster;
  readers.listed = kSoftmaxWarps;
  std::vector<MlaBarrierGroup> groups = mla_barrier_groups(spec, tiles, readers);
  const auto add = [&](const char* constant, const char* name, const char* state, int arrivals) {
    MlaBarrierGroup group{constant, {}};
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      group.barriers.push_back({fmt::format("{} {} {}", name, buffer, state), arrivals});
    }
    groups.push_back(std::move(group));
  };
  add("kBarSFull", "S", "full", 1);
  add("kBarSEmpty", "S", "empty", kSoftmaxWarps);
  add("kBarPFull", "P", "full", kSoftmaxWarps);
  add("kBarOFull", "O", "full", 1);
  return groups;
}

std::string tmem_name_of(const PlacedRegion<Sm100MlaTmem>& range) {
  if (range.region == Sm100MlaTmem::kO) return "O";
  return fmt::format("{}{}", range.region == Sm100MlaTmem::kS ? "S" : "P", range.stage);
}

/// Shared memory and barriers, in their order.
void lay_out(const SpecFacts& spec, Sm100MlaPlan& plan) {
  plan.barriers = mla_barriers(barrier_groups(spec, plan.tiles));
  plan.smem = mla_smem(spec, plan.tiles, {.tmem_address = 8}, plan.barriers.size());
}

/// A product of 64 rows has half of the lanes: O's two halves share their columns, and P, of which
/// each needs one, lies in both.
void lay_out_tmem(const SpecFacts& spec, Sm100MlaPlan& plan) {
  using enum Sm100MlaTmem;
  plan.tmem.add(kO, std::int64_t{(mla_latent_blocks(spec) + 1) / 2} * MlaTiles::kBlockColumns);
  for (int i = 0; i < kBuffers; ++i) plan.tmem.add(kS, MlaTiles::kKeys, 1, i);
  for (int i = 0; i < kBuffers; ++i) plan.tmem.add(kP, MlaTiles::kKeys / 2, 1, i);
}

/// CTAs that may load blocks of K and V for each other: of absorbed MLA where a position's heads
/// are two tiles. NOTE: waits that are bounded are for the CTA's own barriers.
int most_cluster_of(const ResolvedSpec& resolved, const MlaTiles& tiles) {
  const bool bounded = resolved.options().debug_waits.value_or(false);
  const bool halves = tiles.own_v || (1 << mla_head_shift(resolved)) > MlaTiles::kRows;
  return tiles.row_copies || bounded || !halves ? 1 : 2;
}

/// Whether they do where no row says: of deep heads' prompts, for whose K and V L2 is too slow
/// (docs/mla.md). Ragged batches and pages hold decodes, too, of which a cluster's other CTA would
/// have no rows.
bool clusters_by_default(const ResolvedSpec& resolved, const MlaTiles& tiles) {
  const SpecFacts& spec = resolved;
  return tiles.own_v && !spec.lengths_differ && !splits(spec) && !spec.decodes(MlaTiles::kRows) &&
         most_cluster_of(resolved, tiles) > 1;
}

Status choose(const ResolvedSpec& resolved, const TuningValues* tuned, Sm100MlaPlan& plan) {
  const SpecFacts& spec = resolved;
  const int most_cluster = most_cluster_of(resolved, plan.tiles);
  const int least = least_stages(plan.tiles);
  for (int stages = least; stages <= kMaxStages; ++stages) {
    Sm100MlaPlan more = plan;
    more.tiles.num_stages = stages;
    lay_out(spec, more);
    if (stages == least || more.smem.end_of_last() <= kMaxSmemBytes) plan.tiles.num_stages = stages;
  }
  const int most = plan.tiles.num_stages;
  for (const auto& [name, value] : tuned == nullptr ? TuningValues() : *tuned) {
    const bool cluster = name == kCluster;
    if (name != kStages && !cluster) {
      return spec::invalid("tuning." + name, "is no choice of the kernel of {}; allowed: {}, {}",
                           plan.tiles.own_v ? "deep heads" : "absorbed MLA", kStages, kCluster);
    }
    const int from = cluster ? 1 : least;
    const int to = cluster ? most_cluster : most;
    if (value < from || value > to) {
      const char* why = cluster && value == 2
                            ? ": of pages without boxes of TMA, with debug_waits, "
                              "and of 64 heads and fewer a CTA loads alone"
                            : "";
      return spec::invalid("tuning." + name, "is {}; allowed: {} to {}{}", value, from, to, why);
    }
    (cluster ? plan.tiles.cluster : plan.tiles.num_stages) = static_cast<int>(value);
  }
  // NOTE: the barrier of a sequence's last tile is one for all stages. With several, the CTA that
  // is ahead could load the next sequence's before the other has heard of all of this one's.
  if (plan.tiles.cluster > 1 && plan.tiles.kv_lens && plan.tiles.num_stages > 1) {
    return make_error(ErrorCode::kInvalid,
                      "is 2; where sequences differ in length only with one stage (num_stages 1)",
                      std::string("tuning.") + kCluster);
  }
  return {};
}

/// One warp loads by TMA, four copy rows; half of them load V where it has memory of its own.
std::vector<PlannedKernel::Role> load_roles(const MlaTiles& tiles) {
  if (!tiles.loads_apart) return {{"load", 0, tiles.row_copies ? 4 : 1}};
  const int warps = tiles.row_copies ? 2 : 1;
  return {{"load K", 0, warps}, {"load V", 2, warps}};
}

/// Where depth 512 leaves Depth512Config, a pair of CTAs that multiply 128 rows.
void record_deviations(const ResolvedSpec& resolved, bool stages_are_tuned, Sm100MlaPlan& plan) {
  const SpecFacts& spec = resolved;
  const Depth512Config reference(depth512_args(spec, resolved.options()));
  const auto record = [&](const char* name, auto expected, auto actual, const char* why) {
    deviate(plan.deviations, name, std::int64_t{expected}, std::int64_t{actual}, why);
  };
  const std::int64_t keys = MlaTiles::kKeys;
  const char* one_cta = "one CTA serves decodes, ragged batches and uneven masks, too";
  record("cluster", Depth512Config::cta_group, plan.tiles.cluster, one_cta);
  // Also of a cluster, whose CTAs load for each other, each has products of its own.
  record("MMA_M", reference.MMA_M, MlaTiles::kRows, one_cta);
  record("k_rows_per_cta", reference.k_rows_per_cta(), keys, one_cta);
  record("v_cols_per_cta", reference.v_cols_per_cta, spec.ov_depth, one_cta);
  const char* in_tmem = "P is read from tensor memory, and K and V of one CTA have a place each";
  record("BN", reference.BN, keys, in_tmem);
  record("BK1", reference.BK1, keys, in_tmem);
  record("p_buffer_bytes", reference.p_buffer_bytes, 0, in_tmem);
  record("tmem_used", reference.tmem_used, plan.tmem_used(), in_tmem);
  const char* whole = "a stage is a whole tile of K and one of V, in blocks of 64 columns";
  record("num_kv_stages", reference.num_kv_stages, plan.tiles.num_stages,
         stages_are_tuned ? "tuned" : whole);
  record("num_qk_stages", reference.num_qk_stages, mla_blocks(spec), whole);
  record("BK0", reference.BK0, MlaTiles::kBlockColumns, whole);
  record("smem_used", reference.smem_used, plan.smem.end_of_last(), whole);
  record("num_mbarriers", reference.num_mbarriers(),
         static_cast<std::int64_t>(plan.barriers.size()), whole);
  const int shift = mla_head_shift(spec);
  const char* packed = "a tile has the heads of a group where that wastes no rows, or in decodes";
  deviate(plan.deviations, "fuse_gqa", reference.fuse_gqa, shift > 0, packed);
  record("BM_eff", reference.BM_eff(), std::max(MlaTiles::kRows >> shift, 1), packed);
  const char* budgets = "no role gives registers away, and none spills";
  record("registers of the softmax warps", 256, kRegisters, budgets);
  record("registers of the MMA and load warps", 64, kRegisters, budgets);
  record("warps of correction", 4, 0, "the softmax warps rescale O themselves");
}

std::vector<ConfigConstant> constants_of(const ResolvedSpec& resolved, const Sm100MlaPlan& plan) {
  const SpecFacts& spec = resolved;
  Constants constants;
  constants.add_spec(resolved);
  add_mla_constants(spec, plan.tiles, constants);
  constants.add("kThreads", kThreads);
  constants.add("kRescaleThreshold", plan.rescale_threshold);
  add_mla_regions(plan.smem, constants);
  constants.add("kTmemO", plan.tmem.begin_of(Sm100MlaTmem::kO));
  constants.add("kTmemS", plan.tmem.begin_of(Sm100MlaTmem::kS));
  constants.add("kTmemP", plan.tmem.begin_of(Sm100MlaTmem::kP));
  constants.add("kTmemColumns", plan.tmem_allocated());
  add_mla_barriers(barrier_groups(spec, plan.tiles), constants);
  constants.add("kSmemBytes", plan.smem.end_of_last());
  return std::move(constants).take();
}

/// Why the template does not serve a spec; empty: it does.
std::string sm100_mla_unsupported_reason(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  if (resolved.options().pair_cta.value_or(false)) {
    return fmt::format("the kernel of {} has no pairs of CTAs (pair_cta) yet",
                       spec.deep_heads ? "heads deeper than 256 (qk_depth)" : "absorbed MLA");
  }
  return mla_unsupported_reason(resolved);
}

/// `tuned` holds what a tuning row overrides, or is null. Errors: kInvalid for a tuned name or
/// value that this plan cannot take.
Result<Sm100MlaPlan> make_sm100_mla_plan(const ResolvedSpec& resolved, const TuningValues* tuned) {
  const SpecFacts& spec = resolved;
  Sm100MlaPlan plan;
  plan.tiles = mla_tiles(resolved);
  plan.tiles.loads_apart = plan.tiles.own_v;
  plan.tiles.cluster = clusters_by_default(resolved, plan.tiles) ? 2 : 1;
  if (Status status = choose(resolved, tuned, plan); !status) return status.error();
  lay_out(spec, plan);
  lay_out_tmem(spec, plan);
  plan.roles = load_roles(plan.tiles);
  plan.roles.insert(plan.roles.end(),
                    {{"softmax", 4, kSoftmaxWarps}, {"products S", 8, 1}, {"products O", 9, 1}});
  if (resolve_config_kind(ConfigKind::kAuto, resolved.given(), resolved.options()) ==
      ConfigKind::kDepth512) {
    record_deviations(resolved, tuned != nullptr && tuned->contains(kStages), plan);
  }
  return plan;
}

void fill_from_sm100_mla(const Sm100MlaPlan& mla, KernelPlan& plan) {
  PlannedKernel& kernel = plan.main();
  kernel.entry = mla.tiles.own_v ? "attnjit_deep_forward" : "attnjit_mla_decode";
  kernel.kernel_header = "sm100_mla/decode.cuh";
  kernel.threads = kThreads;
  kernel.cluster = mla.tiles.cluster;
  kernel.overlaps = true;
  kernel.launch_registers = kRegisters;
  kernel.smem_bytes = mla.smem.end_of_last();
  kernel.smem_map = mla_smem_map(mla.smem, mla.tiles, "Q", "work");
  kernel.tmem_map = mla.tmem.named(tmem_name_of);
  kernel.barriers = mla.barriers;
  kernel.roles = mla.roles;
  kernel.constants = constants_of(plan.spec, mla);
  kernel.parameters = mla_parameters(plan, mla.tiles);
  plan.partials = mla_partials(mla.tiles);
  plan.deviations = mla.deviations;
  add_split_deviation(plan);
}

}  // namespace

Status plan_sm100_mla(const TuningValues* tuned, KernelPlan& plan) {
  plan.reason = sm100_mla_unsupported_reason(plan.spec);
  plan.supported = plan.reason.empty();
  if (!plan.supported) return {};
  Result<Sm100MlaPlan> mla = make_sm100_mla_plan(plan.spec, tuned);
  if (!mla) return mla.error();
  plan.sm100_mla = std::make_shared<const Sm100MlaPlan>(*std::move(mla));
  fill_from_sm100_mla(*plan.sm100_mla, plan);
  return {};
}

std::vector<TuningKnob> sm100_mla_knobs(const KernelPlan& plan) {
  std::vector<std::int64_t> stages;
  for (int i = least_stages(plan.sm100_mla->tiles); i <= kMaxStages; ++i) stages.push_back(i);
  const MlaTiles& tiles = plan.sm100_mla->tiles;
  std::vector<std::int64_t> clusters{1};
  if (most_cluster_of(plan.spec, tiles) > 1) clusters.push_back(2);
  return {{kStages, std::move(stages), tiles.num_stages},
          {kCluster, std::move(clusters), tiles.cluster}};
}

void add_sm100_mla(const SpecFacts& spec, const Sm100MlaPlan& plan, nlohmann::ordered_json& json) {
#define TILE(name) ATTNJIT_MEMBER(MlaTiles, name)
#define MEMBER(name) ATTNJIT_MEMBER(Sm100MlaPlan, name)
  json["BM"] = plan.tiles.rows();
  json["BN"] = MlaTiles::kKeys;
  add_members(plan.tiles, json, TILE(box_keys), TILE(row_copies), TILE(kv_lens), TILE(split),
              TILE(stream_k), TILE(pair_tiles), TILE(partition_tiles), TILE(l2_bytes),
              TILE(num_stages));
  json["q_bytes"] = mla_tile_bytes(spec);
  json["v_bytes"] = mla_own_v_bytes(spec);
  add_members(plan, json, MEMBER(tmem_used), MEMBER(tmem_allocated), MEMBER(rescale_threshold));
  json["roles"] = nlohmann::ordered_json::array();
  for (const PlannedKernel::Role& role : plan.roles) {
    json["roles"].push_back({{"name", role.name},
                             {"first_warp", role.first_warp},
                             {"num_warps", role.num_warps},
                             {"registers", kRegisters}});
  }
#undef MEMBER
#undef TILE
}

}  // namespace attnjit

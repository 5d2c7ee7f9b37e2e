// SPDX-License-Identifier: Apache-2.0
// Fills the template's side of an sm_100 plan: its constants and its parameters.
#include <algorithm>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/signature.h"
#include "plan/map/map_plan.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

// Where ranges of shared memory begin; 0 where there is none. The rings lie elsewhere in the body
// with one query tile, which has more stages.
using NamedRegion = std::pair<Region, const char*>;
constexpr NamedRegion kRegions[] = {{Region::kQ, "kQOffset"},
                                    {Region::kO, "kOOffset"},
                                    {Region::kCorrection, "kCorrectionOffset"},
                                    {Region::kKeyScales, "kKeyScalesOffset"},
                                    {Region::kBarriers, "kBarrierOffset"},
                                    {Region::kTmemAddress, "kTmemAddressOffset"},
                                    {Region::kWork, "kWorkOffset"}};
constexpr NamedRegion kRings[] = {
    {Region::kK, "kKOffset"}, {Region::kV, "kVOffset"}, {Region::kKRope, "kKRopeOffset"}};
// The groups of barriers that the template knows; -1, which is no barrier, where there is none.
constexpr const char* kBarriers[] = {"kBarSCons", "kBarC",        "kBarSProd",   "kBarQProd",
                                     "kBarQCons", "kBarKProd",    "kBarKCons",   "kBarVProd",
                                     "kBarVCons", "kBarOProd",    "kBarOStaged", "kBarOCons",
                                     "kBarVTail", "kBarPairTail", "kBarWork",    "kBarAnswer"};
constexpr std::pair<Sm100Role::Id, const char*> kRoles[] = {
    {Sm100Role::Id::kSoftmax, "kSoftmaxRegisters"},
    {Sm100Role::Id::kSoftmax0, "kSoftmaxRegisters"},
    {Sm100Role::Id::kCorrection, "kCorrectionRegisters"},
    {Sm100Role::Id::kMma, "kOtherRegisters"},
    {Sm100Role::Id::kUpcast, "kUpcastRegisters"}};

// K and V may share a ring.
void add_rings(const Sm100Variant& body, const std::string& suffix, Constants& constants) {
  for (const auto& [region, constant] : kRings) {
    const bool shared = body.use_fused_kv && region != Region::kKRope;
    constants.add(constant + suffix, body.smem.begin_of(shared ? Region::kKv : region));
  }
}

// Rows of a box of K or V; 0 where there are none.
std::int64_t box_rows(const Sm100Plan& sm100) {
  const auto map = std::ranges::find(sm100.tensor_maps, TensorMapId::kK, &Sm100TensorMap::id);
  return map == sm100.tensor_maps.end() ? 0 : map->box.at(2);
}

// Whether K and V come by other ways than TMA.
bool loads_by_threads(const Sm100Plan& sm100) {
  return sm100.row_copies() || sm100.spec->upcasts_kv;
}

// Whether the kernel waits for the end of what comes before it on the stream.
bool overlaps(const Sm100Plan& sm100) {
  return (sm100.published && !sm100.counted) || sm100.block_mask;
}

// The rows of a slot for a tile's part; 0 where none is cut.
std::int64_t cut_rows(const Sm100Plan& sm100) {
  if (!sm100.cuts) return 0;
  const SpecFacts& spec = *sm100.spec;
  return spec.ragged ? sm100.variants.front().BM : std::int64_t{spec.max_q_len} * spec.group;
}

std::vector<ConfigConstant> constants_of(const ResolvedSpec& resolved, const Sm100Plan& sm100) {
  const SpecFacts& spec = resolved;
  const Sm100Variant& body = sm100.variants.front();
  Constants constants;
  constants.add_spec(resolved);
  constants.add_fields(kSm100BodyFields, body);
  constants.add_fields(kSm100Fields, sm100);
  constants.add("kVStageBytes", body.use_fused_kv ? body.k_stage_bytes : body.v_stage_bytes);
  constants.add("kPvKeys0", body.pv_keys.at(0));
  constants.add("kPvKeys1", body.num_pv_stages() > 1 ? body.pv_keys.at(1) : 0);
  for (const auto& [region, constant] : kRegions) {
    constants.add(constant, body.smem.begin_of(region));
  }
  constants.add_barriers(body.barriers, kBarriers);
  add_rings(body, "", constants);
  if (sm100.can_switch_to_1q) {
    const Sm100Variant& sibling = sm100.variants.back();
    constants.add("kStages1Q", sibling.num_kv_stages);
    constants.add("kRopeBuffers1Q", sibling.num_rope_buffers);
    add_rings(sibling, "1Q", constants);
  }
  constants.add("kTmemS0", body.tmem.begin_of(Region::kS));
  constants.add("kTmemS1", body.tmem.begin_of(Region::kS, 0, 1));
  const std::int64_t only_o = body.tmem.begin_of(Region::kO);  // which is both
  constants.add("kTmemO0", only_o);
  constants.add("kTmemO1", body.tmem.begin_of(Region::kO, only_o, 1));
  constants.add("kTmemQ", body.tmem.begin_of(Region::kQ, -1));  // -1: it stays in shared memory
  for (const auto& [id, constant] : kRoles) {
    for (const Sm100Role& role : sm100.roles) {
      if (role.id == id) constants.add(constant, role.registers);
    }
  }
  constants.add("kCutRows", cut_rows(sm100));
  constants.add("kUpcastWarps", spec.upcasts_kv ? kSm100UpcastWarps : 0);
  if (!spec.upcasts_kv) constants.add("kUpcastRegisters", 0);
  constants.add("kSeparateRope", spec.separate_rope);
  constants.add("kRopeBf16", spec.rope_dtype == Dtype::kBf16);
  constants.add("kBoxRows", box_rows(sm100));
  constants.add("kBlockMaskBits", sm100.block_mask && block_mask_has_bits(spec));
  constants.add("kOverlaps", overlaps(sm100));
  // What kernels of sm_90a, or of absorbed MLA, may do.
  constants.add("kStreamK", false);
  constants.add("kHeadStreamK", false);
  constants.add("kUnitPositions", 0);
  constants.add("kMaximumByLoad", spec.arch == Arch::kSm103a);
  return std::move(constants).take();
}

std::vector<LaunchNumber> numbers_of(const SpecFacts& spec, const Sm100Plan& sm100) {
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen};
  const auto add = [&](std::initializer_list<LaunchNumber> more) {
    numbers.insert(numbers.end(), more);
  };
  if (sm100.published && !sm100.counted) {
    add({kBatch});
    if (sm100.split) add({kPartitions, kRows});
    if (spec.ragged) add({kTotalQ});
    if (spec.ragged_kv) add({kTotalKv});
  } else {
    if (!sm100.one_work_tile() && !sm100.steals_tiles()) add({kTotalTiles});
    if (spec.ragged) {
      add({kBatch, kTotalQ});
    } else {
      add({kMTiles, kTotalHeads, kSectionHeads});
    }
  }
  if (spec.page_size > 0) add({kMaxPages});
  if (sm100.can_switch_to_1q) add({kOneQuery});
  // A page past the last has no scales.
  if (spec.pages_have_scales && !loads_by_threads(sm100)) add({kNumPages});
  if (loads_by_threads(sm100)) {
    numbers.insert(numbers.end(), kRowCopyNumbers.begin(), kRowCopyNumbers.end());
  }
  return numbers;
}

Status fill_from_sm100(const Sm100Plan& sm100, KernelPlan& plan) {
  const SpecFacts& spec = plan.spec;
  const Sm100Variant& variant = sm100.variants.front();
  PlannedKernel& kernel = plan.main();
  kernel.entry = "attnjit_forward";
  kernel.kernel_header = "sm100/forward.cuh";
  kernel.threads = sm100.threads;
  kernel.cluster = sm100.cluster;
  kernel.smem_bytes = sm100.smem_bytes();
  kernel.launch_registers = launch_registers(sm100.threads);
  kernel.overlaps = overlaps(sm100);
  kernel.smem_map = variant.smem.map();
  kernel.tmem_map = variant.tmem.map();
  for (const Sm100Role& role : sm100.roles) {
    if (role.id == Sm100Role::Id::kScheduler) continue;
    kernel.roles.push_back({std::string(to_string(role.id)), role.first_warp, role.num_warps});
  }
  kernel.barriers = variant.barriers.all();
  plan.deviations = sm100.deviations;
  plan.waivers = {
      {"in-order-mma",
       "S of a KV tile takes the columns of the P that the product issued before it reads "
       "(templates/sm100/mma.cuh, Products::qk); a wait for that product between the two would "
       "leave the tensor cores idle for its latency, twice a KV tile"}};
  if (spec.separate_rope) {
    plan.waivers.front().reason +=
        "; and the products of the rope parts add to an S that products of another kind began "
        "(Products::add_rope)";
  }
  if (!plan.supported) return {};
  add_split_deviation(plan);
  kernel.constants = constants_of(plan.spec, sm100);
  const std::vector<LaunchNumber> numbers = numbers_of(plan.spec, sm100);
  std::span<const TensorMapId> maps = kForwardMaps;
  if (loads_by_threads(sm100)) maps = kRowMaps;
  if (spec.separate_rope) maps = kRopeMaps;
  kernel.parameters = forward_parameters(plan, maps, numbers);
  if (loads_by_threads(sm100)) add_key_parameters(plan, kernel.parameters);
  plan.partials.cut_rows = static_cast<int>(cut_rows(sm100));
  if (sm100.cuts && spec.ragged) {
    kernel.parameters.push_back(
        workspace_parameter(plan, WorkspaceId::kTileCounters, "attnjit::TileCounters"));
  }
  add_partial_parameters(plan, kernel.parameters);
  if (sm100.block_mask) {
    add_map_parameters(plan, kernel.parameters);
    plan.map = planned_map(plan.spec, variant.fuse_gqa ? plan.spec->group : 1);
  }
  return {};
}

}  // namespace

Status plan_sm100(const TuningValues* tuned, KernelPlan& plan) {
  Result<Sm100Plan> sm100 = make_sm100_plan(plan.spec, tuned);
  if (!sm100) {
    if (sm100.error().code != ErrorCode::kUnsupported) return sm100.error();
    plan.reason = sm100.error().message;
    return {};
  }
  plan.sm100 = std::make_shared<const Sm100Plan>(*std::move(sm100));
  plan.reason = sm100_unsupported_reason(plan.spec, *plan.sm100);
  plan.supported = plan.reason.empty();
  return fill_from_sm100(*plan.sm100, plan);
}

}  // namespace attnjit

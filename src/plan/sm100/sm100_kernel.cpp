// SPDX-License-Identifier: Apache-2.0
// Fills the template's side of an sm_100 plan: its constants and its parameters.
#include <algorithm>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"
#include "plan/map/map_plan.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

// What the template knows by a Config member.
template <class Id>
struct Named {
  Id id;
  const char* constant;
};
// Where regions of shared memory begin; 0 where there is none. The ring's lie elsewhere in the body
// with one query tile, which has more stages.
constexpr Named<Sm100Region> kRegions[] = {{Sm100Region::kQ, "kQOffset"},
                                           {Sm100Region::kO, "kOOffset"},
                                           {Sm100Region::kCorrection, "kCorrectionOffset"},
                                           {Sm100Region::kKeyScales, "kKeyScalesOffset"},
                                           {Sm100Region::kBarriers, "kBarrierOffset"},
                                           {Sm100Region::kTmemAddress, "kTmemAddressOffset"},
                                           {Sm100Region::kWork, "kWorkOffset"}};
constexpr Named<Sm100Region> kRingRegions[] = {{Sm100Region::kKRing, "kKOffset"},
                                               {Sm100Region::kVRing, "kVOffset"},
                                               {Sm100Region::kKRope, "kKRopeOffset"}};
// The groups of barriers that are addressed by the index of their first.
constexpr Named<Sm100Barrier> kBarriers[] = {
    {Sm100Barrier::kSCons, "kBarSCons"},     {Sm100Barrier::kCProd, "kBarC"},
    {Sm100Barrier::kSProd, "kBarSProd"},     {Sm100Barrier::kQProd, "kBarQProd"},
    {Sm100Barrier::kQCons, "kBarQCons"},     {Sm100Barrier::kKProd, "kBarKProd"},
    {Sm100Barrier::kKCons, "kBarKCons"},     {Sm100Barrier::kVProd, "kBarVProd"},
    {Sm100Barrier::kVCons, "kBarVCons"},     {Sm100Barrier::kOProd, "kBarOProd"},
    {Sm100Barrier::kOStaged, "kBarOStaged"}, {Sm100Barrier::kOCons, "kBarOCons"},
    {Sm100Barrier::kVTail, "kBarVTail"},     {Sm100Barrier::kPairTail, "kBarPairTail"},
    {Sm100Barrier::kWork, "kBarWork"},       {Sm100Barrier::kTaken, "kBarTaken"}};
// One O is both.
constexpr Named<Sm100TmemRegion> kTmemRegions[] = {
    {Sm100TmemRegion::kS0, "kTmemS0"}, {Sm100TmemRegion::kS1, "kTmemS1"},
    {Sm100TmemRegion::kO0, "kTmemO0"}, {Sm100TmemRegion::kO1, "kTmemO1"},
    {Sm100TmemRegion::kO, "kTmemO0"},  {Sm100TmemRegion::kO, "kTmemO1"},
    {Sm100TmemRegion::kQ, "kTmemQ"}};
constexpr Named<Sm100Role::Id> kRoles[] = {{Sm100Role::Id::kSoftmax, "kSoftmaxRegisters"},
                                           {Sm100Role::Id::kSoftmax0, "kSoftmaxRegisters"},
                                           {Sm100Role::Id::kCorrection, "kCorrectionRegisters"},
                                           {Sm100Role::Id::kMma, "kOtherRegisters"},
                                           {Sm100Role::Id::kUpcast, "kWideningRegisters"}};

// What stands in for K's and V's where the two share a ring.
Sm100Barrier fused(Sm100Barrier group) {
  using enum Sm100Barrier;
  if (group == kKProd || group == kVProd) return kKvProd;
  return group == kKCons || group == kVCons ? kKvCons : group;
}

Sm100Region fused(Sm100Region region) {
  const bool ring = region == Sm100Region::kKRing || region == Sm100Region::kVRing;
  return ring ? Sm100Region::kKvRing : region;
}

// Where the first barrier of a group stands; -1, which is no barrier, where there is none.
std::int64_t barrier_index(const Sm100Variant& body, Sm100Barrier group) {
  if (body.use_fused_kv) group = fused(group);
  const auto found =
      std::find_if(body.barriers.begin(), body.barriers.end(),
                   [&](const Sm100BarrierPlan& barrier) { return barrier.group == group; });
  return found == body.barriers.end() ? -1 : found - body.barriers.begin();
}

std::int64_t region_begin(const Sm100Variant& body, Sm100Region region) {
  if (body.use_fused_kv) region = fused(region);
  return body.smem.begin_of(region);
}

// The rings of a body, which lie elsewhere in the body with one query tile.
void add_ring_offsets(const Sm100Variant& body, const std::string& suffix, Constants& constants) {
  for (const auto& [region, constant] : kRingRegions) {
    constants.add(constant + suffix, region_begin(body, region));
  }
}

// Rows of a box of K or V; 0 where there are none.
std::int64_t box_rows(const Sm100Plan& sm100) {
  const auto map =
      std::find_if(sm100.tensor_maps.begin(), sm100.tensor_maps.end(),
                   [](const Sm100TensorMap& one) { return one.id == TensorMapId::kK; });
  return map == sm100.tensor_maps.end() ? 0 : map->box.at(2);
}

// Whether K and V come by other ways than TMA.
bool loads_by_threads(const Sm100Plan& sm100) { return sm100.row_copies || sm100.spec->upcasts_kv; }

// Whether the kernel waits for the end of what comes before it on the stream.
bool overlaps(const Sm100Plan& sm100) {
  return (sm100.published && !sm100.counted) || sm100.mapped;
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
  constants.add("kPvKeys1", body.num_pv_stages > 1 ? body.pv_keys.at(1) : 0);
  for (const auto& [region, constant] : kRegions) {
    constants.add(constant, region_begin(body, region));
  }
  for (const auto& [group, constant] : kBarriers) {
    constants.add(constant, barrier_index(body, group));
  }
  constants.add_barriers(body.barriers);
  add_ring_offsets(body, "", constants);
  if (sm100.can_switch_to_1q) {
    const Sm100Variant& sibling = sm100.variants.back();
    constants.add("kStages1Q", sibling.num_kv_stages);
    constants.add("kRopeBuffers1Q", sibling.num_rope_buffers);
    add_ring_offsets(sibling, "1Q", constants);
  }
  for (const auto& [region, constant] : kTmemRegions) {
    for (const Sm100TmemRange& range : body.tmem) {
      if (range.region == region) constants.add(constant, range.begin);
    }
  }
  if (body.tmem.begin_of(Sm100TmemRegion::kQ, -1) < 0) {
    constants.add("kTmemQ", -1);  // it stays in shared memory
  }
  for (const auto& [id, constant] : kRoles) {
    for (const Sm100Role& role : sm100.roles) {
      if (role.id == id) constants.add(constant, role.registers);
    }
  }
  constants.add("kWideningWarps", spec.upcasts_kv ? kSm100UpcastWarps : 0);
  if (!spec.upcasts_kv) constants.add("kWideningRegisters", 0);
  constants.add("kOwnRope", spec.own_rope);
  constants.add("kRopeBf16", spec.rope_dtype == Dtype::kBf16);
  constants.add("kBoxRows", box_rows(sm100));
  constants.add("kMapBits", sm100.mapped && map_has_bits(spec));
  constants.add("kOverlaps", overlaps(sm100));
  // What kernels of sm_90a, or of absorbed MLA, may do.
  constants.add("kRuns", false);
  constants.add("kHeadRuns", false);
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
    if (!sm100.one_work_tile() && !sm100.takes_over()) add({kTotalTiles});
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
  kernel.smem_bytes = sm100.smem_bytes;
  kernel.launch_registers = sm100.launch_registers;
  kernel.overlaps = overlaps(sm100);
  const auto name = [](const auto& range) { return to_string(range.region); };
  kernel.smem_map = variant.smem.named(name);
  kernel.tmem_map = variant.tmem.named(name);
  for (const Sm100Role& role : sm100.roles) {
    if (role.id == Sm100Role::Id::kSpare) continue;
    kernel.roles.push_back({std::string(to_string(role.id)), role.first_warp, role.num_warps});
  }
  for (const Sm100BarrierPlan& barrier : variant.barriers) {
    kernel.barriers.push_back({barrier.name, barrier.arrivals});
  }
  plan.deviations = sm100.deviations;
  plan.waivers = {
      {"in-order-mma",
       "S of a KV tile takes the columns of the P that the product issued before it reads "
       "(templates/sm100/mma.cuh, Products::qk); a wait for that product between the two would "
       "leave the tensor cores idle for its latency, twice a KV tile"}};
  if (spec.own_rope) {
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
  if (spec.own_rope) maps = kRopeMaps;
  kernel.parameters = forward_parameters(plan, maps, numbers);
  if (loads_by_threads(sm100)) add_key_parameters(plan, kernel.parameters);
  if (sm100.cuts) {
    kernel.parameters.push_back(
        workspace_parameter(plan, WorkspaceId::kClaims, "attnjit::ClaimWords"));
    plan.partials.cut_rows = static_cast<int>(variant.BM);
  }
  add_partial_parameters(plan, kernel.parameters);
  if (sm100.mapped) {
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

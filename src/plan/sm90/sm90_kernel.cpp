// SPDX-License-Identifier: Apache-2.0
// Fills the template's side of an sm_90a plan: its constants and its parameters.

#include <algorithm>
#include <span>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/signature.h"
#include "plan/launch/row_tiles.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/text.h"

namespace attnjit {
namespace {

// Where regions of shared memory begin; 0, which is Q's, where there is none.
constexpr std::pair<Region, const char*> kOffsets[] = {{Region::kQ, "kQOffset"},
                                                       {Region::kK, "kKOffset"},
                                                       {Region::kV, "kVOffset"},
                                                       {Region::kRawV, "kRawOffset"},
                                                       {Region::kO, "kOOffset"},
                                                       {Region::kOnes, "kOnesOffset"},
                                                       {Region::kCursors, "kCursorsOffset"},
                                                       {Region::kStash, "kStashOffset"},
                                                       {Region::kDescriptors, "kDescriptorsOffset"},
                                                       {Region::kRawWords, "kRawWordsOffset"},
                                                       {Region::kWork, "kWorkOffset"},
                                                       {Region::kKeyScales, "kKeyScalesOffset"},
                                                       {Region::kBarriers, "kBarrierOffset"}};

/// The members of Config, or of Config::SmallTile (body 1).
std::vector<ConfigConstant> constants_of(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                         int body) {
  Constants constants;
  constants.add_spec(resolved);
  constants.add_fields(kSm90Fields, sm90);
  for (const auto& [region, constant] : kOffsets) {
    constants.add(constant, sm90.smem.begin_of(region));
  }
  constants.add_barriers(sm90.barriers);
  constants.add("kStashBytes", kSm90StashBytes);
  constants.add("kFirstVRewriter", kSm90FirstVRewriter);
  constants.add("kVRewriters", sm90.num_raw_stages > 0 ? kSm90VRewriters : 0);
  constants.add("kKRewriters", sm90.spec->upcasts_kv ? kSm90KRewriters : 0);
  const int packed_heads = sm90.packed_heads();
  const bool units = kSm90ConsumerRows % packed_heads != 0;
  constants.add("kGqaShift", units ? 0 : rows_shift(packed_heads));
  constants.add("kUnitPositions", units ? kSm90ConsumerRows / packed_heads : 0);
  constants.add("kBody", body);
  // What kernels of absorbed MLA may do.
  constants.add("kCluster", 1);
  constants.add("kClusterReduces", false);
  constants.add("kSkipsHiddenTiles", false);
  return std::move(constants).take();
}

std::vector<LaunchNumber> numbers_of(const SpecFacts& spec, const Sm90Plan& sm90) {
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen};
  add_work_numbers(spec, sm90.split, sm90.spec->lengths_differ, numbers);
  if (sm90.head_stream_k()) numbers.push_back(kUniformSplits);
  if (sm90.small_tile != nullptr) numbers.push_back(kSmallTile);
  if (sm90.spec->copies_rows) {
    numbers.insert(numbers.end(), kRowCopyNumbers.begin(), kRowCopyNumbers.end());
  } else if (sm90.spec->key_scales && spec.has_page_table) {
    numbers.push_back(kNumPages);
  }
  // A ragged O comes with its strides, and has no batch.
  if (sm90.o_from_registers() && !spec.ragged) {
    numbers.insert(numbers.end(), {kOBatchBytes, kORowBytes, kOHeadBytes});
  }
  return numbers;
}

std::vector<KernelParameter> parameters_of(const KernelPlan& plan, const Sm90Plan& sm90) {
  const std::vector<LaunchNumber> numbers = numbers_of(plan.spec, sm90);
  std::span<const TensorMapId> maps = kForwardMaps;
  if (sm90.spec->copies_rows) maps = kRowMaps;
  if (sm90.o_from_registers()) maps = maps.first(maps.size() - 1);
  std::vector<KernelParameter> parameters = forward_parameters(plan, maps, numbers);
  if (sm90.o_from_registers() && !plan.spec->ragged) {
    parameters.push_back(forward_array(plan, BufferId::Kind::kO, "unsigned char"));
  }
  if (sm90.spec->copies_rows) add_key_parameters(plan, parameters);
  if (sm90.dynamic_schedule) {
    parameters.push_back(
        workspace_parameter(plan, WorkspaceId::kTileCounters, "attnjit::TileCounters"));
  }
  add_partial_parameters(plan, parameters);
  if (sm90.block_mask) add_map_parameters(plan, parameters);
  return parameters;
}

Status fill_from_sm90(const Sm90Plan& sm90, KernelPlan& plan) {
  if (sm90.smem_bytes > sm90_smem_room(sm90)) {
    // Only a tuning table can ask for this; the choices above are tested to fit.
    return spec::invalid("tuning.BN", "BN {} with {} stages needs {} of a CTA's {} bytes of memory",
                         sm90.BN, sm90.num_stages, sm90.smem_bytes, sm90_smem_room(sm90));
  }
  PlannedKernel& kernel = plan.main();
  kernel.entry = "attnjit_forward";
  kernel.kernel_header = "sm90/forward.cuh";
  kernel.threads = sm90.threads();
  kernel.ctas_per_sm = sm90.ctas_per_sm;
  kernel.overlaps = sm90.overlaps;
  kernel.launch_registers = sm90.launch_registers();
  kernel.smem_bytes = sm90.smem_bytes;
  kernel.smem_map = sm90.smem.map();
  kernel.barriers = sm90.barriers.all();
  kernel.roles = sm90_roles(sm90);
  kernel.constants = constants_of(plan.spec, sm90, 0);
  if (sm90.small_tile != nullptr) {
    kernel.smem_bytes = std::max(kernel.smem_bytes, sm90.small_tile->smem_bytes);
    kernel.small_tile_constants = constants_of(plan.spec, *sm90.small_tile, 1);
  }
  kernel.parameters = parameters_of(plan, sm90);
  if (sm90.block_mask) plan.map = planned_map(plan.spec, sm90.packed_heads());
  plan.partials = {.stream_k = sm90.head_stream_k() ? StreamK::kHeads : StreamK::kNone,
                   .cut_rows = sm90.cuts || sm90.stream_k ? sm90.BM : 0};
  add_split_deviation(plan);
  return {};
}

}  // namespace

Status plan_sm90(const TuningValues* tuned, KernelPlan& plan) {
  Result<Sm90Plan> sm90 = make_sm90_plan(plan.spec, tuned);
  if (!sm90) return sm90.error();
  plan.sm90 = std::make_shared<const Sm90Plan>(*std::move(sm90));
  plan.reason = sm90_unsupported_reason(plan.spec, *plan.sm90);
  plan.supported = plan.reason.empty();
  return plan.supported ? fill_from_sm90(*plan.sm90, plan) : Status();
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Fills the template's side of an sm_90a plan: its constants and its parameters.
#include <fmt/format.h>

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

namespace attnjit {
namespace {

std::vector<ConfigConstant> constants_of(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                         int body) {
  const AttentionSpec& spec = *resolved;
  Constants constants;
  constants.add_bool("kBf16", spec.qkv_dtype == Dtype::kBf16);
  constants.add_bool("kE4m3", is_e4m3(spec));
  constants.add_bool("kWidensKv", sm90.widens_kv);
  constants.add("kKvRowBytes", sm90.kv_row_bytes);
  constants.add("kScales", static_cast<int>(spec.scales));
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  constants.add_bool("kOutputBf16", output == Dtype::kBf16);
  constants.add("kOutputBytes", size_of(output));
  constants.add("kQkDepth", spec.qk_depth);
  constants.add("kOvDepth", spec.ov_depth);
  constants.add("kGroup", spec.group);
  constants.add_bool("kSink", spec.sink);
  constants.add_bool("kReturnLse", spec.return_lse);
  constants.add_bool("kLseIncludesSink", spec.lse_includes_sink);
  constants.add("kConsumers", sm90.num_consumers);
  constants.add("kThreads", sm90.threads());
  constants.add("kCtasPerSm", sm90.ctas_per_sm);
  constants.add("kCluster", 1);
  constants.add("kTileM", sm90.BM);
  constants.add("kTileN", sm90.BN);
  constants.add("kPageSize", spec.page_size);
  constants.add("kBoxKeys", sm90.box_keys);
  constants.add_bool("kRowCopies", sm90.row_copies);
  constants.add_bool("kRagged", spec.ragged);
  constants.add_bool("kRaggedKv", spec.ragged_kv);
  constants.add_bool("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  constants.add_bool("kOverlaps", sm90.overlaps);
  constants.add_bool("kListed", sm90.listed);
  constants.add_bool("kMapped", sm90.mapped);
  constants.add_bool("kMapBits", sm90.map_bits);
  constants.add_bool("kSplit", sm90.split);
  // Of those alone: templates/common/run_marks.cuh.
  if (sm90.runs) constants.add_bool("kRuns", true);
  if (sm90.head_runs()) constants.add_bool("kHeadRuns", true);
  if (sm90.cuts) constants.add_bool("kCuts", true);
  if (sm90.head_runs() || sm90.parks_list || sm90.cuts) {
    constants.add("kListsOffset", sm90_begin_of(Sm90Region::kLists, sm90));
  }
  if (sm90.few_registers) constants.add_bool("kFewRegisters", true);
  if (sm90.places_rows_anew) constants.add_bool("kPlacesRowsAnew", true);
  if (sm90.parks_work) {
    constants.add("kParkedOffset", sm90_begin_of(Sm90Region::kParked, sm90));
    constants.add("kParkedBytes", kSm90ParkedBytes);
  }
  if (sm90.sums_by_product) {
    constants.add("kOnesOffset", sm90_begin_of(Sm90Region::kOnes, sm90));
  }
  if (sm90.key_scales) {
    constants.add("kKeyScalesOffset", sm90_begin_of(Sm90Region::kKeyScales, sm90));
  }
  constants.add("kPartitionTiles", sm90.partition_tiles);
  constants.add_bool("kMergeOnePart", merges_one_part(spec));
  constants.add_bool("kRescaleByRow", sm90.rescale_by_row);
  constants.add("kStages", sm90.num_stages);
  constants.add("kVStages", sm90.num_v_stages);
  constants.add("kRowStages", sm90.num_row_stages);
  constants.add("kQStages", sm90.num_q_stages);
  if (sm90.num_row_stages > 0) {
    constants.add("kFirstVRewriter", kSm90FirstVRewriter);
    constants.add("kVRewriters", kSm90VRewriters);
  }
  if (sm90.widens_kv) constants.add("kKRewriters", kSm90KRewriters);
  constants.add_bool("kPingPong", sm90.ping_pong);
  constants.add_bool("kPairTiles", sm90.pair_tiles);
  const int packed_heads = sm90_packed_heads(sm90, spec);
  if (kSm90ConsumerRows % packed_heads == 0) {
    constants.add("kGqaShift", rows_shift(packed_heads));
  } else {
    constants.add("kGqaShift", 0);
    constants.add("kUnitPositions", kSm90ConsumerRows / packed_heads);
  }
  constants.add_bool("kDebugWaits", resolved.options().debug_waits.value_or(false));
  constants.add("kHeldQSteps", sm90.held_q_steps);
  constants.add_float("kRescaleThreshold", sm90.rescale_threshold);
  constants.add_float("kPBias", sm90.p_bias);
  constants.add("kExp2FmaPairs", sm90.exp2_fma_pairs);
  constants.add("kProducerRegisters", sm90.producer_registers);
  constants.add("kConsumerRegisters", sm90.consumer_registers);
  constants.add("kBody", body);
  constants.add("kQOffset", sm90_begin_of(Sm90Region::kQ, sm90));
  constants.add("kKOffset", sm90_begin_of(Sm90Region::kK, sm90));
  constants.add("kVOffset", sm90_begin_of(Sm90Region::kV, sm90));
  constants.add("kRowsOffset", sm90_begin_of(Sm90Region::kVRows, sm90));
  constants.add("kRowWordsOffset", sm90_begin_of(Sm90Region::kRowWords, sm90));
  constants.add("kWorkBytes", sm90_work_bytes(sm90));
  constants.add("kWorkOffset", sm90_begin_of(Sm90Region::kWork, sm90));
  constants.add("kNotesOffset", sm90_begin_of(Sm90Region::kNotes, sm90));
  constants.add("kNoteBytes", sm90_note_bytes(sm90));
  constants.add("kBarrierOffset", sm90_begin_of(Sm90Region::kBarriers, sm90));
  int first_barrier = 0;
  for (const Sm90BarrierGroup& group : sm90_barrier_groups(sm90)) {
    constants.add(group.constant, first_barrier);
    first_barrier += group.count;
  }
  constants.add_barriers(sm90.barriers);
  constants.add("kOBlocks", sm90.o_blocks);
  constants.add("kOOffset", sm90_begin_of(Sm90Region::kO, sm90));
  constants.add("kSmemBytes", sm90.smem_bytes);
  constants.add_users(spec);
  return std::move(constants).take();
}

std::vector<LaunchNumber> numbers_of(const AttentionSpec& spec, const Sm90Plan& sm90) {
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen};
  add_work_numbers(spec, sm90.split, sm90.kv_lens, numbers);
  if (sm90.head_runs()) numbers.push_back(kEvenParts);
  if (sm90.low != nullptr) numbers.push_back(kLowBody);
  if (sm90.row_copies) {
    numbers.insert(numbers.end(), kRowCopyNumbers.begin(), kRowCopyNumbers.end());
  } else if (sm90.key_scales && has_page_table(spec)) {
    numbers.push_back(kNumPages);
  }
  // A ragged O comes with its strides, and has no batch.
  if (sm90.direct_o && !spec.ragged) {
    numbers.insert(numbers.end(), {kOBatchBytes, kORowBytes, kOHeadBytes});
  }
  return numbers;
}

std::vector<KernelParameter> parameters_of(const KernelPlan& plan, const Sm90Plan& sm90) {
  const std::vector<LaunchNumber> numbers = numbers_of(plan.spec, sm90);
  std::span<const TensorMapId> maps = kForwardMaps;
  if (sm90.row_copies) maps = kRowMaps;
  if (sm90.direct_o) maps = maps.first(maps.size() - 1);
  std::vector<KernelParameter> parameters = forward_parameters(plan, maps, numbers);
  if (sm90.direct_o && !plan.spec->ragged) {
    parameters.push_back(parameter("o", forward_buffer(plan, BufferId::Kind::kO), "unsigned char"));
  }
  if (sm90.row_copies) add_key_parameters(plan, parameters);
  if (sm90.claims_work) {
    parameters.push_back(workspace_parameter(plan, WorkspaceId::kClaims, "attnjit::ClaimWords"));
  }
  add_partial_parameters(plan, parameters);
  if (sm90.mapped) add_map_parameters(plan, parameters);
  return parameters;
}

}  // namespace

Status fill_from_sm90(const Sm90Plan& sm90, KernelPlan& plan) {
  if (sm90.smem_bytes > sm90_smem_room(sm90)) {
    // Only a tuning table can ask for this; the choices above are tested to fit.
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("BN {} with {} stages needs {} bytes of shared memory; a CTA has {}", sm90.BN,
                    sm90.num_stages, sm90.smem_bytes, sm90_smem_room(sm90)),
        "BN");
  }
  PlannedKernel& kernel = plan.main();
  kernel.entry = "attnjit_forward";
  kernel.kernel_header = "sm90/forward.cuh";
  kernel.threads = sm90.threads();
  kernel.ctas_per_sm = sm90.ctas_per_sm;
  kernel.overlaps = sm90.overlaps;
  kernel.launch_registers = sm90_launch_registers(sm90);
  kernel.smem_bytes = sm90.smem_bytes;
  for (const Sm90SmemRange& range : sm90.smem) {
    kernel.smem_map.push_back({sm90_range_name(range, sm90), range.begin, range.size});
  }
  kernel.barriers = sm90.barriers;
  kernel.roles = sm90_roles(sm90);
  kernel.constants = constants_of(plan.spec, sm90, 0);
  if (sm90.low != nullptr) {
    kernel.smem_bytes = std::max(kernel.smem_bytes, sm90.low->smem_bytes);
    kernel.low_constants = constants_of(plan.spec, *sm90.low, 1);
  }
  kernel.parameters = parameters_of(plan, sm90);
  if (sm90.mapped) plan.map = planned_map(plan.spec, sm90_packed_heads(sm90, plan.spec));
  const StreamK ranges = sm90.kv_lens ? StreamK::kHeads : StreamK::kTiles;
  plan.partials = {.stream_k = sm90.runs ? ranges : StreamK::kNone,
                   .cut_rows = sm90.cuts ? sm90.BM : 0};
  add_split_deviation(plan);
  return {};
}

}  // namespace attnjit

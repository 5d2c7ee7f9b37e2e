// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel of absorbed MLA: what it serves, its stages, its shared memory.
#include "plan/sm90_mla/sm90_mla_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "plan/constants.h"
#include "plan/forward_support.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_knobs.h"
#include "plan/sm90/sm90_shapes.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxSmemBytes = 232448;  // a CTA's, opt-in, on sm_90
constexpr int kRegisterFile = 65536;            // of an SM
constexpr int kBlockColumns = 64;               // of 128 bytes: a TMA box, and the swizzle's row
constexpr int kMaxLatent = 512;  // O's 64 x 512 floats take half of the register file
constexpr int kMaxHeads = 128;
constexpr int kTileRows = 64;  // of a wgmma
constexpr int kTileKeys = 64;
constexpr int kConsumers = 2;
constexpr int kWarps = 4;       // of a warpgroup
constexpr int kWorkBytes = 48;  // of the announcement of a work tile, stored 16 bytes at a time
/// P of 64 x 64 in 16 bits, and of each thread's two rows the maximum and the sum.
constexpr int kRecordBytes = 64 * 64 * 2 + 128 * 16;
constexpr std::array kStages{2, 4, 6, 8};  // even: the parity of a stage says whose tile it is

int blocks_of(int depth) { return depth / kBlockColumns; }

/// The mbarriers, in the order in which they lie in shared memory.
struct BarrierGroup {
  const char* constant;  ///< the Config member that holds the rank of the first
  std::vector<BarrierPlan> barriers;
};

std::vector<BarrierGroup> barrier_groups(const AttentionSpec& spec, const Sm90Plan& plan) {
  // One thread announces what TMA will bring, where threads copy each does; one lane of each warp
  // that read it hands it back.
  constexpr int kProducer = 1;
  const int of_k = plan.row_copies ? 128 : kProducer;
  const int blocks = blocks_of(spec.qk_depth);
  const int latent = blocks_of(spec.ov_depth);
  std::vector<BarrierPlan> q_full, k_full, k_empty;
  for (int block = 0; block < blocks; ++block) {
    q_full.push_back({fmt::format("Q block {} full", block), kProducer});
  }
  for (int stage = 0; stage < plan.num_stages; ++stage) {
    for (int block = 0; block < blocks; ++block) {
      // Of an odd number of blocks both warpgroups multiply with the one in the middle; the rope's
      // is of the one that makes S.
      const bool shared = latent % 2 != 0 && block == latent / 2;
      const std::string name = fmt::format("K {} block {}", stage, block);
      k_full.push_back({name + " full", of_k});
      const int readers = shared ? kConsumers * kWarps : kWarps;
      k_empty.push_back({name + " empty", plan.cluster * readers});
    }
  }
  std::vector<BarrierGroup> groups{
      {"kBarWorkFull", {{"work full", kProducer}}},
      {"kBarWorkEmpty", {{"work empty", kConsumers * kWarps}}},
      {"kBarQFull", std::move(q_full)},
      {"kBarQEmpty", {{"Q empty", kConsumers * kWarps}}},
      {"kBarKvFull", std::move(k_full)},
      {"kBarKvEmpty", std::move(k_empty)},
  };
  if (plan.kv_lens && !plan.row_copies) {
    groups.push_back({"kBarTail", {{"K tail full", kProducer}}});
  }
  return groups;
}

/// Shared memory and barriers, in their order.
void lay_out(const AttentionSpec& spec, Sm90Plan& plan) {
  plan.smem_bytes = 0;
  plan.smem.clear();
  plan.barriers.clear();
  const auto add = [&](Sm90Region region, int stage, std::int64_t bytes) {
    plan.smem.push_back({region, stage, plan.smem_bytes, bytes});
    plan.smem_bytes += bytes;
  };
  add(Sm90Region::kQ, 0, plan.q_bytes);
  for (int i = 0; i < plan.num_stages; ++i) add(Sm90Region::kK, i, plan.k_bytes);
  add(Sm90Region::kP, 0, kRecordBytes);
  add(Sm90Region::kWork, 0, kWorkBytes);
  for (const BarrierGroup& group : barrier_groups(spec, plan)) {
    plan.barriers.insert(plan.barriers.end(), group.barriers.begin(), group.barriers.end());
  }
  add(Sm90Region::kBarriers, 0, std::int64_t{8} * static_cast<std::int64_t>(plan.barriers.size()));
}

/// What a tuning row may choose. Half of the heads of a position is a CTA's rows where there are
/// more than 64: then the other half's CTA may load K with it.
std::vector<Sm90Knob> knobs_of(const AttentionSpec& spec, const Sm90Plan& plan) {
  const bool halves = (1 << sm90_gqa_shift(plan, spec)) > kTileRows && !plan.row_copies;
  return {{"num_stages", &Sm90Plan::num_stages, {kStages.begin(), kStages.end()}},
          {"cluster", &Sm90Plan::cluster,
           halves ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1}}};
}

std::vector<ConfigConstant> constants_of(const AttentionSpec& spec, const Sm90Plan& plan) {
  Constants constants;
  constants.add_bool("kBf16", spec.qkv_dtype == Dtype::kBf16);
  constants.add_bool("kOutputBf16", spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kBf16);
  constants.add("kQkDepth", spec.qk_depth);
  constants.add("kOvDepth", spec.ov_depth);
  constants.add("kGroup", spec.group);
  constants.add("kGqaShift", sm90_gqa_shift(plan, spec));
  constants.add_bool("kSink", spec.sink);
  constants.add_bool("kReturnLse", spec.return_lse);
  constants.add_bool("kLseIncludesSink", spec.lse_includes_sink);
  constants.add("kThreads", plan.threads());
  constants.add("kCluster", plan.cluster);
  constants.add("kTileM", plan.BM);
  constants.add("kTileN", plan.BN);
  constants.add("kPageSize", spec.page_size);
  constants.add("kBoxKeys", plan.box_keys);
  constants.add_bool("kRowCopies", plan.row_copies);
  constants.add_bool("kRagged", spec.ragged);
  constants.add_bool("kRaggedKv", spec.ragged_kv);
  constants.add_bool("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  constants.add_bool("kPairTiles", false);
  constants.add_bool("kMapped", false);
  constants.add_bool("kSplit", plan.split);
  constants.add("kPartitionTiles", plan.partition_tiles);
  constants.add_bool("kMergeOnePart", merges_one_part(spec));
  constants.add_bool("kRescaleByRow", plan.rescale_by_row);
  constants.add("kStages", plan.num_stages);
  constants.add_bool("kDebugWaits", false);
  constants.add_float("kRescaleThreshold", plan.rescale_threshold);
  constants.add_float("kPBias", plan.p_bias);
  constants.add("kExp2FmaPairs", plan.exp2_fma_pairs);
  constants.add("kProducerRegisters", plan.producer_registers);
  constants.add("kConsumerRegisters", plan.consumer_registers);
  constants.add("kQOffset", sm90_begin_of(Sm90Region::kQ, plan));
  constants.add("kKvOffset", sm90_begin_of(Sm90Region::kK, plan));
  constants.add("kRecordOffset", sm90_begin_of(Sm90Region::kP, plan));
  constants.add("kWorkBytes", kWorkBytes);
  constants.add("kWorkOffset", sm90_begin_of(Sm90Region::kWork, plan));
  constants.add("kBarrierOffset", sm90_begin_of(Sm90Region::kBarriers, plan));
  std::size_t first_barrier = 0;
  for (const BarrierGroup& group : barrier_groups(spec, plan)) {
    constants.add(group.constant, static_cast<std::int64_t>(first_barrier));
    first_barrier += group.barriers.size();
  }
  constants.add_barriers(plan.barriers);
  constants.add("kSmemBytes", plan.smem_bytes);
  constants.add_users(spec);
  return std::move(constants).take();
}

std::vector<LaunchNumber> numbers_of(const AttentionSpec& spec, const Sm90Plan& plan) {
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen, kOBatchBytes};
  // A ragged O comes with these.
  if (!spec.ragged) {
    numbers.push_back(kORowBytes);
    numbers.push_back(kOHeadBytes);
  }
  sm90_add_work_numbers(spec, plan, numbers);
  if (plan.row_copies) numbers.insert(numbers.end(), {kNumPages, kKPageBytes, kKRowBytes});
  return numbers;
}

std::vector<KernelParameter> parameters_of(const KernelPlan& plan, const Sm90Plan& mla) {
  const AttentionSpec& spec = plan.spec;
  std::vector<TensorMapId> maps{TensorMapId::kQ};
  if (!mla.row_copies) maps.push_back(TensorMapId::kK);
  std::vector<KernelParameter> parameters = forward_parameters(plan, maps, numbers_of(spec, mla));
  const auto add_array = [&](BufferId::Kind tensor, const char* cuda_type) {
    parameters.push_back(
        parameter(std::string(name_of(tensor)), forward_buffer(plan, tensor), cuda_type));
  };
  if (!spec.ragged) add_array(BufferId::Kind::kO, "unsigned char");
  if (mla.row_copies) add_array(BufferId::Kind::kK, "const unsigned char");
  add_partial_parameters(plan, parameters);
  return parameters;
}

}  // namespace

std::string sm90_mla_unsupported_reason(const ResolvedSpec& resolved) {
  const AttentionSpec& spec = *resolved;
  if (std::string reason = unsupported_output(spec); !reason.empty()) return reason;
  if (std::string reason = unsupported_everywhere(spec); !reason.empty()) return reason;
  if (interprets(spec)) {
    return "the kernel of absorbed MLA interprets no custom code (interpreted) yet";
  }
  constexpr const char* kWhy =
      "its products want V's keys adjacent, and the cache has them in rows";
  if (std::string reason = unsupported_e4m3(spec, kWhy); !reason.empty()) return reason;
  if (contains(spec.mask, MaskSpec::Kind::kMaterialized)) {
    return "the kernel of absorbed MLA has no materialized masks (mask) yet";
  }
  if (std::string reason = unsupported_partitions(spec, kTileKeys); !reason.empty()) {
    return reason;
  }
  if (spec.group != spec.num_q_heads) {
    return fmt::format(
        "absorbed MLA (mla: decode) has one key-value head: group is {}, num_q_heads {}",
        spec.group, spec.num_q_heads);
  }
  if (spec.num_q_heads > kMaxHeads) {
    return fmt::format("the sm_90a template of absorbed MLA takes up to {} heads per rank, not {}",
                       kMaxHeads, spec.num_q_heads);
  }
  const int rope = spec.qk_depth - spec.ov_depth;
  if (spec.ov_depth % kBlockColumns != 0 || spec.ov_depth > kMaxLatent ||
      (rope != 0 && rope != kBlockColumns)) {
    return fmt::format(
        "the sm_90a template of absorbed MLA takes a latent part (ov_depth) of a multiple of {} up "
        "to {}, and a rope part of {} or none; qk_depth is {}, ov_depth {}",
        kBlockColumns, kMaxLatent, kBlockColumns, spec.qk_depth, spec.ov_depth);
  }
  const PlanOptions& options = resolved.options();
  if (options.pair_cta.value_or(false)) return "sm_90a has no MMA of two CTAs (pair_cta)";
  if (options.swizzle_bytes.value_or(128) != 128) {
    return fmt::format("the sm_90a template needs 128-byte swizzles; swizzle_bytes is {}",
                       *options.swizzle_bytes);
  }
  if (options.num_qo.value_or(1) != 1) {
    return fmt::format("a CTA of absorbed MLA has one query tile; num_qo is {}", *options.num_qo);
  }
  if (options.debug_waits.value_or(false)) {
    return "absorbed MLA has no bounded waits (debug_waits) on sm_90a: O leaves no registers for "
           "them";
  }
  return why_no_parameters(spec);
}

Result<Sm90Plan> make_sm90_mla_plan(const ResolvedSpec& resolved, const TuningValues* tuned) {
  const AttentionSpec& spec = *resolved;
  Sm90Plan plan;
  plan.BN = kTileKeys;
  plan.num_consumers = kConsumers;
  plan.num_q_stages = 1;
  plan.pack_gqa = true;
  plan.overlaps = true;
  plan.kv_lens = lengths_differ(spec);
  plan.split = splits(spec);
  plan.row_copies = copies_rows(spec);
  if (!plan.row_copies) {
    plan.box_keys = spec.page_size > 0 ? std::gcd(spec.page_size, plan.BN) : plan.BN;
  }
  plan.partition_tiles = spec.partition_keys / plan.BN;
  plan.rescale_by_row = spec.partition_keys > 0;
  // As of sm_90a's decodes: nobody comes back for what was not asked for.
  plan.l2_bytes = 128;
  // In all no more than the CTA is launched with, 3 x 168. Copies of rows, and of a tile in several
  // boxes, take more.
  const bool one_box = !plan.row_copies && plan.box_keys == plan.BN;
  plan.producer_registers = one_box ? 24 : 40;
  plan.consumer_registers = one_box ? 240 : 232;
  plan.padded_qk_depth = spec.qk_depth;
  plan.padded_ov_depth = spec.ov_depth;
  plan.q_bytes = std::int64_t{2} * kTileRows * spec.qk_depth;
  plan.k_bytes = std::int64_t{2} * plan.BN * spec.qk_depth;
  for (const int stages : kStages) {
    Sm90Plan more = plan;
    more.num_stages = stages;
    lay_out(spec, more);
    if (plan.num_stages == 0 || more.smem_bytes <= kMaxSmemBytes) plan.num_stages = stages;
  }
  if (tuned != nullptr) {
    if (Status status =
            sm90_apply(knobs_of(spec, plan), "an sm_90a plan of absorbed MLA", *tuned, plan);
        !status)
      return status.error();
  }
  plan.BM = kTileRows * plan.cluster;
  lay_out(spec, plan);
  return plan;
}

Status fill_from_sm90_mla(const Sm90Plan& mla, KernelPlan& plan) {
  if (mla.smem_bytes > kMaxSmemBytes) {
    // Only a tuning table can ask for this; the choice above is tested to fit.
    return make_error(ErrorCode::kInvalid,
                      fmt::format("{} stages need {} bytes of shared memory; a CTA has {}",
                                  mla.num_stages, mla.smem_bytes, kMaxSmemBytes),
                      "num_stages");
  }
  PlannedKernel& kernel = plan.main();
  kernel.entry = "attnjit_mla_decode";
  kernel.kernel_header = "sm90_mla/decode.cuh";
  kernel.threads = mla.threads();
  kernel.cluster = mla.cluster;
  kernel.overlaps = mla.overlaps;
  kernel.launch_registers = kRegisterFile / kernel.threads / 8 * 8;
  kernel.smem_bytes = mla.smem_bytes;
  for (const Sm90SmemRange& range : mla.smem) {
    kernel.smem_map.push_back({sm90_range_name(range, mla), range.begin, range.size});
  }
  kernel.barriers = mla.barriers;
  kernel.constants = constants_of(plan.spec, mla);
  kernel.parameters = parameters_of(plan, mla);
  add_split_deviation(plan);
  return {};
}

std::vector<TuningKnob> sm90_mla_knobs(const KernelPlan& plan) {
  return sm90_chosen(knobs_of(plan.spec, *plan.sm90), *plan.sm90);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The merge kernel of plans that split or accumulate, and its launch.
#include "plan/merge/merge_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "plan/kernel/constants.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"
#include "plan/launch/arguments.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr int kWarps = 4;         // per CTA
constexpr int kLongRow = 256;     // elements of O that one warp merges
constexpr int kLongWarps = 8;     // that share a longer row of many parts,
constexpr int kStagedParts = 32;  // of which so many are in shared memory at a time
constexpr int kFewParts = 8;      // no more are a warp's, however long the row,
constexpr int kManyRows = 512;    // and where there are ranges, of more rows: most have few parts
constexpr int kCtasPerSm = 16;    // a row is one short read: many are to be on their way
constexpr int kFewCtasPerSm = 4;

constexpr int kMaxDepth = 512;                                  // what a lane holds of a row
constexpr std::int64_t kMaxRows = (std::int64_t{1} << 31) - 1;  // which the kernel divides
constexpr std::int64_t kMaxPairsBytes = std::int64_t{1} << 48;  // the GPU's virtual addresses

/// Where the kernel finds the pairs: the caller's, or what the attention kernel wrote.
BufferId pairs_of(const KernelPlan& plan, BufferId::Kind given, WorkspaceId written) {
  return plan.spec->merge ? BufferId{given, 0} : workspace_buffer(plan, written);
}

std::string unsupported_merge(const ResolvedSpec& resolved) {
  const Dtype dtype = resolved->output_dtype.value_or(resolved->qkv_dtype);
  if (dtype != Dtype::kBf16 && dtype != Dtype::kFp16) {
    return fmt::format("a merge takes pairs of bf16 or fp16, not {} (output_dtype)",
                       to_string(dtype));
  }
  if (resolved->ov_depth % 8 != 0 || resolved->ov_depth > kMaxDepth) {
    return fmt::format("a merge takes an ov_depth that is a multiple of 8, up to {}, not {}",
                       kMaxDepth, resolved->ov_depth);
  }
  if (!(resolved.options() == PlanOptions{})) return "a merge takes no plan options";
  return {};
}

/// Warps that share a row. A long one of many parts is one of few rows: its loads are to be on
/// their way together.
int warps_per_row(const SpecFacts& spec) {
  return splits(spec) && spec.ov_depth > kLongRow ? kLongWarps : 1;
}

int threads_of(const SpecFacts& spec) { return 32 * std::max(kWarps, warps_per_row(spec)); }

/// Whether the parts of a launch lie in two slots of each that has a range.
bool has_slots(const KernelPlan& plan, const PartitionChoice& choice) {
  return plan.partials.cut_rows > 0 && (!plan.partials.over_sequences() || choice.team > 0);
}

/// A launch of the kernel: as many pairs as there are partitions into `o`, of so many sequences.
Status merge_launch(const KernelPlan& plan, const TensorView& o, std::int32_t batch,
                    const PartitionChoice& choice, const DeviceShape& device,
                    LaunchRecipe& recipe) {
  const std::int32_t pairs = choice.partitions;
  const std::int64_t rows = o.batch * o.rows * o.heads;
  if (rows > kMaxRows) {
    return spec::invalid(plan.spec->ragged ? "total_q" : "q_len",
                         "{} rows of all heads are merged; a launch has {} at most", rows,
                         kMaxRows);
  }
  ArgumentValues values{plan, {}, {}, {}, {}};
  using enum LaunchNumber;
  values.numbers.set({{kPartitions, pairs},
                      {kBatch, batch},
                      {kMTiles, choice.team},
                      {kRows, rows},
                      {kRowsPerHead, o.rows},
                      {kOBatchBytes, o.strides.batch * o.element_bytes()},
                      {kORowBytes, o.strides.row * o.element_bytes()},
                      {kOHeadBytes, o.strides.head * o.element_bytes()}});
  const bool shared = warps_per_row(plan.spec) > 1 && pairs > kFewParts &&
                      (rows <= kManyRows || !plan.partials.over_sequences());
  const std::int64_t rows_per_cta = shared ? 1 : threads_of(plan.spec) / 32;
  std::int64_t ctas_per_sm = kCtasPerSm, merged = rows;
  if (has_slots(plan, choice)) {
    // Rows of taller tiles are more than so few warps would merge while others wait. And all may be
    // whole, so that each CTA ends at once.
    ctas_per_sm = plan.partials.cut_rows > 192 ? 2 * kFewCtasPerSm : kFewCtasPerSm;
    merged = std::int64_t{pairs} * plan.partials.cut_rows;
  } else if (plan.spec->mla == Mla::kDecode && plan.partials.over_sequences()) {
    ctas_per_sm = kFewCtasPerSm;
  }
  const std::int64_t ctas = std::min((merged + rows_per_cta - 1) / rows_per_cta,
                                     ctas_per_sm * std::max(device.sm_count, 1));
  Status filled = fill_recipe(KernelId::kMerge, static_cast<std::uint32_t>(ctas), values, recipe);
  const std::int64_t staged = shared ? std::min(pairs, kStagedParts) : 0;
  recipe.dynamic_smem =
      static_cast<std::uint32_t>(staged * plan.spec->ov_depth * std::int64_t{sizeof(float)});
  return filled;
}

}  // namespace

PlannedKernel merge_kernel(const KernelPlan& plan) {
  const SpecFacts& spec = plan.spec;
  PlannedKernel kernel;
  kernel.id = KernelId::kMerge;
  kernel.entry = "attnjit_merge";
  kernel.kernel_header = "partials/merge.cuh";
  kernel.threads = threads_of(spec);
  kernel.overlaps = true;
  // Of a launch that stages; merge_launch() says how much of it.
  if (warps_per_row(spec) > 1) {
    kernel.smem_bytes = std::int64_t{kStagedParts} * spec.ov_depth * std::int64_t{sizeof(float)};
    kernel.ctas_per_sm = 2;  // of few rows and many registers
  }
  // A pair of a plan that accumulates has the sink; the partitions leave it to the merge.
  const bool sink = spec.sink && !spec.accumulate;
  Constants constants;
  constants.add("kThreads", kernel.threads);
  constants.add("kHeads", spec.num_q_heads);
  constants.add("kDepth", spec.ov_depth);
  constants.add("kStagedParts", warps_per_row(spec) > 1 ? kStagedParts : 0);
  constants.add("kFewParts", kFewParts);
  constants.add("kManyRows", kManyRows);
  constants.add("kBf16", spec.o_dtype == Dtype::kBf16);
  constants.add("kOutputBytes", size_of(spec.o_dtype));
  constants.add("kPartialF32", splits(spec));
  constants.add("kQuadOrder", plan.partials.quad_order);
  const bool cuts = plan.partials.cut_rows > 0 && !plan.partials.over_sequences();
  constants.add("kStreamK", plan.partials.over_sequences());
  constants.add("kCuts", cuts);
  constants.add("kTileM", plan.partials.cut_rows);
  constants.add("kDecodes", cuts && spec.lengths_differ && !spec.ragged);
  // Rows of cut tiles are those of sequences.
  const bool bounded =
      spec.ragged && !spec.merge && (plan.partials.cut_rows == 0 || plan.partials.over_sequences());
  constants.add("kRagged", bounded);
  constants.add("kAccumulate", spec.accumulate);
  constants.add("kSink", sink);
  constants.add("kReturnLse", spec.return_lse);
  constants.add("kLseIncludesSink", spec.lse_includes_sink);
  kernel.constants = std::move(constants).take();
  kernel.parameters = {
      parameter("o", {BufferId::Kind::kO, 0}, "unsigned char"),
      parameter("partial_o", pairs_of(plan, BufferId::Kind::kPairsO, WorkspaceId::kPartialO),
                "const unsigned char"),
      parameter("partial_lse", pairs_of(plan, BufferId::Kind::kPairsLse, WorkspaceId::kPartialLse),
                "const float")};
  using enum LaunchNumber;
  add_numbers({kPartitions, kRows, kRowsPerHead, kOBatchBytes, kORowBytes, kOHeadBytes},
              kernel.parameters);
  if (plan.partials.over_sequences()) add_numbers({kMTiles}, kernel.parameters);
  if (bounded) {
    add_numbers({kBatch}, kernel.parameters);
    add_array(BufferId::Kind::kQOffsets, "const int", kernel.parameters);
  }
  if (spec.return_lse) add_array(BufferId::Kind::kLse, "float", kernel.parameters);
  if (sink) add_array(BufferId::Kind::kSink, "const float", kernel.parameters);
  if (spec.o_dtype == Dtype::kE4m3) {
    add_array(BufferId::Kind::kOutputScale, "const float", kernel.parameters);
  }
  return kernel;
}

Status plan_merge(KernelPlan& plan) {
  plan.reason = unsupported_merge(plan.spec);
  plan.supported = plan.reason.empty();
  if (plan.supported) plan.main() = merge_kernel(plan);
  return {};
}

Status plan_merge_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe) {
  const TensorView& o = request.tensors.o;
  const std::int32_t pairs = request.shapes.num_pairs;
  if (pairs < 1 || pairs > kMaxPairs) {
    return spec::invalid("num_pairs", "num_pairs is {}; 1 to {} is allowed", pairs, kMaxPairs);
  }
  // NOTE: divided, not multiplied: a tensor may have 2^48 bytes.
  const std::int64_t pair_bytes = o.batch * o.rows * o.heads * o.depth * o.element_bytes();
  if (pair_bytes > kMaxPairsBytes / pairs) {
    return spec::invalid("num_pairs", "{} pairs of {} bytes are more than 2^48 bytes", pairs,
                         pair_bytes);
  }
  return merge_launch(plan, o, request.shapes.batch, {pairs, pairs}, request.device, recipe);
}

Status fill_merge_launch(const KernelPlan& plan, const TensorView& o, std::int32_t batch,
                         const PartitionChoice& choice, const DeviceShape& device,
                         LaunchSequence& sequence) {
  const std::int64_t range_rows = std::int64_t{choice.partitions} * plan.partials.cut_rows;
  const bool slots = has_slots(plan, choice);
  const std::int64_t pairs =
      slots ? 2 * range_rows : o.batch * o.rows * o.heads * choice.partitions;
  const std::int64_t element_bytes =
      splits(plan.spec) ? std::int64_t{sizeof(float)} : o.element_bytes();
  set_bytes(plan, WorkspaceId::kPartialO, pairs * o.depth * element_bytes, sequence);
  // The table: rows of each range, and how many parts its tile has.
  const std::int64_t words = pairs + (slots ? range_rows + choice.partitions : 0);
  set_bytes(plan, WorkspaceId::kPartialLse, words * std::int64_t{sizeof(float)}, sequence);
  return merge_launch(plan, o, batch, choice, device, sequence.launches.back());
}

}  // namespace attnjit

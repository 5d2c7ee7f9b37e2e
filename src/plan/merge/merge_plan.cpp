// SPDX-License-Identifier: Apache-2.0
// The merge kernel of plans that split or accumulate, and its launch.
#include "plan/merge/merge_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "plan/launch/arguments.h"
#include "plan/signature.h"

namespace attnjit {
namespace {

constexpr int kThreads = 128;
constexpr int kRowsPerCta = kThreads / 32;  // a warp merges a row
constexpr int kCtasPerSm = 16;              // a row is one short read: many are to be on their way

BufferId workspace(std::uint32_t index) { return {BufferId::Kind::kWorkspace, index}; }

bool merges(const AttentionSpec& spec) { return spec.accumulate || splits(spec); }

}  // namespace

bool splits(const AttentionSpec& spec) {
  return spec.arch == Arch::kSm90a && spec.num_partitions != 1 && !spec.accumulate;
}

BufferId forward_buffer(const KernelPlan& plan, BufferId::Kind tensor) {
  if (plan.spec->accumulate && tensor == BufferId::Kind::kO) return workspace(kPartialO);
  if (plan.spec->accumulate && tensor == BufferId::Kind::kLse) return workspace(kPartialLse);
  return {tensor, 0};
}

void add_merge_workspaces(KernelPlan& plan) {
  if (!merges(plan.spec)) return;
  plan.workspaces = {{"partial_o", false}, {"partial_lse", false}};
}

void add_merge_kernel(KernelPlan& plan) {
  if (!merges(plan.spec)) return;
  const AttentionSpec& spec = plan.spec;
  PlannedKernel kernel;
  kernel.entry = "attnjit_merge";
  kernel.kernel_header = "partials/merge.cuh";
  kernel.threads = kThreads;
  kernel.overlaps = true;
  // A pair of a plan that accumulates has the sink; the partitions leave it to the merge.
  const bool sink = spec.sink && !spec.accumulate;
  const bool bf16 = spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kBf16;
  kernel.constants = {{"int", "kThreads", std::to_string(kThreads)},
                      {"int", "kHeads", std::to_string(spec.num_q_heads)},
                      {"int", "kDepth", std::to_string(spec.ov_depth)},
                      {"bool", "kBf16", bf16 ? "true" : "false"},
                      {"bool", "kPartialF32", splits(spec) ? "true" : "false"},
                      {"bool", "kAccumulate", spec.accumulate ? "true" : "false"},
                      {"bool", "kSink", sink ? "true" : "false"},
                      {"bool", "kReturnLse", spec.return_lse ? "true" : "false"},
                      {"bool", "kLseIncludesSink", spec.lse_includes_sink ? "true" : "false"}};
  kernel.parameters = {
      parameter("o", {BufferId::Kind::kO, 0}, "unsigned char"),
      parameter("partial_o", workspace(kPartialO), "const unsigned char"),
      parameter("partial_lse", workspace(kPartialLse), "const float"),
      parameter(LaunchNumber::kPartitions),
      parameter(LaunchNumber::kRows),
      parameter(LaunchNumber::kRowsPerHead),
      parameter(LaunchNumber::kOBatchBytes),
      parameter(LaunchNumber::kORowBytes),
      parameter(LaunchNumber::kOHeadBytes),
  };
  if (spec.return_lse) {
    kernel.parameters.push_back(parameter("lse", {BufferId::Kind::kLse, 0}, "float"));
  }
  if (sink) {
    kernel.parameters.push_back(parameter("sink", {BufferId::Kind::kSink, 0}, "const float"));
  }
  plan.kernels.push_back(std::move(kernel));
}

Status add_merge_launch(const KernelPlan& plan, const TensorView& o, std::int32_t partitions,
                        const DeviceShape& device, LaunchSequence& sequence) {
  if (!merges(plan.spec)) return {};
  const std::int64_t rows = o.batch * o.rows * o.heads;
  const bool split = splits(plan.spec);
  const std::int64_t pairs = split && partitions == 1 ? 0 : rows * partitions;
  const std::int64_t element_bytes = split ? std::int64_t{sizeof(float)} : o.element_bytes();
  sequence.workspaces = {
      {plan.workspaces.at(kPartialO).name, pairs * o.depth * element_bytes, false},
      {plan.workspaces.at(kPartialLse).name, pairs * std::int64_t{sizeof(float)}, false}};
  if (pairs == 0) return {};
  ArgumentValues values{plan, {}, {}, {}, {}};
  values.numbers.set(LaunchNumber::kPartitions, partitions);
  values.numbers.set(LaunchNumber::kRows, rows);
  values.numbers.set(LaunchNumber::kRowsPerHead, o.rows);
  values.numbers.set(LaunchNumber::kOBatchBytes, o.strides.batch * o.element_bytes());
  values.numbers.set(LaunchNumber::kORowBytes, o.strides.row * o.element_bytes());
  values.numbers.set(LaunchNumber::kOHeadBytes, o.strides.head * o.element_bytes());
  const std::int64_t ctas = std::min((rows + kRowsPerCta - 1) / kRowsPerCta,
                                     std::int64_t{kCtasPerSm} * std::max(device.sm_count, 1));
  Result<LaunchRecipe> recipe =
      make_recipe(plan.kernels.back(), static_cast<std::uint32_t>(ctas), values);
  if (!recipe) return recipe.error();
  sequence.launches.push_back(*std::move(recipe));
  return {};
}

}  // namespace attnjit

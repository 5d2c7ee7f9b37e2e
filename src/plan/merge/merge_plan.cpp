// SPDX-License-Identifier: Apache-2.0
// The merge kernel of plans that accumulate, and its launch.
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

// The plan's workspaces, in their order.
enum : std::uint32_t { kPartialO, kPartialLse };

BufferId workspace(std::uint32_t index) { return {BufferId::Kind::kWorkspace, index}; }

}  // namespace

BufferId forward_buffer(const KernelPlan& plan, BufferId::Kind tensor) {
  if (plan.spec->accumulate && tensor == BufferId::Kind::kO) return workspace(kPartialO);
  if (plan.spec->accumulate && tensor == BufferId::Kind::kLse) return workspace(kPartialLse);
  return {tensor, 0};
}

void add_merge_workspaces(KernelPlan& plan) {
  if (!plan.spec->accumulate) return;
  plan.workspaces = {{"partial_o", false}, {"partial_lse", false}};
}

void add_merge_kernel(KernelPlan& plan) {
  if (!plan.spec->accumulate) return;
  const AttentionSpec& spec = plan.spec;
  PlannedKernel kernel;
  kernel.entry = "attnjit_merge";
  kernel.kernel_header = "partials/merge.cuh";
  kernel.threads = kThreads;
  const bool bf16 = spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kBf16;
  kernel.constants = {{"int", "kThreads", std::to_string(kThreads)},
                      {"int", "kHeads", std::to_string(spec.num_q_heads)},
                      {"int", "kDepth", std::to_string(spec.ov_depth)},
                      {"bool", "kBf16", bf16 ? "true" : "false"}};
  kernel.parameters = {
      parameter("o", {BufferId::Kind::kO, 0}, "unsigned char"),
      parameter("lse", {BufferId::Kind::kLse, 0}, "float"),
      parameter("partial_o", workspace(kPartialO), "const unsigned char"),
      parameter("partial_lse", workspace(kPartialLse), "const float"),
      parameter(LaunchNumber::kRows),
      parameter(LaunchNumber::kRowsPerHead),
      parameter(LaunchNumber::kOBatchBytes),
      parameter(LaunchNumber::kORowBytes),
      parameter(LaunchNumber::kOHeadBytes),
  };
  plan.kernels.push_back(std::move(kernel));
}

Status add_merge_launch(const KernelPlan& plan, const TensorView& o, const DeviceShape& device,
                        LaunchSequence& sequence) {
  if (!plan.spec->accumulate) return {};
  const std::int64_t rows = o.batch * o.rows * o.heads;
  ArgumentValues values{plan, {}, {}, {}, {}};
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
  sequence.workspaces = {
      {plan.workspaces.at(kPartialO).name, rows * o.depth * o.element_bytes(), false},
      {plan.workspaces.at(kPartialLse).name, rows * std::int64_t{sizeof(float)}, false}};
  return {};
}

}  // namespace attnjit

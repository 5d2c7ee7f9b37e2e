// SPDX-License-Identifier: Apache-2.0
// plan_launch: the launches of a plan for given shapes, as a LaunchSequence.
#include "plan/plan_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/family.h"
#include "plan/kernel/family_traits.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/sequence.h"
#include "plan/launch/partitions.h"
#include "plan/launch/wait_records.h"
#include "plan/map/map_plan.h"
#include "plan/merge/merge_plan.h"
#include "spec/scalars.h"

namespace attnjit {
namespace {

constexpr std::int64_t kCounterBytes = 16;  // TileCounters of templates/common/dynamic_tiles.cuh

PartitionChoice partitions_of(const KernelPlan& plan, const LaunchShapes& shapes,
                              const LaunchScalars& scalars, const DeviceShape& device) {
  if (!family_traits(plan.spec).splits) return {};
  return family_of(plan.spec).partitions(plan, reached_shapes(plan, shapes, scalars), device);
}

}  // namespace

std::int32_t launch_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                               const DeviceShape& device) {
  const bool empty = shapes.batch <= 0 || shapes.q_len <= 0 || shapes.kv_len <= 0;
  if (!plan.supported || empty) return 1;
  return partitions_of(plan, shapes, launch_scalars(plan.spec), device).partitions;
}

LaunchScalars launch_scalars(const AttentionSpec& spec) {
  LaunchScalars scalars;
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    scalars.values.push_back(scalar.value);
  }
  return scalars;
}

std::vector<std::string> launch_scalar_names(const AttentionSpec& spec) {
  std::vector<std::string> names;
  for (spec::SpecScalar& scalar : spec::spec_scalars(spec)) names.push_back(std::move(scalar.name));
  return names;
}

Result<LaunchSequence> plan_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                   const LaunchScalars& scalars,
                                   const std::vector<UserParamShape>& params,
                                   const DeviceShape& device) {
  LaunchSequence sequence;
  Status planned = plan_launch_into(plan, shapes, scalars, params, device, sequence);
  if (!planned) return std::move(planned).error();
  return sequence;
}

Status plan_launch_into(const KernelPlan& plan, const LaunchShapes& shapes,
                        const LaunchScalars& scalars, const std::vector<UserParamShape>& params,
                        const DeviceShape& device, LaunchSequence& sequence) {
  return plan_launch_in_parts(plan, shapes, scalars, params, device, std::nullopt, sequence);
}

Status plan_launch_in_parts(const KernelPlan& plan, const LaunchShapes& shapes,
                            const LaunchScalars& scalars, const std::vector<UserParamShape>& params,
                            const DeviceShape& device, const std::optional<PartitionChoice>& chosen,
                            LaunchSequence& sequence) {
  if (!plan.supported) return make_error(ErrorCode::kUnsupported, plan.reason);
  Result<LaunchTensors> tensors = launch_tensors(plan.spec, shapes);
  if (!tensors) return tensors.error();
  for (const PlannedKernel& kernel : plan.kernels) {
    if (kernel.smem_bytes <= device.max_smem_bytes) continue;
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("the kernel needs {} bytes of shared memory per CTA; the device has {}",
                    kernel.smem_bytes, device.max_smem_bytes));
  }
  if (tensors->o.empty() || shapes.q_len == 0) {
    sequence = {};
    return {};
  }
  const Result<float> scale = softmax_scale(plan.spec, scalars);
  if (!scale) return scale.error();
  const TensorView o = tensors->o;
  if (forward_buffer(plan, BufferId::Kind::kO).kind != BufferId::Kind::kO) tensors->o = packed(o);
  const KernelFamily& family = family_of(plan.spec);
  const FamilyTraits traits = family_traits(plan.spec);
  const PartitionChoice choice = chosen ? *chosen : partitions_of(plan, shapes, scalars, device);
  const Result<MaskMapShape> map = map_of_launch(plan, shapes);
  if (!map) return map.error();
  const bool lists = plan.map && traits.lists;
  const std::int32_t rows = lists ? family.rows_per_list(plan, shapes, device) : 0;
  const LaunchRequest request{shapes, scalars, params, device, *tensors,
                              *scale, choice,  *map,   rows};
  const std::size_t before = map_launches(plan, request);
  const bool merged = launches_merge(plan, choice.partitions);
  sequence.launches.resize(before + 1 + (merged ? 1 : 0));
  Status filled = family.launch(plan, request, sequence.launches[before]);
  if (!filled) return filled;
  add_workspaces(plan, sequence);
  if (merged) filled = fill_merge_launch(plan, o, shapes.batch, choice, device, sequence);
  if (!filled) return filled;
  filled = fill_map_launches(plan, request, sequence);
  if (!filled) return filled;
  if (has_wait_records(plan)) {
    set_bytes(plan, WorkspaceId::kWaitRecords, kWaitRecordsBytes, sequence);
  }
  // Tile counters are first where there are any. NOTE: a launch that needs other memory counts them
  // in, although its tiles are not dynamic: one buffer serves all.
  const bool needs_memory = std::ranges::any_of(
      sequence.workspaces, [](const Workspace& one) { return one.zeroed || one.bytes > 0; });
  if (needs_memory) set_bytes(plan, WorkspaceId::kTileCounters, kCounterBytes, sequence);
  return {};
}

}  // namespace attnjit

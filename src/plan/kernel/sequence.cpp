// SPDX-License-Identifier: Apache-2.0
// The table of workspaces, and where a plan has its kernels and workspaces.
#include "plan/kernel/sequence.h"

#include <algorithm>
#include <array>
#include <string>
#include <variant>

#include "base/in_order.h"

namespace attnjit {
namespace {

struct WorkspaceRow {
  WorkspaceId id;
  std::string_view name;
  bool zeroed = false;
};
constexpr std::array<WorkspaceRow, static_cast<std::size_t>(WorkspaceId::kCount)> kWorkspaces{{
    {WorkspaceId::kTileCounters, "tile_counters", true},
    {WorkspaceId::kPartialO, "partial_o"},
    {WorkspaceId::kPartialLse, "partial_lse"},
    {WorkspaceId::kMapKvNumBlocks, "map_kv_num_blocks"},
    {WorkspaceId::kMapKvIndices, "map_kv_indices"},
    {WorkspaceId::kMapFullKvNumBlocks, "map_full_kv_num_blocks"},
    {WorkspaceId::kMapFullKvIndices, "map_full_kv_indices"},
    {WorkspaceId::kMapKvBits, "map_kv_bits"},
    {WorkspaceId::kMapBlockBits, "map_block_bits"},
    {WorkspaceId::kListCounts, "list_counts"},
    {WorkspaceId::kList, "list"},
    {WorkspaceId::kListDescriptors, "list_descriptors"},
    {WorkspaceId::kWaitRecords, "wait_records", true},
}};

static_assert(in_order(kWorkspaces, &WorkspaceRow::id));

const WorkspaceRow& row_of(WorkspaceId workspace) {
  return kWorkspaces.at(static_cast<std::size_t>(workspace));
}

std::uint32_t rank_of(const KernelPlan& plan, WorkspaceId workspace) {
  const auto found = std::find(plan.workspaces.begin(), plan.workspaces.end(), workspace);
  return static_cast<std::uint32_t>(found - plan.workspaces.begin());
}

}  // namespace

std::string_view name_of(WorkspaceId workspace) { return row_of(workspace).name; }
bool is_zeroed(WorkspaceId workspace) { return row_of(workspace).zeroed; }

BufferId workspace_buffer(const KernelPlan& plan, WorkspaceId workspace) {
  return {BufferId::Kind::kWorkspace, rank_of(plan, workspace)};
}

bool has_wait_records(const KernelPlan& plan) {
  return plan.spec.options().debug_waits.value_or(false);
}

bool uses(const KernelPlan& plan, WorkspaceId workspace) {
  const BufferId buffer = workspace_buffer(plan, workspace);
  const auto is_it = [&](const KernelParameter& parameter) {
    const auto* source = std::get_if<BufferId>(&parameter.source);
    return source != nullptr && *source == buffer;
  };
  return std::ranges::any_of(plan.kernels, [&](const PlannedKernel& kernel) {
    return std::ranges::any_of(kernel.parameters, is_it);
  });
}

std::uint32_t rank_of(const KernelPlan& plan, KernelId kernel) {
  const auto found = std::ranges::find(plan.kernels, kernel, &PlannedKernel::id);
  return static_cast<std::uint32_t>(found - plan.kernels.begin());
}

void add_workspaces(const KernelPlan& plan, LaunchSequence& sequence) {
  if (sequence.workspaces.size() == plan.workspaces.size()) {
    for (Workspace& workspace : sequence.workspaces) workspace.bytes = 0;
    return;
  }
  sequence.workspaces.clear();
  for (const WorkspaceId workspace : plan.workspaces) {
    // NOTE: who does not use such memory leaves it as it is for those who do.
    const bool zeroed = is_zeroed(workspace) && uses(plan, workspace);
    sequence.workspaces.push_back({std::string(name_of(workspace)), 0, zeroed});
  }
}

void set_bytes(const KernelPlan& plan, WorkspaceId workspace, std::int64_t bytes,
               LaunchSequence& sequence) {
  sequence.workspaces.at(rank_of(plan, workspace)).bytes = bytes;
}

}  // namespace attnjit

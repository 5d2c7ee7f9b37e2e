// SPDX-License-Identifier: Apache-2.0
// The kernels and workspaces of a plan, found by what they are for.
#pragma once

#include <cstdint>
#include <string_view>

#include "attnjit/launch.h"
#include "attnjit/plan.h"

namespace attnjit {

/// The name of a workspace in LAUNCH.json and in a plan's JSON: "partial_o".
std::string_view name_of(WorkspaceId workspace);
/// Whether it must be zero before the first launch; the kernels leave it zero.
bool is_zeroed(WorkspaceId workspace);

/// The buffer that is a workspace of the plan.
/// @pre the plan has it.
BufferId workspace_buffer(const KernelPlan& plan, WorkspaceId workspace);

/// Whether the waits of a plan's kernels are bounded, and leave records (launch/wait_records.h).
bool has_wait_records(const KernelPlan& plan);

/// Whether a kernel of the plan is given a workspace.
bool uses(const KernelPlan& plan, WorkspaceId workspace);

/// The rank of a kernel in KernelPlan::kernels.
/// @pre the plan has it.
std::uint32_t rank_of(const KernelPlan& plan, KernelId kernel);

/// Declares the workspaces of a plan in its launches: of no bytes until set_bytes() says more.
/// `sequence` has none, or those of the same plan.
void add_workspaces(const KernelPlan& plan, LaunchSequence& sequence);

/// Says how many bytes of a workspace the launches need.
/// @pre add_workspaces() was called, and the plan has the workspace.
void set_bytes(const KernelPlan& plan, WorkspaceId workspace, std::int64_t bytes,
               LaunchSequence& sequence);

}  // namespace attnjit

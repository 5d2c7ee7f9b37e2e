// SPDX-License-Identifier: Apache-2.0
// Checks of LaunchArgs that need no GPU, and where they hold the buffers of a recipe.
//
// Pure. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attnjit/driver.h"

namespace attnjit {

/// Fills `values` with the arguments' parameters as plan_launch takes them, in the declared order.
/// Errors: kInvalid for one that is missing, unknown, given twice or of another type than declared;
/// every problem at once.
Status check_params(const std::vector<ParamSpec>& declared, const std::vector<UserParam>& params,
                    std::vector<UserParamShape>& values);

/// Where a launch's arguments hold a buffer.
struct BufferRef {
  BufferId id;                                    ///< kNone: a null pointer
  DevicePointer LaunchBuffers::*field = nullptr;  ///< of a tensor
  std::size_t param = SIZE_MAX;                   ///< into LaunchArgs::params
  std::int64_t workspace_offset = 0;              ///< bytes from LaunchArgs::workspace
  int alignment = 1;  ///< bytes that a kernel's pointer to it is a multiple of: a power of two
};

/// Errors: kInternal where the arguments have no such buffer.
Result<BufferRef> find_buffer(BufferId id, const KernelPlan& plan, const LaunchArgs& args,
                              const std::vector<Workspace>& workspaces);

/// The address that a reference means in these arguments; 0 for kNone.
DevicePointer address_of(const BufferRef& ref, const LaunchArgs& args);

/// Every workspace starts at a multiple of this.
inline constexpr std::int64_t kWorkspaceAlignment = 256;
/// The workspaces one after another. Errors: kInternal for a size that no memory has.
Result<WorkspaceNeed> total_workspace(const std::vector<Workspace>& workspaces);

}  // namespace attnjit

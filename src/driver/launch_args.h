// SPDX-License-Identifier: Apache-2.0
// Checks of LaunchArgs that need no GPU, and the names by which a recipe calls its buffers.
//
// Pure. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attnjit/driver.h"

namespace attnjit {

/// The arguments' parameters as plan_launch takes them, in the declared order. Errors: kInvalid for
/// one that is missing, unknown, given twice or of another type than declared; every problem at
/// once.
Result<std::vector<ParamValue>> check_params(const std::vector<ParamSpec>& declared,
                                             const std::vector<LaunchParam>& params);

/// Negative shapes, strides that TMA cannot take and sizes that overflow. Errors: kInvalid, every
/// problem at once.
Status check_shapes(const KernelPlan& plan, const LaunchArgs& args);

/// Which of a launch's buffers a recipe's name means.
struct BufferRef {
  enum class Kind : std::uint8_t { kNone, kField, kParam, kWorkspace };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;            ///< of the field, parameter or workspace
  std::int64_t workspace_offset = 0;  ///< bytes from LaunchArgs::workspace
};

/// nullopt: no buffer has this name.
std::optional<BufferRef> find_buffer(std::string_view name, const LaunchArgs& args,
                                     const std::vector<Workspace>& workspaces);

/// The address that a reference means in these arguments; 0 for kNone.
DevicePointer address_of(const BufferRef& ref, const LaunchArgs& args);

/// Bytes that a buffer's address must be a multiple of when a kernel gets it as a pointer.
std::int64_t alignment_of(std::string_view name, const KernelPlan& plan);

/// Every workspace starts at a multiple of this.
inline constexpr std::int64_t kWorkspaceAlignment = 256;
/// The workspaces one after another. Errors: kInternal for a size that no memory has.
Result<WorkspaceNeed> total_workspace(const std::vector<Workspace>& workspaces);

}  // namespace attnjit

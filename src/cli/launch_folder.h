// SPDX-License-Identifier: Apache-2.0
// Writes one launch of a kernel as LAUNCH.json with its inputs as .npy files.
#pragma once

#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "cli/arguments.h"

namespace attnjit::cli {

/// Adds the written files to `files`. Errors: those of the problem and of plan_launch; kIo.
Status write_launch(const std::string& folder, const KernelPlan& plan,
                    const ProblemArguments& arguments, const DeviceShape& device,
                    std::vector<std::string>& files);

}  // namespace attnjit::cli

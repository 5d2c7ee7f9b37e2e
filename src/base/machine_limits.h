// SPDX-License-Identifier: Apache-2.0
// MachineLimits: how much of its machine this process may use, control groups included.
//
// Thread rules: any thread may ask at any time.
#pragma once

#include <cstdint>
#include <string>

namespace attnjit {

struct MachineLimits {
  int cores = 1;                  ///< those it may run on; less where a quota of time is less
  std::int64_t memory_bytes = 0;  ///< the machine's; less where a control group allows less
};

MachineLimits machine_limits();

/// `machine`, lessened by the control groups (both versions) that this process and their parents
/// are. `root` stands before /proc and /sys: a test has its own.
MachineLimits with_control_groups(MachineLimits machine, const std::string& root);

}  // namespace attnjit

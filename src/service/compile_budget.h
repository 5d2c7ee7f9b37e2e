// SPDX-License-Identifier: Apache-2.0
// CompileBudget: how many compiles a process may run at once where nobody says.
//
// Thread rules: a pure function.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/machine_limits.h"

namespace attnjit {

/// What is counted for a compile: about twice of what was measured (docs/compile.md), for NVRTC's
/// needs grow with what users write.
inline constexpr std::int64_t kCompileBytes = std::int64_t{256} << 20;

/// One per core, and no more than fit into half of the memory: the rest is the host program's.
inline int compiles_at_once(const MachineLimits& limits) {
  const std::int64_t fit = limits.memory_bytes / 2 / kCompileBytes;
  return static_cast<int>(std::clamp<std::int64_t>(fit, 1, std::max(limits.cores, 1)));
}

}  // namespace attnjit

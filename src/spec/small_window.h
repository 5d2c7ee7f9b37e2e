// SPDX-License-Identifier: Apache-2.0
// How few keys make a window worth kernels of its own.
#pragma once

#include <cstdint>

namespace attnjit::spec {

/// The most keys of such a window. Manifests have it `constant`, the Python integrations ask for it
/// so (python/attnjit/integrations/_specs.py), and the planner of sm_90a knows it then.
inline constexpr std::int64_t kSmallWindow = 256;

}  // namespace attnjit::spec

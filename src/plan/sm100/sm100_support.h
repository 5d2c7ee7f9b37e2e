// SPDX-License-Identifier: Apache-2.0
// What the sm_100 kernels do not serve, before there is a plan to ask about.
#pragma once

#include <optional>
#include <string>

#include "attnjit/result.h"
#include "plan/reference/fa4_config.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// kUnsupported, with the reason.
Error sm100_unsupported(std::string reason);

/// Depths that no layout serves.
std::optional<Error> sm100_check_shape(const SpecFacts& spec);

/// Why the reference has no tiles, of any number of keys; empty: it has.
std::string sm100_why_no_tiles(const Fa4Config& config);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What the sm_100 kernels do not serve, before there is a plan to ask about.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "attnjit/result.h"
#include "plan/reference/fa4_config.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// kUnsupported, with the reason.
template <class... Args>
Error sm100_unsupported(fmt::format_string<Args...> reason, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, fmt::format(reason, std::forward<Args>(args)...));
}

/// Depths that no layout serves.
std::optional<Error> sm100_check_shape(const SpecFacts& spec);

/// Why the reference has no tiles, of any number of keys; empty: it has.
std::string sm100_why_no_tiles(const Fa4Config& config);

}  // namespace attnjit

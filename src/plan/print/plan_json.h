// SPDX-License-Identifier: Apache-2.0
// A plan as one flat JSON object: what `attnjit plan --json` prints.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/reference/config_kind.h"

namespace attnjit {

/// A launch that the 1Q or 2Q choice is asked for. Without max_prompt_len there is no answer;
/// batch defaults to 1, sm_count to the architecture's full chip.
struct LaunchQuery {
  std::optional<std::int64_t> max_prompt_len;
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> sm_count;
};

/// One JSON object: what plan_document gives, as text.
Result<std::string> plan_to_json(const AttentionSpec& spec, const PlanOptions& options,
                                 ConfigKind kind = ConfigKind::kAuto, const LaunchQuery& query = {},
                                 const Tuning* tuning = nullptr);

}  // namespace attnjit

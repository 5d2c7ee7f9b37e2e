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

namespace attnjit {

/// Which reference configuration is shown: `attnjit plan --config`.
enum class ConfigKind : std::uint8_t { kAuto, kFa4, kMla, kDepth512, kSm90 };

/// "auto", "fa4", "mla", "depth512", "sm90".
std::string_view to_string(ConfigKind kind);
std::optional<ConfigKind> config_kind_from_string(std::string_view name);

/// A launch that the 1Q or 2Q choice is asked for. Without max_prompt_len there is no answer;
/// batch defaults to 1, sm_count to the architecture's full chip.
struct LaunchQuery {
  std::optional<std::int64_t> max_prompt_len;
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> sm_count;
};

/// The kind that kAuto stands for, any other kind itself. On sm_10x: num_qo given: fa4; mla: mla;
/// qk_depth 256 or 512: depth512; else fa4. On sm_90a: sm90.
ConfigKind resolve_config_kind(ConfigKind kind, const AttentionSpec& spec,
                               const PlanOptions& options);

/// One JSON object: the configuration's fields and methods under their names, `config`,
/// `supported` and `reason` beside them, and under `kernel` what the kernel really uses. An
/// unsupported configuration is printed all the same. Errors: kInvalid as plan()'s, and for a query
/// out of range.
Result<std::string> plan_to_json(const AttentionSpec& spec, const PlanOptions& options,
                                 ConfigKind kind = ConfigKind::kAuto, const LaunchQuery& query = {},
                                 const Tuning* tuning = nullptr);

}  // namespace attnjit

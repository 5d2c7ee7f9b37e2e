// SPDX-License-Identifier: Apache-2.0
// The reference configurations as JSON objects, and which one a spec gets.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>

#include "attnjit/spec.h"
#include "plan/reference/depth512_config.h"
#include "plan/reference/fa4_config.h"
#include "plan/reference/mla_config.h"

namespace attnjit {

/// Which reference configuration is shown: `attnjit plan --config`.
enum class ConfigKind : std::uint8_t { kAuto, kFa4, kMla, kDepth512, kSm90 };

/// "auto", "fa4", "mla", "depth512", "sm90".
std::string_view to_string(ConfigKind kind);
std::optional<ConfigKind> config_kind_from_string(std::string_view name);

/// The kind that kAuto stands for, any other kind itself. On sm_10x: num_qo given: fa4; mla: mla;
/// qk_depth 256 or 512: depth512; else fa4. On sm_90a: sm90.
ConfigKind resolve_config_kind(ConfigKind kind, const AttentionSpec& spec,
                               const PlanOptions& options);

/// The launch that prefer_1q is asked for, with its defaults filled in.
struct ResolvedQuery {
  std::uint32_t max_prompt_len = 0;
  std::uint32_t batch_size = 1;
  std::uint32_t num_partitions = 1;
  std::int64_t sm_count = 148;
};

/// The configurations' inputs for a spec. NOTE: the spec as given, not resolved: the reference
/// knows no default for rope_dtype and counts no bytes for a rope part without one (mla excepted,
/// which cannot do without); what the kernel does about it is Sm100Plan's.
Fa4Config::Args fa4_args(const AttentionSpec& spec, const PlanOptions& options);
MlaConfig::Args mla_args(const AttentionSpec& spec, const PlanOptions& options);
Depth512Config::Args depth512_args(const AttentionSpec& spec, const PlanOptions& options);

/// Adds every field and method of the configuration under its name, and what its pipelines derive.
void add_fa4(nlohmann::ordered_json& json, const Fa4Config& config);

/// Every field and method of the configuration under its name, with `config`, `supported` and
/// `reason` first. `query` may be null. @pre kind is kFa4, kMla or kDepth512.
nlohmann::ordered_json reference_to_json(const AttentionSpec& spec, const PlanOptions& options,
                                         ConfigKind kind, const ResolvedQuery* query);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// ConfigKind: which reference configuration a plan is shown as, or takes its tiles from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "attnjit/spec.h"

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

}  // namespace attnjit

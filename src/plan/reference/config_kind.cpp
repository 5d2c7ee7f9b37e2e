// SPDX-License-Identifier: Apache-2.0
// Names and choice of the reference configurations.
#include "plan/reference/config_kind.h"

#include <algorithm>
#include <array>

namespace attnjit {
namespace {

constexpr std::array<std::string_view, 5> kNames{"auto", "fa4", "mla", "depth512", "sm90"};

}  // namespace

std::string_view to_string(ConfigKind kind) { return kNames.at(static_cast<std::size_t>(kind)); }

std::optional<ConfigKind> config_kind_from_string(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ConfigKind>(found - kNames.begin());
}

ConfigKind resolve_config_kind(ConfigKind kind, const AttentionSpec& spec,
                               const PlanOptions& options) {
  if (kind != ConfigKind::kAuto) return kind;
  if (spec.arch == Arch::kSm90a) return ConfigKind::kSm90;
  if (options.num_qo) return ConfigKind::kFa4;
  if (spec.mla != Mla::kNone) return ConfigKind::kMla;
  if (spec.qk_depth == 256 || spec.qk_depth == 512) return ConfigKind::kDepth512;
  return ConfigKind::kFa4;
}

}  // namespace attnjit

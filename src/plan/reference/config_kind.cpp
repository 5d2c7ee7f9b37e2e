// SPDX-License-Identifier: Apache-2.0
// Names and choice of the reference configurations.
#include "plan/reference/config_kind.h"

namespace attnjit {

std::string_view to_string(ConfigKind kind) {
  switch (kind) {
    case ConfigKind::kAuto:
      return "auto";
    case ConfigKind::kFa4:
      return "fa4";
    case ConfigKind::kMla:
      return "mla";
    case ConfigKind::kDepth512:
      return "depth512";
    case ConfigKind::kSm90:
      return "sm90";
  }
  return "auto";
}

std::optional<ConfigKind> config_kind_from_string(std::string_view name) {
  for (ConfigKind kind : {ConfigKind::kAuto, ConfigKind::kFa4, ConfigKind::kMla,
                          ConfigKind::kDepth512, ConfigKind::kSm90}) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
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

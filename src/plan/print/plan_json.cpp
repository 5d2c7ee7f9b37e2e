// SPDX-License-Identifier: Apache-2.0
// Joins a reference configuration and a kernel plan into one JSON object.
#include "plan/print/plan_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/architectures.h"
#include "plan/family.h"
#include "plan/print/kernel_json.h"
#include "plan/reference/reference_json.h"

namespace attnjit {

using Json = nlohmann::ordered_json;

namespace {

Result<std::uint32_t> in_range(std::int64_t value, std::int64_t least, std::int64_t most,
                               const char* name) {
  if (value < least || value > most) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; allowed: {} to {}", value, least, most), name);
  }
  return static_cast<std::uint32_t>(value);
}

Result<std::optional<ResolvedQuery>> resolve_query(const LaunchQuery& query,
                                                   const AttentionSpec& spec) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  ResolvedQuery resolved;
  const auto prompt = in_range(query.max_prompt_len.value_or(0), 0, kMost, "max_prompt_len");
  if (!prompt) return prompt.error();
  const auto batch = in_range(query.batch.value_or(1), 1, kMost, "batch");
  if (!batch) return batch.error();
  const auto sms =
      in_range(query.sm_count.value_or(traits_of(spec.arch).sm_count), 1, 1 << 20, "sm_count");
  if (!sms) return sms.error();
  if (!query.max_prompt_len) return std::optional<ResolvedQuery>();
  resolved.max_prompt_len = *prompt;
  resolved.batch_size = *batch;
  resolved.sm_count = *sms;
  // 0: chosen at launch; the question is then asked of the unsplit grid.
  resolved.num_partitions = static_cast<std::uint32_t>(std::max(spec.num_partitions, 1));
  return std::optional<ResolvedQuery>(resolved);
}

// sm_90a has no reference configuration: its own plan's fields are at top level.
Json sm90_to_json(const KernelPlan& plan) {
  Json json;
  json["config"] = std::string(to_string(ConfigKind::kSm90));
  json["supported"] = plan.supported;
  json["reason"] = plan.reason;
  if (plan.spec->arch != Arch::kSm90a) {
    json["supported"] = false;
    json["reason"] = fmt::format("config sm90 is the plan of sm_90a; the spec's arch is {}",
                                 to_string(plan.spec->arch));
    return json;
  }
  const Json kernel = kernel_to_json(plan);
  family_of(plan.spec).print(plan, json);
  for (const char* name : {"threads", "cluster", "smem_bytes", "num_mbarriers"}) {
    json[name] = kernel[name];
  }
  return json;
}

}  // namespace

Result<PlanDocument> plan_document(const ResolvedSpec& spec, ConfigKind kind,
                                   const LaunchQuery& query, const Tuning* tuning) {
  Result<KernelPlan> planned = plan(spec, tuning);
  if (!planned) return planned.error();
  // NOTE: a reference configuration is of the spec as it was written: what it leaves out counts.
  const AttentionSpec& given = spec.given();
  const Result<std::optional<ResolvedQuery>> asked = resolve_query(query, given);
  if (!asked) return asked.error();
  const ResolvedQuery* question = asked->has_value() ? &**asked : nullptr;
  const ConfigKind chosen = resolve_config_kind(kind, given, spec.options());
  Json json;
  if (given.merge) {
    json["config"] = "merge";
    json["supported"] = planned->supported;
    json["reason"] = planned->reason;
  } else if (chosen == ConfigKind::kSm90) {
    json = sm90_to_json(*planned);
  } else {
    json = reference_to_json(given, spec.options(), chosen, question);
  }
  json["arch"] = std::string(to_string(given.arch));
  json["kernel"] = kernel_to_json(*planned);
  return PlanDocument{*std::move(planned), std::move(json)};
}

std::string plan_to_json(const PlanDocument& document) {
  return document.json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// A plan as one JSON object: the reference configuration, and under `kernel` what every kernel has
// and what its family adds.
#include "plan/print/plan_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "attnjit/tuning.h"
#include "base/architectures.h"
#include "plan/family.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"
#include "plan/reference/reference_json.h"
#include "spec/text.h"

namespace attnjit {

using Json = nlohmann::ordered_json;

namespace {

#define KERNEL(name) ATTNJIT_MEMBER(PlannedKernel, name)
#define DEVIATION(name) ATTNJIT_MEMBER(Deviation, name)

void add_entry(const PlannedKernel& kernel, Json& json) {
  add_members(kernel, json, KERNEL(entry), KERNEL(kernel_header), KERNEL(threads), KERNEL(cluster),
              KERNEL(smem_bytes), KERNEL(launch_registers));
}

void add_constants(const PlannedKernel& kernel, Json& json) {
  Json constants = Json::object();
  for (const ConfigConstant& constant : kernel.constants) {
    // The literals of booleans and integers are JSON. Those of floats, hexadecimal as C has them,
    // and of arrays are not: they stand as text.
    Json value = Json::parse(constant.value, nullptr, false);
    if (value.is_discarded()) value = constant.value;
    constants[constant.name] = std::move(value);
  }
  json["constants"] = std::move(constants);
}

void add_parameters(const PlannedKernel& kernel, Json& json) {
  Json parameters = Json::array();
  for (const KernelParameter& parameter : kernel.parameters) {
    Json entry{{"name", parameter.name}, {"kind", std::string(to_string(parameter.kind))}};
    if (!parameter.cuda_type.empty()) entry["cuda_type"] = parameter.cuda_type;
    parameters.push_back(std::move(entry));
  }
  json["parameters"] = std::move(parameters);
}

// What a tuning row may choose, and what one chose.
void add_tuning(const KernelPlan& plan, Json& json) {
  Json& tuned = json["tuned_by"];
  if (plan.tuned_by != nullptr) {
    const TuningRow& row = *plan.tuned_by;
    tuned["match"] = Json::object();
    for (const auto& [name, text] : row.match) tuned["match"][name] = Json::parse(text);
    tuned["choose"] = row.choose;
    tuned["model_version"] = row.model_version != 0 ? Json(row.model_version) : Json();
  }
  Json knobs = Json::object();
  for (const TuningKnob& knob : tuning_knobs(plan)) {
    knobs[knob.name] = {{"chosen", knob.chosen}, {"values", knob.values}};
  }
  json["knobs"] = std::move(knobs);
}

// The kernels after the main one, and what the kernels hand to each other.
void add_sequence(const KernelPlan& plan, Json& json) {
  if (plan.kernels.size() == 1) return;
  Json kernels = Json::array();
  for (std::size_t i = 1; i < plan.kernels.size(); ++i) {
    Json kernel;
    add_entry(plan.kernels[i], kernel);
    add_constants(plan.kernels[i], kernel);
    add_parameters(plan.kernels[i], kernel);
    kernels.push_back(std::move(kernel));
  }
  json["then"] = std::move(kernels);
  Json workspaces = Json::array();
  for (const WorkspaceId workspace : plan.workspaces) {
    workspaces.push_back(
        {{"name", std::string(name_of(workspace))}, {"zeroed", is_zeroed(workspace)}});
  }
  json["workspaces"] = std::move(workspaces);
}

// What the kernel really uses.
Json kernel_to_json(const KernelPlan& plan) {
  Json json;
  json["arch"] = std::string(to_string(plan.spec->arch));
  json["supported"] = plan.supported;
  json["reason"] = plan.reason;
  add_entry(plan.main(), json);
  Json deviations = Json::array();
  for (const Deviation& deviation : plan.deviations) {
    add_members(deviation, deviations.emplace_back(), DEVIATION(name), DEVIATION(reference),
                DEVIATION(actual), DEVIATION(reason));
  }
  json["deviations"] = std::move(deviations);
  Json waivers = Json::array();
  for (const Waiver& waiver : plan.waivers) {
    waivers.push_back({{"name", waiver.name}, {"reason", waiver.reason}});
  }
  json["waivers"] = std::move(waivers);
  family_of(plan.spec).print(plan, json);
  add_tuning(plan, json);
  json["smem_map"] = ranges_json(plan.main().smem_map);
  json["tmem_map"] = ranges_json(plan.main().tmem_map);
  json["barriers"] = barriers_json(plan.main().barriers);
  json["num_mbarriers"] = plan.main().barriers.size();
  add_constants(plan.main(), json);
  add_parameters(plan.main(), json);
  add_sequence(plan, json);
  return json;
}

Result<std::uint32_t> in_range(std::int64_t value, std::int64_t least, std::int64_t most,
                               const char* name) {
  if (value < least || value > most) {
    return spec::invalid(name, "is {}; allowed: {} to {}", value, least, most);
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

#undef DEVIATION
#undef KERNEL

}  // namespace attnjit

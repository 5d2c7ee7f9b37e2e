// SPDX-License-Identifier: Apache-2.0
// Prints a KernelPlan as JSON: what every kernel has; the family adds its own fields.
#include "plan/print/kernel_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/family.h"
#include "plan/kernel/json_fields.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

void add_entry(const PlannedKernel& kernel, Json& json) {
  json["entry"] = kernel.entry;
  json["kernel_header"] = kernel.kernel_header;
  json["threads"] = kernel.threads;
  json["cluster"] = kernel.cluster;
  json["smem_bytes"] = kernel.smem_bytes;
  json["launch_registers"] = kernel.launch_registers;
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

Json ranges_json(const std::vector<MemoryRange>& ranges) {
  Json json = Json::array();
  for (const MemoryRange& range : ranges) {
    json.push_back(range_json(range.name, range.begin, range.size));
  }
  return json;
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

}  // namespace

Json kernel_to_json(const KernelPlan& plan) {
  Json json;
  json["arch"] = std::string(to_string(plan.spec->arch));
  json["supported"] = plan.supported;
  json["reason"] = plan.reason;
  add_entry(plan.main(), json);
  Json deviations = Json::array();
  for (const Deviation& deviation : plan.deviations) {
    deviations.push_back({{"name", deviation.name},
                          {"reference", deviation.reference},
                          {"actual", deviation.actual},
                          {"reason", deviation.reason}});
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

}  // namespace attnjit

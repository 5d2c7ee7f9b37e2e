// SPDX-License-Identifier: Apache-2.0
// Prints a KernelPlan as JSON, with the fields of its architecture.
#include "plan/print/kernel_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "plan/family.h"
#include "plan/signature.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_name(KernelParameter::Kind kind) {
  switch (kind) {
    case KernelParameter::Kind::kTensorMap:
      return "tensor_map";
    case KernelParameter::Kind::kPointer:
      return "pointer";
    case KernelParameter::Kind::kI32:
      return "i32";
    case KernelParameter::Kind::kI64:
      return "i64";
    case KernelParameter::Kind::kF32:
      return "f32";
  }
  return "i32";
}

Json range_json(std::string_view name, std::int64_t begin, std::int64_t size) {
  return {{"name", std::string(name)}, {"begin", begin}, {"size", size}};
}

Json ranges_json(const std::vector<MemoryRange>& ranges) {
  Json json = Json::array();
  for (const MemoryRange& range : ranges) {
    json.push_back(range_json(range.name, range.begin, range.size));
  }
  return json;
}

Json ranges_json(const std::vector<Sm100TmemRange>& ranges) {
  Json json = Json::array();
  for (const Sm100TmemRange& range : ranges) {
    json.push_back(range_json(to_string(range.region), range.begin, range.size));
  }
  return json;
}

Json regions_json(const std::vector<Sm100SmemRegion>& regions) {
  Json json = Json::array();
  for (const Sm100SmemRegion& region : regions) {
    Json range = range_json(to_string(region.region), region.begin, region.size);
    range["alignment"] = region.alignment;
    json.push_back(std::move(range));
  }
  return json;
}

Json overlays_json(const std::vector<Sm100Overlay>& overlays) {
  Json json = Json::array();
  for (const Sm100Overlay& overlay : overlays) {
    json.push_back({{"name", overlay.name},
                    {"begin", overlay.begin},
                    {"size", overlay.size},
                    {"when", overlay.when}});
  }
  return json;
}

template <class Barrier>
Json barriers_json(const std::vector<Barrier>& barriers) {
  Json json = Json::array();
  for (const Barrier& barrier : barriers) {
    json.push_back({{"name", barrier.name}, {"arrivals", barrier.arrivals}});
  }
  return json;
}

/// A field of a plan, by its name in JSON.
template <class Plan>
struct Field {
  const char* name;
  std::variant<int Plan::*, std::int64_t Plan::*, bool Plan::*, double Plan::*,
               std::vector<std::int64_t> Plan::*>
      member;
};

template <class Plan, std::size_t kSize>
void add_fields(const Field<Plan> (&fields)[kSize], const Plan& plan, Json& json) {
  for (const Field<Plan>& field : fields) {
    std::visit([&](auto member) { json[field.name] = plan.*member; }, field.member);
  }
}

const Field<Sm100Variant> kVariantFields[] = {
    {"num_qo", &Sm100Variant::num_qo},
    {"MMA_M", &Sm100Variant::MMA_M},
    {"MMA_K", &Sm100Variant::MMA_K},
    {"BM", &Sm100Variant::BM},
    {"BN", &Sm100Variant::BN},
    {"BK0", &Sm100Variant::BK0},
    {"BK1", &Sm100Variant::BK1},
    {"BM_eff", &Sm100Variant::BM_eff},
    {"q_tile_rows", &Sm100Variant::q_tile_rows},
    {"fuse_gqa", &Sm100Variant::fuse_gqa},
    {"qk_depth", &Sm100Variant::qk_depth},
    {"ov_depth", &Sm100Variant::ov_depth},
    {"padded_qk_depth", &Sm100Variant::padded_qk_depth},
    {"padded_ov_depth", &Sm100Variant::padded_ov_depth},
    {"rope_depth", &Sm100Variant::rope_depth},
    {"qk_mma_depth", &Sm100Variant::qk_mma_depth},
    {"k_rows_per_cta", &Sm100Variant::k_rows_per_cta},
    {"v_cols_per_cta", &Sm100Variant::v_cols_per_cta},
    {"use_fused_kv", &Sm100Variant::use_fused_kv},
    {"num_kv_stages", &Sm100Variant::num_kv_stages},
    {"num_qk_stages", &Sm100Variant::num_qk_stages},
    {"num_pv_stages", &Sm100Variant::num_pv_stages},
    {"num_rope_buffers", &Sm100Variant::num_rope_buffers},
    {"num_k_scale_bufs", &Sm100Variant::num_k_scale_bufs},
    {"pv_keys", &Sm100Variant::pv_keys},
    {"k_stage_bytes", &Sm100Variant::k_stage_bytes},
    {"v_stage_bytes", &Sm100Variant::v_stage_bytes},
    {"tmem_used", &Sm100Variant::tmem_used},
    {"tmem_allocated", &Sm100Variant::tmem_allocated},
    {"smem_bytes", &Sm100Variant::smem_bytes},
};
const Field<Sm100Variant> kBodyFields[] = {
    {"BM", &Sm100Variant::BM},
    {"BN", &Sm100Variant::BN},
    {"num_kv_stages", &Sm100Variant::num_kv_stages},
    {"num_qk_stages", &Sm100Variant::num_qk_stages},
    {"use_fused_kv", &Sm100Variant::use_fused_kv},
};
const Field<Sm100Plan> kSm100Fields[] = {
    {"can_switch_to_1q", &Sm100Plan::can_switch_to_1q},
    {"exp2_pairs", &Sm100Plan::exp2_pairs},
    {"exp2_fma_pairs", &Sm100Plan::exp2_fma_pairs},
    {"rescale_threshold", &Sm100Plan::rescale_threshold},
    {"p_bias", &Sm100Plan::p_bias},
};
const Field<Sm90Plan> kSm90Fields[] = {
    {"BM", &Sm90Plan::BM},
    {"BN", &Sm90Plan::BN},
    {"box_keys", &Sm90Plan::box_keys},
    {"num_consumers", &Sm90Plan::num_consumers},
    {"num_stages", &Sm90Plan::num_stages},
    {"num_q_stages", &Sm90Plan::num_q_stages},
    {"o_blocks", &Sm90Plan::o_blocks},
    {"ping_pong", &Sm90Plan::ping_pong},
    {"pair_tiles", &Sm90Plan::pair_tiles},
    {"kv_lens", &Sm90Plan::kv_lens},
    {"pack_gqa", &Sm90Plan::pack_gqa},
    {"producer_registers", &Sm90Plan::producer_registers},
    {"consumer_registers", &Sm90Plan::consumer_registers},
    {"padded_qk_depth", &Sm90Plan::padded_qk_depth},
    {"padded_ov_depth", &Sm90Plan::padded_ov_depth},
    {"q_bytes", &Sm90Plan::q_bytes},
    {"k_bytes", &Sm90Plan::k_bytes},
    {"v_bytes", &Sm90Plan::v_bytes},
};

Json variant_json(const Sm100Variant& variant) {
  Json json;
  add_fields(kVariantFields, variant, json);
  json["num_mbarriers"] = variant.barriers.size();
  json["smem_map"] = regions_json(variant.smem);
  json["smem_overlays"] = overlays_json(variant.smem_overlays);
  json["tmem_map"] = ranges_json(variant.tmem);
  json["tmem_overlays"] = overlays_json(variant.tmem_overlays);
  json["barriers"] = barriers_json(variant.barriers);
  return json;
}

}  // namespace

void add_sm100(const Sm100Plan& plan, Json& json) {
  json["reference"] = std::string(to_string(plan.reference));
  add_fields(kBodyFields, plan.variants.front(), json);
  add_fields(kSm100Fields, plan, json);
  Json roles = Json::array();
  for (const Sm100Role& role : plan.roles) {
    roles.push_back({{"name", std::string(to_string(role.id))},
                     {"first_warp", role.first_warp},
                     {"num_warps", role.num_warps},
                     {"registers", role.registers}});
  }
  json["roles"] = std::move(roles);
  Json maps = Json::array();
  for (const Sm100TensorMap& map : plan.tensor_maps) {
    Json axes = Json::array();
    for (const MapAxis axis : map.axes) axes.push_back(std::string(to_string(axis)));
    maps.push_back({{"name", std::string(name_of(map.id))},
                    {"buffer", std::string(tensor_name(map.id))},
                    {"dtype", std::string(to_string(map.dtype))},
                    {"axes", std::move(axes)},
                    {"box", map.box},
                    {"swizzle", map.swizzle},
                    {"copies", map.copies}});
  }
  json["tensor_maps"] = std::move(maps);
  Json variants = Json::array();
  for (const Sm100Variant& variant : plan.variants) variants.push_back(variant_json(variant));
  json["variants"] = std::move(variants);
}

void add_sm90(const Sm90Plan& plan, Json& json) { add_fields(kSm90Fields, plan, json); }

namespace {

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
    // The literals of booleans and integers are JSON; floats are C's hexadecimal.
    Json value = constant.type == "float" ? Json() : Json::parse(constant.value, nullptr, false);
    if (value.is_null() || value.is_discarded()) value = constant.value;
    constants[constant.name] = std::move(value);
  }
  json["constants"] = std::move(constants);
}

void add_parameters(const PlannedKernel& kernel, Json& json) {
  Json parameters = Json::array();
  for (const KernelParameter& parameter : kernel.parameters) {
    Json entry{{"name", parameter.name}, {"kind", std::string(kind_name(parameter.kind))}};
    if (!parameter.cuda_type.empty()) entry["cuda_type"] = parameter.cuda_type;
    parameters.push_back(std::move(entry));
  }
  json["parameters"] = std::move(parameters);
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
  for (const PlannedWorkspace& workspace : plan.workspaces) {
    workspaces.push_back({{"name", workspace.name}, {"zeroed", workspace.zeroed}});
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
  family_of(plan.spec->arch).print(plan, json);
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

// SPDX-License-Identifier: Apache-2.0
// Prints a KernelPlan as JSON, with the fields of its architecture.
#include "plan/print/kernel_json.h"

#include <nlohmann/json.hpp>
#include <string>

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

Json ranges_json(const std::vector<MemoryRange>& ranges) {
  Json json = Json::array();
  for (const MemoryRange& range : ranges) {
    json.push_back({{"name", range.name}, {"begin", range.begin}, {"size", range.size}});
  }
  return json;
}

Json regions_json(const std::vector<Sm100SmemRegion>& regions) {
  Json json = Json::array();
  for (const Sm100SmemRegion& region : regions) {
    json.push_back({{"name", region.name},
                    {"begin", region.begin},
                    {"size", region.size},
                    {"alignment", region.alignment}});
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

Json barriers_json(const std::vector<BarrierPlan>& barriers) {
  Json json = Json::array();
  for (const BarrierPlan& barrier : barriers) {
    json.push_back({{"name", barrier.name}, {"arrivals", barrier.arrivals}});
  }
  return json;
}

Json variant_json(const Sm100Variant& variant) {
  Json json;
  json["num_qo"] = variant.num_qo;
  json["MMA_M"] = variant.MMA_M;
  json["MMA_K"] = variant.MMA_K;
  json["BM"] = variant.BM;
  json["BN"] = variant.BN;
  json["BK0"] = variant.BK0;
  json["BK1"] = variant.BK1;
  json["BM_eff"] = variant.BM_eff;
  json["q_tile_rows"] = variant.q_tile_rows;
  json["fuse_gqa"] = variant.fuse_gqa;
  json["qk_depth"] = variant.qk_depth;
  json["ov_depth"] = variant.ov_depth;
  json["padded_qk_depth"] = variant.padded_qk_depth;
  json["padded_ov_depth"] = variant.padded_ov_depth;
  json["rope_depth"] = variant.rope_depth;
  json["qk_mma_depth"] = variant.qk_mma_depth;
  json["k_rows_per_cta"] = variant.k_rows_per_cta;
  json["v_cols_per_cta"] = variant.v_cols_per_cta;
  json["use_fused_kv"] = variant.use_fused_kv;
  json["num_kv_stages"] = variant.num_kv_stages;
  json["num_qk_stages"] = variant.num_qk_stages;
  json["num_pv_stages"] = variant.num_pv_stages;
  json["num_rope_buffers"] = variant.num_rope_buffers;
  json["num_k_scale_bufs"] = variant.num_k_scale_bufs;
  json["pv_keys"] = variant.pv_keys;
  json["k_stage_bytes"] = variant.k_stage_bytes;
  json["v_stage_bytes"] = variant.v_stage_bytes;
  json["tmem_used"] = variant.tmem_used;
  json["tmem_allocated"] = variant.tmem_allocated;
  json["smem_bytes"] = variant.smem_bytes;
  json["num_mbarriers"] = variant.barriers.size();
  json["smem_map"] = regions_json(variant.smem);
  json["smem_overlays"] = overlays_json(variant.smem_overlays);
  json["tmem_map"] = ranges_json(variant.tmem);
  json["tmem_overlays"] = overlays_json(variant.tmem_overlays);
  json["barriers"] = barriers_json(variant.barriers);
  return json;
}

void add_sm100(const Sm100Plan& plan, Json& json) {
  json["reference"] = plan.reference;
  json["BM"] = plan.variants.front().BM;
  json["BN"] = plan.variants.front().BN;
  json["num_kv_stages"] = plan.variants.front().num_kv_stages;
  json["num_qk_stages"] = plan.variants.front().num_qk_stages;
  json["use_fused_kv"] = plan.variants.front().use_fused_kv;
  json["can_switch_to_1q"] = plan.can_switch_to_1q;
  json["exp2_pairs"] = plan.exp2_pairs;
  json["exp2_fma_pairs"] = plan.exp2_fma_pairs;
  json["rescale_threshold"] = plan.rescale_threshold;
  json["p_bias"] = plan.p_bias;
  Json roles = Json::array();
  for (const Sm100Role& role : plan.roles) {
    roles.push_back({{"name", role.name},
                     {"first_warp", role.first_warp},
                     {"num_warps", role.num_warps},
                     {"registers", role.registers}});
  }
  json["roles"] = std::move(roles);
  Json maps = Json::array();
  for (const Sm100TensorMap& map : plan.tensor_maps) {
    maps.push_back({{"name", map.name},
                    {"buffer", map.buffer},
                    {"dtype", map.dtype},
                    {"axes", map.axes},
                    {"box", map.box},
                    {"swizzle", map.swizzle},
                    {"copies", map.copies}});
  }
  json["tensor_maps"] = std::move(maps);
  Json variants = Json::array();
  for (const Sm100Variant& variant : plan.variants) variants.push_back(variant_json(variant));
  json["variants"] = std::move(variants);
}

}  // namespace

void add_sm90(const Sm90Plan& plan, Json& json) {
  json["BM"] = plan.BM;
  json["BN"] = plan.BN;
  json["num_consumers"] = plan.num_consumers;
  json["num_stages"] = plan.num_stages;
  json["num_q_stages"] = plan.num_q_stages;
  json["o_blocks"] = plan.o_blocks;
  json["ping_pong"] = plan.ping_pong;
  json["pair_tiles"] = plan.pair_tiles;
  json["pack_gqa"] = plan.pack_gqa;
  json["producer_registers"] = plan.producer_registers;
  json["consumer_registers"] = plan.consumer_registers;
  json["padded_qk_depth"] = plan.padded_qk_depth;
  json["padded_ov_depth"] = plan.padded_ov_depth;
  json["q_bytes"] = plan.q_bytes;
  json["k_bytes"] = plan.k_bytes;
  json["v_bytes"] = plan.v_bytes;
}

Json kernel_to_json(const KernelPlan& plan) {
  Json json;
  json["arch"] = std::string(to_string(plan.spec->arch));
  json["supported"] = plan.supported;
  json["reason"] = plan.reason;
  json["entry"] = plan.entry;
  json["kernel_header"] = plan.kernel_header;
  json["threads"] = plan.threads;
  json["cluster"] = plan.cluster;
  json["smem_bytes"] = plan.smem_bytes;
  json["launch_registers"] = plan.min_registers;
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
  if (plan.sm100) add_sm100(*plan.sm100, json);
  if (plan.sm90) add_sm90(*plan.sm90, json);
  json["smem_map"] = ranges_json(plan.smem_map);
  json["tmem_map"] = ranges_json(plan.tmem_map);
  json["barriers"] = barriers_json(plan.barriers);
  json["num_mbarriers"] = plan.barriers.size();
  Json constants = Json::object();
  for (const ConfigConstant& constant : plan.constants) {
    // The literals of booleans and integers are JSON; floats are C's hexadecimal.
    Json value = constant.type == "float" ? Json() : Json::parse(constant.value, nullptr, false);
    if (value.is_null() || value.is_discarded()) value = constant.value;
    constants[constant.name] = std::move(value);
  }
  json["constants"] = std::move(constants);
  Json parameters = Json::array();
  for (const KernelParameter& parameter : plan.parameters) {
    Json entry{{"name", parameter.name}, {"kind", std::string(kind_name(parameter.kind))}};
    if (!parameter.cuda_type.empty()) entry["cuda_type"] = parameter.cuda_type;
    parameters.push_back(std::move(entry));
  }
  json["parameters"] = std::move(parameters);
  return json;
}

}  // namespace attnjit

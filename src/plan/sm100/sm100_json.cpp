// SPDX-License-Identifier: Apache-2.0
// Prints an Sm100Plan as JSON.
#include "plan/sm100/sm100_plan.h"

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "plan/kernel/json_fields.h"
#include "plan/kernel/signature.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

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
    {"num_o_buffers", &Sm100Variant::num_o_buffers},
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
    {"persistent", &Sm100Plan::persistent},
    {"exp2_pairs", &Sm100Plan::exp2_pairs},
    {"exp2_fma_pairs", &Sm100Plan::exp2_fma_pairs},
    {"rescale_threshold", &Sm100Plan::rescale_threshold},
    {"p_bias", &Sm100Plan::p_bias},
    {"row_copies", &Sm100Plan::row_copies},
    {"upcasts_kv", &Sm100Plan::upcasts_kv},
    {"published", &Sm100Plan::published},
    {"skips_tiles", &Sm100Plan::skips_tiles},
    {"many_gaps", &Sm100Plan::many_gaps},
    {"mapped", &Sm100Plan::mapped},
    {"split", &Sm100Plan::split},
    {"cuts", &Sm100Plan::cuts},
    {"partition_tiles", &Sm100Plan::partition_tiles},
};

template <class Region>
Json ranges_json(const MemoryLayout<Region>& ranges, bool aligned) {
  Json json = Json::array();
  for (const PlacedRegion<Region>& range : ranges) {
    json.push_back(range_json(to_string(range.region), range.begin, range.size));
    if (aligned) json.back()["alignment"] = range.alignment;
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

Json variant_json(const Sm100Variant& variant) {
  Json json;
  add_fields(kVariantFields, variant, json);
  json["num_mbarriers"] = variant.barriers.size();
  json["smem_map"] = ranges_json(variant.smem, true);
  json["smem_overlays"] = overlays_json(variant.smem_overlays);
  json["tmem_map"] = ranges_json(variant.tmem, false);
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

}  // namespace attnjit

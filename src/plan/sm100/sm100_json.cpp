// SPDX-License-Identifier: Apache-2.0
// Prints an Sm100Plan as JSON, and names its parts.
#include "plan/sm100/sm100_plan.h"

#include <nlohmann/json.hpp>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "plan/kernel/fields.h"
#include "plan/kernel/signature.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

#define OVERLAY(name) ATTNJIT_MEMBER(Sm100Overlay, name)
#define VARIANT(name) ATTNJIT_MEMBER(Sm100Variant, name)

Json overlays_json(const std::vector<Sm100Overlay>& overlays) {
  Json json = Json::array();
  for (const Sm100Overlay& overlay : overlays) {
    add_members(overlay, json.emplace_back(), OVERLAY(name), OVERLAY(begin), OVERLAY(size),
                OVERLAY(when));
  }
  return json;
}

Json variant_json(const Sm100Variant& variant) {
  Json json;
  add_fields(kSm100BodyFields, variant, json);
  json["num_mbarriers"] = variant.barriers.size();
  json["smem_map"] = ranges_json(variant.smem.map());
  for (std::size_t i = 0; i < variant.smem.size(); ++i) {
    json["smem_map"][i]["alignment"] = variant.smem[i].alignment;
  }
  json["smem_overlays"] = overlays_json(variant.smem_overlays);
  json["tmem_map"] = ranges_json(variant.tmem.map());
  json["tmem_overlays"] = overlays_json(variant.tmem_overlays);
  json["barriers"] = barriers_json(variant.barriers.all());
  return json;
}

}  // namespace

std::string_view to_string(Sm100Role::Id id) {
  static constexpr std::array<std::string_view, 9> kNames{"softmax",    "softmax 0", "softmax 1",
                                                          "correction", "mma",       "load",
                                                          "store",      "scheduler", "upcast"};
  return kNames.at(static_cast<std::size_t>(id));
}

std::string_view to_string(MapAxis axis) {
  static constexpr std::array<std::string_view, 8> kNames{"depth", "group",    "head", "kv_head",
                                                          "row",   "page_row", "page", "batch"};
  return kNames.at(static_cast<std::size_t>(axis));
}

void add_sm100(const SpecFacts& /*spec*/, const Sm100Plan& plan, Json& json) {
  json["reference"] = std::string(to_string(plan.reference));
  add_members(plan.variants.front(), json, VARIANT(BM), VARIANT(BN), VARIANT(num_kv_stages),
              VARIANT(num_qk_stages), VARIANT(use_fused_kv));
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

#undef VARIANT
#undef OVERLAY

}  // namespace attnjit

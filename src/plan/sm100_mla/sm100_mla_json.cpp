// SPDX-License-Identifier: Apache-2.0
// Prints an Sm100MlaPlan as JSON.
#include "plan/sm100_mla/sm100_mla_plan.h"

#include <nlohmann/json.hpp>

#include "plan/kernel/json_fields.h"

namespace attnjit {
namespace {

const Field<MlaTiles> kTileFields[] = {
    {"box_keys", &MlaTiles::box_keys},
    {"row_copies", &MlaTiles::row_copies},
    {"kv_lens", &MlaTiles::kv_lens},
    {"split", &MlaTiles::split},
    {"stream_k", &MlaTiles::stream_k},
    {"pair_tiles", &MlaTiles::pair_tiles},
    {"partition_tiles", &MlaTiles::partition_tiles},
    {"l2_bytes", &MlaTiles::l2_bytes},
    {"num_stages", &MlaTiles::num_stages},
};
const Field<Sm100MlaPlan> kFields[] = {
    {"q_bytes", &Sm100MlaPlan::q_bytes},
    {"v_bytes", &Sm100MlaPlan::v_bytes},
    {"tmem_used", &Sm100MlaPlan::tmem_used},
    {"tmem_allocated", &Sm100MlaPlan::tmem_columns},
    {"rescale_threshold", &Sm100MlaPlan::rescale_threshold},
};

}  // namespace

void add_sm100_mla(const Sm100MlaPlan& plan, nlohmann::ordered_json& json) {
  json["BM"] = plan.tiles.rows();
  json["BN"] = MlaTiles::kKeys;
  add_fields(kTileFields, plan.tiles, json);
  add_fields(kFields, plan, json);
  nlohmann::ordered_json roles = nlohmann::ordered_json::array();
  for (const Sm100MlaRole& role : plan.roles) {
    roles.push_back({{"name", role.name},
                     {"first_warp", role.first_warp},
                     {"num_warps", role.num_warps},
                     {"registers", role.registers}});
  }
  json["roles"] = std::move(roles);
}

}  // namespace attnjit

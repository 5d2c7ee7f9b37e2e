// SPDX-License-Identifier: Apache-2.0
// Prints an Sm90MlaPlan as JSON.
#include "plan/sm90_mla/sm90_mla_plan.h"

#include <nlohmann/json.hpp>

namespace attnjit {

void add_sm90_mla(const Sm90MlaPlan& plan, nlohmann::ordered_json& json) {
  const MlaTiles& tiles = plan.tiles;
  const nlohmann::ordered_json fields{
      {"BM", MlaTiles::kRows},
      {"BN", MlaTiles::kKeys},
      {"box_keys", tiles.box_keys},
      {"num_consumers", Sm90MlaPlan::kConsumers},
      {"ctas_per_sm", 1},
      {"num_stages", tiles.num_stages},
      {"num_v_stages", tiles.own_v ? tiles.num_stages : 0},
      {"num_q_stages", 1},
      {"num_raw_stages", 0},
      {"o_blocks", 0},
      {"ping_pong", false},
      {"pair_tiles", tiles.pair_tiles},
      {"kv_lens", tiles.kv_lens},
      {"dynamic_schedule", false},
      {"row_copies", tiles.row_copies},
      {"overlaps", true},
      {"listed", tiles.skips_tiles},
      {"mapped", false},
      {"map_bits", false},
      {"split", tiles.split},
      {"stream_k", tiles.stream_k},
      {"partition_tiles", tiles.partition_tiles},
      {"rescale_by_row", plan.rescale_by_row},
      {"pack_gqa", plan.pack_gqa},
      {"l2_bytes", tiles.l2_bytes},
      {"producer_registers", plan.producer_registers},
      {"consumer_registers", plan.consumer_registers},
      {"padded_qk_depth", plan.qk_depth},
      {"padded_ov_depth", plan.ov_depth},
      {"q_bytes", plan.tile_bytes},
      {"k_bytes", plan.tile_bytes},
      {"v_bytes", plan.v_bytes},
      {"v_raw_stage_bytes", 0},
      {"k_raw_stage_bytes", 0},
      {"upcasts_kv", false},
      {"kv_row_bytes", 128},
      {"exp2_fma_pairs", 0},
      {"sums_by_product", false},
      {"held_q_steps", 0},
      {"p_bias", 0.0},
      {"rescale_threshold", Sm90MlaPlan::kRescaleThreshold},
  };
  for (const auto& [name, value] : fields.items()) json[name] = value;
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Prints an Sm90Plan as JSON.
#include "plan/sm90/sm90_json.h"

#include "plan/kernel/json_fields.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {
namespace {

const Field<Sm90Plan> kSm90Fields[] = {
    {"BM", &Sm90Plan::BM},
    {"BN", &Sm90Plan::BN},
    {"box_keys", &Sm90Plan::box_keys},
    {"num_consumers", &Sm90Plan::num_consumers},
    {"ctas_per_sm", &Sm90Plan::ctas_per_sm},
    {"num_stages", &Sm90Plan::num_stages},
    {"num_v_stages", &Sm90Plan::num_v_stages},
    {"num_q_stages", &Sm90Plan::num_q_stages},
    {"num_row_stages", &Sm90Plan::num_row_stages},
    {"o_blocks", &Sm90Plan::o_blocks},
    {"ping_pong", &Sm90Plan::ping_pong},
    {"pair_tiles", &Sm90Plan::pair_tiles},
    {"kv_lens", &Sm90Plan::kv_lens},
    {"claims_work", &Sm90Plan::claims_work},
    {"row_copies", &Sm90Plan::row_copies},
    {"overlaps", &Sm90Plan::overlaps},
    {"listed", &Sm90Plan::listed},
    {"mapped", &Sm90Plan::mapped},
    {"map_bits", &Sm90Plan::map_bits},
    {"split", &Sm90Plan::split},
    {"runs", &Sm90Plan::runs},
    {"partition_tiles", &Sm90Plan::partition_tiles},
    {"rescale_by_row", &Sm90Plan::rescale_by_row},
    {"pack_gqa", &Sm90Plan::pack_gqa},
    {"l2_bytes", &Sm90Plan::l2_bytes},
    {"producer_registers", &Sm90Plan::producer_registers},
    {"consumer_registers", &Sm90Plan::consumer_registers},
    {"padded_qk_depth", &Sm90Plan::padded_qk_depth},
    {"padded_ov_depth", &Sm90Plan::padded_ov_depth},
    {"q_bytes", &Sm90Plan::q_bytes},
    {"k_bytes", &Sm90Plan::k_bytes},
    {"v_bytes", &Sm90Plan::v_bytes},
    {"v_row_stage_bytes", &Sm90Plan::v_row_stage_bytes},
    {"k_row_stage_bytes", &Sm90Plan::k_row_stage_bytes},
    {"widens_kv", &Sm90Plan::widens_kv},
    {"kv_row_bytes", &Sm90Plan::kv_row_bytes},
    {"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs},
    {"sums_by_product", &Sm90Plan::sums_by_product},
    {"held_q_steps", &Sm90Plan::held_q_steps},
    {"p_bias", &Sm90Plan::p_bias},
    {"rescale_threshold", &Sm90Plan::rescale_threshold},
};

}  // namespace

void add_sm90(const Sm90Plan& plan, nlohmann::ordered_json& json) {
  add_fields(kSm90Fields, plan, json);
  if (plan.low != nullptr) {
    nlohmann::ordered_json low = nlohmann::ordered_json::object();
    add_fields(kSm90Fields, *plan.low, low);
    json["low_body"] = std::move(low);
  }
}

}  // namespace attnjit

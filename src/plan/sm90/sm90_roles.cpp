// SPDX-License-Identifier: Apache-2.0
// Says what the warps of the sm_90a forward kernel do, and shares out the registers.
#include "plan/sm90/sm90_roles.h"

#include <fmt/format.h>

#include "plan/forward_support.h"

namespace attnjit {

bool sm90_rewrites_kv(const AttentionSpec& spec) { return is_e4m3(spec) || widens_kv(spec); }

int sm90_copy_warps(const Sm90Plan& plan) { return plan.num_row_stages > 0 ? 1 : 4; }

std::vector<PlannedKernel::Role> sm90_roles(const Sm90Plan& plan) {
  std::vector<PlannedKernel::Role> roles{{"load", 0, plan.row_copies ? sm90_copy_warps(plan) : 1}};
  if (plan.num_row_stages > 0) {
    roles.push_back(
        {plan.widens_kv ? "widen V" : "transpose", kSm90FirstVRewriter, kSm90VRewriters});
  }
  if (plan.widens_kv) roles.push_back({"widen K", 4, kSm90KRewriters});
  for (int i = 0; i < plan.num_consumers; ++i) {
    roles.push_back({fmt::format("consumer {}", i), 4 * (plan.producer_warpgroups() + i), 4});
  }
  return roles;
}

int sm90_launch_registers(const Sm90Plan& plan) {
  constexpr int kRegisterFile = 65536;  // of an SM
  return kRegisterFile / (plan.threads() * plan.ctas_per_sm) / 8 * 8;
}

void sm90_share_registers(const AttentionSpec& spec, Sm90Plan& plan) {
  // In all no more than the CTA is launched with: 3 x 168, or 4 x 128.
  // A producer that loads a tile in several boxes or row by row, or asks a mask about tiles, has
  // more of its own; and still more where it walks a map, too.
  const bool many =
      plan.mapped && (plan.kv_lens || plan.split || (plan.map_bits && spec.qk_depth > 128));
  const int spare = many ? 32 : plan.box_keys < plan.BN || plan.listed ? 16 : 0;
  plan.producer_registers = plan.num_consumers == 2 ? 24 + spare : 32;
  plan.consumer_registers = plan.num_consumers == 2 ? 240 - spare / 2 : 160;
  if (plan.num_consumers == 1) {
    plan.producer_registers = 24 + spare;
    plan.consumer_registers = 232 - spare;
  }
  if (plan.widens_kv) {
    // Consumers have what the two warpgroups before them leave of what the CTA is launched with.
    plan.producer_registers = 40;
    const int left = plan.threads() / 128 * sm90_launch_registers(plan) -
                     plan.producer_warpgroups() * plan.producer_registers;
    plan.consumer_registers = left / plan.num_consumers / 8 * 8;
  }
  if (is_e4m3(spec)) {
    // Of e4m3 its warpgroup transposes V, and P of the others has half of the registers. NOTE:
    // beside O of more columns the sums by product need what three consumers have of 16 bits.
    const bool most =
        plan.num_consumers == 3 && spec.qk_depth > 96 && plan.sums_by_product && !plan.row_copies;
    const bool holds = plan.held_q_steps > 0;
    plan.producer_registers = most ? 32 : holds ? 40 : 56;
    plan.consumer_registers = most                      ? 160
                              : plan.num_consumers == 3 ? 152
                              : holds                   ? 232
                              : plan.num_consumers == 2 ? 224
                                                        : 200;
  }
  // NOTE: of other types one thread or warp of it has work, for which as few are enough.
  plan.few_registers = plan.widens_kv || (is_e4m3(spec) && plan.producer_registers < 40);
  plan.parks_list = plan.few_registers && !plan.kv_lens && !plan.claims_work;
  // Four warpgroups were launched with 128 each: the idle one has what a producer has.
  if (plan.idle_warpgroups > 0) plan.consumer_registers = 256 - plan.producer_registers;
}

}  // namespace attnjit

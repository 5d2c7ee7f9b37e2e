// SPDX-License-Identifier: Apache-2.0
// Says what the warps of the sm_100 kernels do, and shares out the registers.
#include "plan/sm100/sm100_roles.h"

#include <utility>
#include <vector>

#include "plan/kernel/forward_support.h"

namespace attnjit {
namespace {

Status take_budgets(const Sm100Tuning& tuned, int softmax_warpgroups, Sm100Budgets& budgets) {
  for (const auto& [choice, target] :
       {std::pair{&Sm100Tuning::softmax_registers, &budgets.softmax},
        std::pair{&Sm100Tuning::correction_registers, &budgets.correction},
        std::pair{&Sm100Tuning::other_registers, &budgets.other}}) {
    if (Status status = tuned.take(choice, 24, 256, 8, *target); !status) return status;
  }
  const std::int64_t total = 128 * (softmax_warpgroups * budgets.softmax + budgets.correction +
                                    budgets.other + budgets.upcasting);
  const int threads = 128 * (softmax_warpgroups + 2 + (budgets.upcasting > 0 ? 1 : 0));
  const std::int64_t launched = threads * launch_registers(threads);
  if (total > launched) {
    // One that the row has.
    const auto named = tuned.softmax_registers      ? &Sm100Tuning::softmax_registers
                       : tuned.correction_registers ? &Sm100Tuning::correction_registers
                                                    : &Sm100Tuning::other_registers;
    return bad_choice(named,
                      "takes {} registers with the others: softmax_registers {}, "
                      "correction_registers {}, other_registers {}; allowed: {}",
                      total, budgets.softmax, budgets.correction, budgets.other, launched);
  }
  return {};
}

/// The warps of one softmax warpgroup or of two, of correction, of a thread each that multiplies,
/// loads and stores, and those that upcast.
std::vector<Sm100Role> roles_of(int softmax_warpgroups, const Sm100Budgets& budgets) {
  using Id = Sm100Role::Id;
  std::vector<Sm100Role> roles;
  const auto add = [&](Id id, int warps, std::int64_t registers) {
    const int first = roles.empty() ? 0 : roles.back().first_warp + roles.back().num_warps;
    roles.push_back({id, first, warps, static_cast<int>(registers)});
  };
  if (softmax_warpgroups == 1) {
    add(Id::kSoftmax, 4, budgets.softmax);
  } else {
    add(Id::kSoftmax0, 4, budgets.softmax);
    add(Id::kSoftmax1, 4, budgets.softmax);
  }
  add(Id::kCorrection, 4, budgets.correction);
  for (const Id id : {Id::kMma, Id::kLoad, Id::kStore, Id::kScheduler}) add(id, 1, budgets.other);
  if (budgets.upcasting > 0) add(Id::kUpcast, kSm100UpcastWarps, budgets.upcasting);
  return roles;
}

}  // namespace

Sm100Budgets dual_accumulator_budgets(const SpecFacts& spec) {
  // Without polynomials a softmax thread takes fewer; causal at depth 128 spilt 8 bytes elsewhere.
  const Sm100Budgets usual =
      spec.arch == Arch::kSm103a ? Sm100Budgets{184, 80, 64} : Sm100Budgets{192, 80, 48};
  // Beside upcast or scaled keys the warps of a thread's job take more: of 192/128 with pages of
  // 16 they spilt 16 bytes with 48, and with scales of rows 60.
  const Sm100Budgets scaled =
      spec.key_scales && spec.arch == Arch::kSm100a ? Sm100Budgets{192, 72, 56} : usual;
  return spec.upcasts_kv ? Sm100Budgets{136, 72, 56, 80} : scaled;
}

Sm100Budgets single_accumulator_budgets(const Sm100Plan& plan) {
  // What reads a map takes registers of the softmax: beside scales of keys, a mask of numbers and a
  // caller's code for each score it spilt 20 bytes with 184. Correction uses 117. A pair's softmax
  // has rows of 128 keys.
  const Sm100Budgets usual = plan.cluster > 1  ? Sm100Budgets{200, 152, 152}
                             : plan.block_mask ? Sm100Budgets{200, 144, 160}
                                               : Sm100Budgets{184, 160, 160};
  return plan.spec->upcasts_kv ? Sm100Budgets{160, 128, 64, 160} : usual;
}

Status sm100_assign_roles(Sm100Budgets budgets, const Sm100Tuning& tuned, Sm100Plan& plan) {
  Status status = take_budgets(tuned, plan.softmax_warpgroups, budgets);
  if (!status) return status;
  plan.roles = roles_of(plan.softmax_warpgroups, budgets);
  plan.threads = 32 * (plan.roles.back().first_warp + plan.roles.back().num_warps);
  return {};
}

}  // namespace attnjit

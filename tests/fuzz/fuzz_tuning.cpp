// SPDX-License-Identifier: Apache-2.0
// Fuzz target: tuning tables.
#include "attnjit/tuning.h"

#include "attnjit/plan.h"
#include "fuzz_check.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {

void fuzz_tuning(std::string_view input) {
  const Result<Tuning> tuning = tuning_from_json(input);
  if (!tuning) return check_error(tuning.error());
  // Whatever a table says, a plan is made with it or refuses it.
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec;
    spec.arch = arch;
    spec.num_q_heads = 8;
    spec.qk_depth = 128;
    const Result<KernelPlan> planned = plan(spec, {}, &*tuning);
    if (!planned) {
      check_error(planned.error());
    } else if (planned->supported) {
      const PlannedKernel& kernel = planned->main();
      require(kernel.threads > 0 && kernel.smem_bytes <= 232448);
    }
  }
}

}  // namespace attnjit::fuzz

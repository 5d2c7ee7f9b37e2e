// SPDX-License-Identifier: Apache-2.0
// The merge kernel: it combines partial attentions, pairs of O and LSE over different keys, into
// one. A plan that splits the keys computes a pair per partition into workspaces; one that
// accumulates computes its own pair there, and merges it into the caller's o and lse. The plan of a
// spec with `merge` has this kernel alone, which merges pairs of the caller's.
#pragma once

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// The merge kernel of a plan.
/// @pre plan.workspaces is filled.
PlannedKernel merge_kernel(const KernelPlan& plan);

/// Plans the kernel of a spec with `merge`.
Status plan_merge(KernelPlan& plan);

/// Plans its launch.
Status plan_merge_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe);

/// Fills the last launch of such a sequence with the merge into `o`, the caller's, of `batch`
/// sequences, and says how much it needs of the workspaces. Rows that no sequence has stay.
/// @pre launches_merge().
Status fill_merge_launch(const KernelPlan& plan, const TensorView& o, std::int32_t batch,
                         const PartitionChoice& choice, const DeviceShape& device,
                         LaunchSequence& sequence);

}  // namespace attnjit

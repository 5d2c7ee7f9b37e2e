// SPDX-License-Identifier: Apache-2.0
// The merge kernel: it combines partial attentions, pairs of O and LSE over different keys, into
// one. A plan that accumulates computes its own pair into workspaces and merges it into the
// caller's o and lse.
//
// Thread rules: pure functions.
#pragma once

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// The buffer that the attention kernel of a plan takes for `tensor`: o and lse are workspaces
/// where a merge follows.
BufferId forward_buffer(const KernelPlan& plan, BufferId::Kind tensor);

/// Declares the workspaces of a plan that accumulates; nothing for another plan.
void add_merge_workspaces(KernelPlan& plan);

/// Appends the merge kernel to a plan that accumulates; nothing for another plan.
void add_merge_kernel(KernelPlan& plan);

/// Appends the merge into `o`, the caller's, and the sizes of the workspaces to the launches of a
/// plan that accumulates; nothing for another plan.
Status add_merge_launch(const KernelPlan& plan, const TensorView& o, const DeviceShape& device,
                        LaunchSequence& sequence);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The merge kernel: it combines partial attentions, pairs of O and LSE over different keys, into
// one. A plan that splits the keys computes a pair per partition into workspaces; one that
// accumulates computes its own pair there, and merges it into the caller's o and lse. The plan of a
// spec with `merge` has this kernel alone, which merges pairs of the caller's.
//
// Thread rules: pure functions.
#pragma once

#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// Whether an attention kernel's launch is followed by a merge, or may be.
bool merges(const AttentionSpec& spec);

/// Whether launches may split the keys of a spec into partitions.
bool splits(const AttentionSpec& spec);

/// Whether a launch of one partition is merged as well. Then its rows have the same bits as in
/// a launch of several: a sink is added by the merge in other steps than by the attention kernel.
bool merges_one_part(const AttentionSpec& spec);

/// The buffer that the attention kernel of a plan takes for `tensor`: o and lse are workspaces
/// where it accumulates.
BufferId forward_buffer(const KernelPlan& plan, BufferId::Kind tensor);

/// Records that a plan does not split the keys where a launch was to choose.
void add_split_deviation(KernelPlan& plan);

/// Declares the workspaces of a plan that splits or accumulates; nothing for another plan.
void add_merge_workspaces(KernelPlan& plan);

/// Adds the parameters of an attention kernel for what it writes of partitions; none where the
/// plan does not split.
void add_partial_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters);

/// The merge kernel of a plan.
/// @pre plan.workspaces is filled.
PlannedKernel merge_kernel(const KernelPlan& plan);

/// Plans the kernel of a spec with `merge`.
Status plan_merge(KernelPlan& plan);

/// Plans its launch.
Status plan_merge_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe);

/// Takes the workspaces from a launch of an attention kernel that writes one partition as O and
/// LSE: there are none.
void forget_partials(const KernelPlan& plan, std::int32_t partitions, LaunchRecipe& recipe);

/// Whether a launch of a plan that splits or accumulates ends with a merge: of one partition only
/// into what the caller has, and where merges_one_part() says so.
bool launches_merge(const KernelPlan& plan, std::int32_t partitions);

/// Fills the last launch of such a sequence with the merge into `o`, the caller's, and says how
/// much it needs of the workspaces.
/// @pre launches_merge().
Status fill_merge_launch(const KernelPlan& plan, const TensorView& o, const PartitionChoice& choice,
                         const DeviceShape& device, LaunchSequence& sequence);

}  // namespace attnjit

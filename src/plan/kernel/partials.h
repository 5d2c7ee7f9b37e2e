// SPDX-License-Identifier: Apache-2.0
// Partial results, pairs of O and LSE over different keys, of the kernel that computes them: which
// plans have some, and where it writes them. src/plan/merge has the kernel that merges them.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Whether an attention kernel's launch is followed by a merge, or may be.
bool merges(const SpecFacts& spec);

/// Whether the device may cut the long tiles of a spec's ragged batches.
bool cuts_ragged(const SpecFacts& spec);

/// Whether launches may split the keys of a spec into partitions.
bool splits(const SpecFacts& spec);

/// Whether a launch of one partition is merged as well. Then its rows have the same bits as in
/// a launch of several: a sink is added by the merge in other steps than by the attention kernel.
bool merges_one_part(const SpecFacts& spec);

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

/// Takes the workspaces from a launch of an attention kernel that writes one partition as O and
/// LSE: there are none.
void forget_partials(const KernelPlan& plan, std::int32_t partitions, LaunchRecipe& recipe);

/// Whether a launch of a plan that splits or accumulates ends with a merge: of one partition only
/// into what the caller has, and where merges_one_part() says so.
bool launches_merge(const KernelPlan& plan, std::int32_t partitions);

}  // namespace attnjit

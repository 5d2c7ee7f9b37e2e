// SPDX-License-Identifier: Apache-2.0
// Maps of masks: the kernel that makes one before the attention kernel walks it, and its launch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Queries, and keys, of a block of a map (templates/maps/map_rows.cuh).
inline constexpr int kMaskBlock = 128;

/// Whether an attention kernel walks a map of its mask: a tensor is part of it, or custom code that
/// depends on elements of arrays that differ within a tile; or PlanOptions::mask_map asks for one.
bool walks_block_mask(const ResolvedSpec& spec);

/// Why a map that PlanOptions::mask_map asks for cannot be had; empty: it can, or nobody asks.
std::string why_no_map(const ResolvedSpec& spec);

/// Whether the map of a spec whose kernel walks one has bits of blocks that are seen in part.
bool block_mask_has_bits(const SpecFacts& spec);

/// The map of a spec whose kernel walks one. `packed_heads`: query heads that share tiles.
PlannedMap planned_map(const ResolvedSpec& spec, int packed_heads);

/// Declares the workspaces of a plan whose kernel walks a map; nothing for another plan.
void add_map_workspaces(KernelPlan& plan);

/// Adds the parameters of an attention kernel that walks a map, or a work tile's list of it.
void add_map_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters);

/// Adds the kernel that makes the map of a plan, and one that makes lists of it where the family's
/// work tiles have some; nothing for a plan without a map.
void add_map_kernels(KernelPlan& plan);

/// The map of a launch, with all its extents. Errors: kInvalid for one that the plan does not walk,
/// or with extents that do not fit.
Result<MaskMapShape> map_of_launch(const KernelPlan& plan, const LaunchShapes& shapes);

/// Sets what a launch's kernels know of its map.
void set_map_numbers(const LaunchRequest& request, const SpecFacts& spec, LaunchNumbers& numbers);

/// The launches before that of the attention kernel: one makes the map, unless the caller has it,
/// and one makes lists of it.
std::size_t map_launches(const KernelPlan& plan, const LaunchRequest& request);

/// Fills them, the first of a sequence; says how much they need of their workspaces; and puts the
/// workspaces into the other launches in the place of what the caller did not give. Nothing for a
/// plan without a map.
Status fill_map_launches(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchSequence& sequence);

}  // namespace attnjit

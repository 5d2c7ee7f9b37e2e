// SPDX-License-Identifier: Apache-2.0
// The choice of an sm_90a tile: what was measured, and what registers and memory leave.
#pragma once

#include "attnjit/plan.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_traits.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// The tile of a spec, which a tuning row may change: keys, stages, consumers. P, S and O live in
/// registers: BN/4 + BN/2 + ov_depth/2 of them a thread. The choices are measured:
/// docs/performance-sm90.md.
Sm90Plan sm90_choose_tile(const ResolvedSpec& resolved);

/// Whether a tile's rows are of all the query heads that share a KV head.
bool sm90_packs_gqa(const SpecFacts& spec, bool block_mask);

/// Whether P's rows are summed by the tensor cores: where that was found to be faster, and nothing
/// but O is divided by the sums. They are of P rounded, with which an LSE would be off by up to
/// 2^-4.
bool sm90_sums_by_product(Sm90Traits traits);

/// Steps of Q K^T whose Q consumers of e4m3 hold in registers: at depth 256, where shared memory
/// bounds the products, and a step reads two thirds as much of Q as of 96 keys. Four steps, and
/// three with windows and an LSE, have no registers; parts and other masks were not tried. Of 16
/// bits up to nine steps of sixteen gained 1.4 % at most. All measured: docs/performance-sm90.md.
int sm90_q_register_steps(Sm90Traits traits);

/// Whether a kernel has a small-tile variant. Full tiles of three consumers' rows waste what
/// launches of few or short sequences do not have. Where keys are hidden, tiles of fewer groups
/// even out most of that, and only a kernel that chooses its parts at launch pays for it with the
/// time that it compiles in.
bool sm90_has_small_tiles(Sm90Traits traits);

/// The tile of the small-tile variant, which has as many threads, for launches that do not split
/// the keys.
/// @pre plan is not laid out.
Sm90Plan sm90_small_tile(const Sm90Plan& plan);

}  // namespace attnjit

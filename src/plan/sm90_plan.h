// SPDX-License-Identifier: Apache-2.0
// The kernel plan of sm_90a.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/plan.h"
#include "attnjit/sm90_plan.h"
#include "attnjit/spec.h"
#include "attnjit/tuning.h"

namespace attnjit {

/// Fills the sm_90a side of a plan: constants, parameters, barriers, maps, supported and reason.
/// `resolved` has every default filled in. `tuned` holds what a tuning row overrides, or is null.
/// Errors: kInvalid for a tuned name or value that this plan cannot take.
Status make_sm90_plan(const AttentionSpec& resolved, const PlanOptions& options, KernelPlan& plan,
                      const TuningValues* tuned = nullptr);

/// What a tuning row may choose, with what this plan has.
std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan);

/// How a launch deals its query tiles out to CTAs (templates/sm90/work.cuh).
struct Sm90Shares {
  std::int32_t ctas = 0;
  std::int32_t paired_units = 0;  ///< pairs of tiles before the tail: whole rounds of the CTAs
};

/// The shares of `total_tiles` tiles, `m_tiles` a head, on `sm_count` SMs: one CTA an SM, which
/// loads ahead over tile borders. pair_tiles: later tiles are longer.
Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles,
                       int sm_count);

/// How query rows are numbered: position << shift | head of the group, where a tile's rows are of
/// all the query heads that share a key-value head; otherwise 0.
int sm90_gqa_shift(const Sm90Plan& plan, const AttentionSpec& spec);

}  // namespace attnjit

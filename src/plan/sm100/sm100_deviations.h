// SPDX-License-Identifier: Apache-2.0
// Where an sm_100 plan leaves its reference configuration.
#pragma once

#include <string>

#include "attnjit/plan.h"
#include "plan/reference/fa4_config.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm100/sm100_ring.h"

namespace attnjit {

/// Why a kernel with two O has the tiles that it has.
struct Sm100Reasons {
  std::string keys;  ///< of a tile
  Sm100Ring ring;    ///< as it was chosen
  bool ring_is_tuned = false;
};

/// Adds where a plan with two O is not what the reference has without a row, by what it counts.
/// `config`: the reference's with what a row and the caller choose. @pre all else is filled in.
void sm100_deviate(const ResolvedSpec& resolved, const Fa4Config& config,
                   const Sm100Reasons& reasons, Sm100Plan& plan);

/// Adds where a plan with a single accumulator leaves Depth512Config, which is a pair of CTAs, or
/// Fa4Config, of which two O take all of tensor memory. @pre all else is filled in.
void sm100_deviate(const ResolvedSpec& resolved, const Sm100Tuning& tuned, Sm100Plan& plan);

}  // namespace attnjit

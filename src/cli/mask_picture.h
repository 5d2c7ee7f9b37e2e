// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of a mask, tile by tile: the tiles that it does not load, those that it loads
// and masks, and those that it need not mask.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/plan.h"
#include "spec/expression_ranges.h"
#include "verify/problem.h"

namespace attnjit::cli {

struct MaskPicture {
  int tile_queries = 0, tile_keys = 0;
  int q_len = 0, kv_len = 0;
  std::vector<std::vector<spec::TileStatus>> rows;  ///< of tiles, the first queries first

  /// A line a row of tiles, and how many there are of each kind.
  std::string text() const;
  std::string json() const;
  std::string svg() const;
};

/// The tiles of the first head of the first sequence. Errors: kInvalid where a parameter has no
/// value, or there are too many tiles to draw; kUnsupported where the spec is, or the mask is no
/// expression.
Result<MaskPicture> draw_mask(const ResolvedSpec& spec, const KernelPlan& plan,
                              const verify::ProblemRequest& request);

}  // namespace attnjit::cli

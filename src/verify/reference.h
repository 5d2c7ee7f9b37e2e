// SPDX-License-Identifier: Apache-2.0
// The reference: attention in double precision on the CPU, with everything that a spec can ask for.
#pragma once

#include <vector>

#include "attnjit/result.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// o in the layout of Problem::o_shape, lse in that of Problem::lse_shape.
struct Reference {
  std::vector<double> o;
  std::vector<double> lse;
  /// By how much the LSE moves where the scores, and nothing else, are the sums of the GPU's tensor
  /// cores: e4m3 on sm_90a, whose accumulator keeps 13 bits. As lse; empty: they are exact enough.
  std::vector<double> lse_moved;
};

/// Computes attention on the inputs as rounded. A row that sees nothing gives 0 and an LSE of -inf,
/// or of the sink. Blocked over keys with the online softmax of Milakov and Gimelshein ("Online
/// normalizer calculation for softmax", 2018). Errors: kUnsupported as MaskAndScoreMod::of.
/// `threads` 0: one a core.
Result<Reference> compute_reference(const Problem& problem, int threads = 0);

}  // namespace attnjit::verify

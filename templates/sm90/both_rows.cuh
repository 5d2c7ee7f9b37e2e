// SPDX-License-Identifier: Apache-2.0
// What is done for each of the two rows of an accumulator that a thread has.
#pragma once

#include "common/ptx.cuh"

namespace attnjit::sm90 {

/// Whether a kernel has loops over rows in its softmax, and where rows begin and end: those of e4m3
/// do, which are faster so, beside other code (docs/performance-sm90.md).
template <class Config>
constexpr bool loops_over_rows() {
  return Config::kE4m3;
}

/// use(0), and then use(1). NOTE: no loop, for compile time. What a loop indexes is memory to the
/// optimiser until it unrolls the loop, which comes late; of a struct's member, all of the struct
/// is (docs/compile.md).
template <bool kLoop = false, class Use>
ATTNJIT_DEVICE void for_both_rows(const Use& use) {
  if constexpr (kLoop) {
#pragma unroll
    for (int half = 0; half < 2; ++half) use(half);
  } else {
    use(0);
    use(1);
  }
}

}  // namespace attnjit::sm90

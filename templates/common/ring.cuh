// SPDX-License-Identifier: Apache-2.0
// The walk of a pipeline through its stages.
#pragma once

#include "common/integers.cuh"

namespace attnjit {

/// Where a pipeline stands: the stage to use next, and the parity of its full barrier. An empty
/// barrier is one phase behind: the producer waits for the other parity, and its first wait for
/// the phase before the first, which counts as passed.
struct Ring {
  int stage = 0;
  int parity = 0;

  ATTNJIT_DEVICE void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  /// As `count` times advance().
  ATTNJIT_DEVICE void skip(int count, int stages) {
    const int rounds = quotient(stage + count, stages);
    stage += count - rounds * stages;
    parity ^= rounds & 1;
  }
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Says how much each cluster of a launch loads, before any is timed: those that walk work tiles
// have more or less of it.
// Thread rules: confined to one thread; deterministic.
#pragma once

#include <vector>

#include "emulator/machine/machine.h"

namespace attnjit::clock {

/// The bytes that copies of each cluster bring to shared memory. Only the warps that load run:
/// others stop at their first product, and what a loading warp waits for is then taken to happen.
/// None where that says nothing: nothing is loaded so, tiles are dynamic, or a warp does not end.
std::vector<double> loads_of_clusters(emulator::Machine& machine);

}  // namespace attnjit::clock

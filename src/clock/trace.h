// SPDX-License-Identifier: Apache-2.0
// Writes the spans of a timed launch for Chrome's or Perfetto's viewer.
//
// Thread rules: a pure function of its input.
#pragma once

#include <string>
#include <vector>

#include "attnjit/result.h"
#include "clock/clock.h"
#include "emulator/decode/program.h"

namespace attnjit::clock {

/// A launch of a sequence: the SM of it that ends last is shown.
struct TracedLaunch {
  const LaunchTime* launch = nullptr;
  const emulator::Program* program = nullptr;
  double begin_us = 0;  ///< of its CTAs, in the sequence
  LaunchNames names;
};

/// A process for each CTA of each launch, with a row for each warp, with its waits, and rows for
/// each kind of unit: as many as work at once. Times are in microseconds. Errors: kIo.
Status write_trace(const std::string& path, const std::vector<TracedLaunch>& launches);

}  // namespace attnjit::clock

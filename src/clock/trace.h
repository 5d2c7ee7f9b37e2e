// SPDX-License-Identifier: Apache-2.0
// Writes the spans of a timed launch for Chrome's or Perfetto's viewer.
//
// Thread rules: a pure function of its input.
#pragma once

#include <string>

#include "attnjit/result.h"
#include "clock/clock.h"
#include "emulator/decode/program.h"

namespace attnjit::clock {

/// Of the SM that ends last: a row for each warp, with its waits, and one for each kind of unit.
/// Times are in microseconds. Errors: kIo.
Status write_trace(const std::string& path, const LaunchTime& launch,
                   const emulator::Program& program);

}  // namespace attnjit::clock

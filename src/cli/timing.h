// SPDX-License-Identifier: Apache-2.0
// Times a launch by the clock and says what came out: shared by emulate and verify.
#pragma once

#include <vector>

#include "attnjit/emulator.h"
#include "cli/report.h"
#include "clock/clock.h"

namespace attnjit::cli {

/// Errors: kInvalid, kUnsupported, with the flag. @param trace_alone --trace has a meaning without
/// --timing
Status check_timing(const TimingArguments& timing, bool trace_alone);

/// @param registers a thread's, by launch; none: not known
Result<Report> time_for_report(const PtxModule& module, const LaunchSequence& sequence,
                               std::vector<EmulatorBuffer>& buffers, const TimingArguments& timing,
                               std::vector<unsigned> registers);

}  // namespace attnjit::cli

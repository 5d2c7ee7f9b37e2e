// SPDX-License-Identifier: Apache-2.0
// Times a launch by the clock and says what came out: shared by emulate and verify.
#pragma once

#include <vector>

#include "attnjit/emulator.h"
#include "attnjit/plan.h"
#include "cli/report.h"
#include "clock/clock.h"

namespace attnjit::cli {

/// Errors: kInvalid, kUnsupported, with the flag. @param trace_alone --trace has a meaning without
/// --timing
Status check_timing(const TimingArguments& timing, bool trace_alone);

/// What its PTX does not say of a launch's kernel.
struct TimedKernel {
  unsigned registers = 0;  ///< a thread's; 0: not known
  /// Names the warps and the barriers. Null: roles are warpgroups, and barriers their addresses.
  const PlannedKernel* planned = nullptr;
  /// It runs the second of the kernel's two bodies: its barriers are not those of the plan.
  bool low_body = false;
};

/// @param kernels by launch; empty: nothing is known
Result<Report> time_for_report(const PtxModule& module, const LaunchSequence& sequence,
                               std::vector<EmulatorBuffer>& buffers, const TimingArguments& timing,
                               std::vector<TimedKernel> kernels);

}  // namespace attnjit::cli

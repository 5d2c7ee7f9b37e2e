// SPDX-License-Identifier: Apache-2.0
// Times a launch by the clock and says what came out: shared by emulate and verify.
#pragma once

#include <cstdint>
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
  unsigned registers = 0;                  ///< a thread's; 0: not known
  std::vector<PlannedKernel::Role> roles;  ///< empty: not known; its warpgroups are told then
  std::vector<BarrierPlan> barriers;       ///< in memory order; of others the address is told
  std::int64_t barriers_begin = 0;         ///< in shared memory, as a plan counts
};

/// @param kernels by launch; empty: nothing is known
Result<Report> time_for_report(const PtxModule& module, const LaunchSequence& sequence,
                               std::vector<EmulatorBuffer>& buffers, const TimingArguments& timing,
                               std::vector<TimedKernel> kernels);

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// Lets another than Machine::run execute a launch: a clock runs it in the order of its times.
//
// Thread rules: as emulate()'s.
#pragma once

#include <functional>
#include <vector>

#include "attnjit/emulator.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

/// Executes the clusters of a launch, or some of them. Its error ends the run.
using RunMachine = std::function<Status(Machine&)>;

/// emulate(), with each launch executed by `run`.
Result<EmulatorReport> emulate_by(const PtxModule& module, const LaunchSequence& sequence,
                                  std::vector<EmulatorBuffer>& buffers,
                                  const EmulatorOptions& options, const RunMachine& run);

}  // namespace attnjit::emulator

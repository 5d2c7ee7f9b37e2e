// SPDX-License-Identifier: Apache-2.0
// The emulator's clock: how long a launch takes on a GPU that is not at hand (docs/clock.md).
//
// Thread rules: as emulate()'s. Deterministic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attnjit/emulator.h"
#include "attnjit/result.h"
#include "clock/engine.h"

namespace attnjit::clock {

/// What a trace calls the warps and the barriers of a launch, which PTX has no names for.
struct LaunchNames {
  std::vector<std::string> roles;                  ///< by warp of a CTA
  std::map<std::uint32_t, std::string> mbarriers;  ///< by address of shared memory
};

struct ClockOptions {
  Arch arch = Arch::kSm90a;
  unsigned sms = 4;                 ///< of the chip's, that are run in detail
  std::vector<unsigned> registers;  ///< a thread's, by launch; 0 or none: not known
  bool values = false;              ///< products have their values; else they are zeros
  std::vector<LaunchNames> names;   ///< by launch; none: not known
  std::string trace_file;  ///< Chrome/Perfetto JSON of each launch's slowest SM; empty: none
};

/// One launch of a sequence.
struct LaunchTime {
  std::string entry;
  double us = 0;                         ///< with what a launch costs beside its CTAs
  double cycles = 0;                     ///< of the SM that ends last
  double mhz = 0;                        ///< the SMs' clock
  double tensor_share = 0;               ///< of the cycles in which the tensor cores are busy
  double hit_fraction = 1;               ///< of loaded bytes that are in L2
  double loaded_bytes = 0;               ///< by all SMs
  double l2_share = 0, hbm_share = 0;    ///< of their rates, that loads take
  double shared_share = 0;               ///< of shared memory's rate, on the SM that ends last
  std::uint64_t ctas = 0;                ///< of the launch
  unsigned ctas_per_sm = 0;              ///< that an SM holds at once
  std::vector<std::uint64_t> timed_sms;  ///< which were run
  std::uint64_t timed_ctas = 0;          ///< of them, CTAs that were run
  std::uint64_t left_ctas = 0;           ///< of them, CTAs whose time was extrapolated
  SmTimes slowest;
};

struct ClockReport {
  double us = 0;
  std::vector<LaunchTime> launches;
};

/// Times the launches of a sequence; the buffers hold what those SMs wrote. Errors: kInvalid for a
/// kernel of another architecture; kUnsupported for a kernel that cannot be timed; kIo;
/// emulate()'s.
Result<ClockReport> time_launches(const PtxModule& module, const LaunchSequence& sequence,
                                  std::vector<EmulatorBuffer>& buffers,
                                  const ClockOptions& options);

/// The architecture that --timing names. Errors: kInvalid.
Result<Arch> timing_arch(const std::string& name);
/// The SMs of its GPU.
int sms_of(Arch arch);

}  // namespace attnjit::clock

// SPDX-License-Identifier: Apache-2.0
// The buffer of a launch whose waits are bounded (the plan's option debug_waits): what the kernel
// reads of it, what it leaves there, and that as text. templates/common/waits.cuh is its other
// side.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnjit/plan.h"

namespace attnjit {

inline constexpr std::int64_t kWaitRecordsWords = 1024;  // of 32 bits
inline constexpr std::int64_t kWaitRecordsBytes = 4 * kWaitRecordsWords;

/// Words that the host may set before a launch; 0 where it does not.
inline constexpr std::size_t kWaitSeedWord = 1;          ///< of the random sleeps; 0: none
inline constexpr std::size_t kWaitMicrosecondsWord = 2;  ///< the bound of a wait; 0: two seconds

/// A wait at an mbarrier that did not end in time.
struct WaitRecord {
  std::uint32_t cta = 0;
  std::uint32_t warp = 0;
  std::int32_t work_tile = 0;  ///< its rank in the CTA's walk; -1 before the first
  std::uint32_t barrier = 0;   ///< its rank in PlannedKernel::barriers
  std::uint32_t parity = 0;
  std::uint32_t lane = 0;
  bool operator==(const WaitRecord&) const = default;
};

/// The waits that did not end, in the order in which they were written down: no more of them than
/// the buffer holds.
std::vector<WaitRecord> wait_records(std::span<const std::uint32_t> words);

/// A line for each: "CTA 3, warp 12, work tile 0: waits for parity 1 of barrier 7 (S0_prod)".
std::string describe_waits(const KernelPlan& plan, std::span<const std::uint32_t> words);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Times the CTAs of SMs (of a cluster: one of each of its SMs): issue ports and pipes of the
// sub-partitions, tensor cores, copies and barriers, event by event.
//
// The kernel runs in the order of these times: an instruction whose effect others see is executed
// when it is issued, an operation of a unit when it is complete.
// Thread rules: confined to one thread; deterministic.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "attnjit/result.h"
#include "clock/cost.h"
#include "emulator/machine/machine.h"

namespace attnjit::clock {

/// What the engine is told of the rest of the chip.
struct OtherSms {
  double clock_mhz = 0;      ///< of the SMs: what rates in seconds are divided by
  double active_sms = 1;     ///< that load from L2 and HBM at once
  double hit_fraction = 1;   ///< of loaded bytes that are in L2
  unsigned ctas_per_sm = 1;  ///< clusters, rather, that share their SMs
};

/// What warps of one index, or of a role, did: cycles of a warp, summed over them.
struct WarpTimes {
  double lived = 0;
  double issued = 0;
  std::array<double, kCauses> stalls{};
  std::array<double, kPipes> pipe_stalls{};  ///< stalls of Cause::kPipe, by the pipe
  WarpTimes& operator+=(const WarpTimes& other);
};

/// A span of the trace, in cycles.
struct Span {
  double begin = 0, end = 0;
  std::uint32_t cta = 0;
  int warp = -1;  ///< -1: a unit
  const char* unit = nullptr;
  Cause cause = Cause::kOther;  ///< of a warp's wait
  std::uint32_t site = 0;
  std::uint32_t barrier = 0;  ///< shared address, or id
};

/// Where warps of a warpgroup wait for others.
struct BarrierWait {
  unsigned warpgroup = 0;          ///< of the CTA
  Cause cause = Cause::kMbarrier;  ///< or kNamedBarrier
  std::uint32_t barrier = 0;       ///< as a span's

  // clang-tidy takes the 0 that the compiler compares with for a pointer.
  auto operator<=>(const BarrierWait&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// A cluster that an SM was given.
struct ClusterTime {
  std::uint64_t index = 0;      ///< in the launch
  double given = 0, ended = 0;  ///< cycles; given: when its place was free
};

struct SmTimes {
  unsigned sms = 1;                   ///< of which it holds the times: a cluster's
  double cycles = 0;                  ///< until the last CTA had ended
  std::uint64_t clusters = 0;         ///< that ran
  std::uint64_t clusters_left = 0;    ///< of this SM, that were not run
  std::uint64_t clusters_stolen = 0;  ///< that one of them took by launch control
  std::vector<ClusterTime> cluster_times;
  std::vector<WarpTimes> warps;                 ///< by index in the CTA, over all its CTAs
  std::map<BarrierWait, double> barrier_waits;  ///< cycles of warps
  double tensor_busy = 0, copy_busy = 0;
  double shared_bytes = 0;        ///< of shared memory that products and copies read or write
  double tensor_memory_busy = 0;  ///< of the sub-partitions' ports, for loads and stores
  double loaded_bytes = 0;
  std::map<unsigned, double> loaded_by_buffer;
  std::array<double, 4> issue_slots{};  ///< by sub-partition
  std::array<double, kPipes> pipe_busy{};
  std::uint64_t instructions = 0;
  std::vector<Span> spans;
};

struct EngineOptions {
  std::uint64_t most_clusters = ~std::uint64_t{0};  ///< of an SM
  std::uint64_t most_instructions = 200'000'000;
  bool trace = false;
};

/// Runs SMs: each the clusters first, first + stride, .. of the machine's launch, by its first one.
/// What they take from counters in global memory, or by cluster launch control, they take in the
/// order of time, and each of them for an equal part of all `takers`. Errors: kUnsupported where
/// the kernel waits for what is not run here; kInternal.
Result<std::vector<SmTimes>> time_sms(emulator::Machine& machine, const Parameters& parameters,
                                      const OtherSms& others,
                                      const std::vector<std::uint64_t>& firsts,
                                      std::uint64_t stride, std::uint64_t takers,
                                      const EngineOptions& options);

}  // namespace attnjit::clock

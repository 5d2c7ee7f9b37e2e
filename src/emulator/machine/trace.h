// SPDX-License-Identifier: Apache-2.0
// A run's trace for Chrome's or Perfetto's viewer: one row per warp, and one per kind of unit.
//
// Thread rules: a TraceRecorder belongs to a cluster; write_trace is a pure function of its input.
#pragma once

#include <string>
#include <vector>

#include "attnjit/result.h"
#include "emulator/integers.h"

namespace attnjit::emulator {

/// A span in steps of its cluster; or what a warp or a unit has to do with an mbarrier: a wait for
/// a phase, which takes no time where the phase was complete, or an arrival in one.
struct TraceEvent {
  enum class Kind : u8 { kRun, kWait, kArrival };
  u64 begin = 0;
  u64 length = 0;
  u32 cta = 0;    ///< linear in the grid
  s32 warp = -1;  ///< -1: a unit
  const char* unit = nullptr;
  u32 site = 0;
  Kind kind = Kind::kRun;
  u32 barrier = 0;  ///< shared address
  s64 phase = 0;    ///< counted from 0; -1: a wait for the phase before the first
  u64 issued = 0;   ///< an arrival of a unit: when its operation was issued
};

/// Events of one cluster, bounded so that a long run stays loadable.
struct TraceRecorder {
  static constexpr std::size_t kMost = 200'000;
  bool on = false;
  std::vector<TraceEvent> events;
  void add(const TraceEvent& event) {
    if (on && events.size() < kMost) events.push_back(event);
  }
};

struct Program;

/// Writes the JSON. Errors: kIo.
Status write_trace(const std::string& path, const std::vector<TraceEvent>& events,
                   const Program& program);

}  // namespace attnjit::emulator

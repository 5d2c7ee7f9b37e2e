// SPDX-License-Identifier: Apache-2.0
// Times that callers give, such that a clock's time can be added to them.
//
// Thread rules: pure functions.
#pragma once

#include <algorithm>
#include <chrono>

namespace attnjit {

/// The time, or ten years, which stand for no limit. NOTE: the largest numbers of seconds and of
/// milliseconds, which callers give for that, are no number of nanoseconds, which clocks count.
template <class Duration>
constexpr Duration bounded(Duration given) {
  return std::min<Duration>(given, std::chrono::years(10));
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What a recorded proof names: the machine that it ran on, and the day.
//
// Thread rules: pure functions.
#pragma once

#include <string>

namespace attnjit {

/// The processor's name as the kernel tells it, or "unknown".
std::string machine();

/// The day as 2026-11-21, UTC.
std::string today();

}  // namespace attnjit

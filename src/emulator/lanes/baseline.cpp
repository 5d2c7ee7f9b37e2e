// SPDX-License-Identifier: Apache-2.0
// The lane functions for any CPU.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "emulator/lanes/lanes.h"

namespace attnjit::emulator {
namespace baseline {
namespace {
// Each needs the ones before.
// clang-format off
#include "emulator/lanes/common.inc"
#include "emulator/lanes/integer.inc"
#include "emulator/lanes/float.inc"
#include "emulator/lanes/convert.inc"
// clang-format on
}  // namespace
}  // namespace baseline

LaneFn select_lane_baseline(const LaneRequest& request) { return baseline::select_all(request); }

}  // namespace attnjit::emulator

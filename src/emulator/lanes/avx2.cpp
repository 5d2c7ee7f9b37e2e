// SPDX-License-Identifier: Apache-2.0
// The lane functions for CPUs with AVX2 and FMA; compiled with those options.
//
// NOTE: standard headers' inline functions compiled here could replace the portable ones at link
// time and then crash an older CPU; only ones that always inline (std::min, std::popcount) are
// used.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "emulator/lanes/lanes.h"

namespace attnjit::emulator {
namespace avx2 {
namespace {
// Each needs the ones before.
// clang-format off
#include "emulator/lanes/common.inc"
#include "emulator/lanes/integer.inc"
#include "emulator/lanes/float.inc"
#include "emulator/lanes/convert.inc"
// clang-format on
}  // namespace
}  // namespace avx2

LaneFn select_lane_avx2(const LaneRequest& request) {
  return cpu_has_avx2() ? avx2::select_all(request) : nullptr;
}

}  // namespace attnjit::emulator

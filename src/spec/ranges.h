// SPDX-License-Identifier: Apache-2.0
// templates/common/ranges.cuh for the host: what that file expects of common/expression.cuh, which
// is for devices.
#pragma once

#include <cmath>
#include <limits>

#define ATTNJIT_RANGES_ON_HOST
#define ATTNJIT_DEVICE inline

namespace attnjit {

ATTNJIT_DEVICE float infinity() { return std::numeric_limits<float>::infinity(); }
ATTNJIT_DEVICE float expr_mul(float a, float b) { return a * b; }
ATTNJIT_DEVICE float to_f32(int a) { return static_cast<float>(a); }
ATTNJIT_DEVICE float to_f32(unsigned a) { return static_cast<float>(a); }
ATTNJIT_DEVICE unsigned to_u32(float a) {
  if (!(a > 0.0F)) return 0;
  return a >= 4294967296.0F ? std::numeric_limits<unsigned>::max() : static_cast<unsigned>(a);
}
ATTNJIT_DEVICE int to_i32(float a) {
  if (std::isnan(a)) return 0;
  if (a >= 2147483648.0F) return std::numeric_limits<int>::max();
  return a < -2147483648.0F ? std::numeric_limits<int>::min() : static_cast<int>(a);
}

}  // namespace attnjit

#include "../../templates/common/ranges.cuh"

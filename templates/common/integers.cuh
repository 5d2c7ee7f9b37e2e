// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of every kernel.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// a / b rounded up, for a >= 0 and b > 0.
constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// a / b of numbers from 0. NOTE: unsigned, which takes half the instructions.
ATTNJIT_DEVICE int quotient(int a, int b) {
  return static_cast<int>(static_cast<u32>(a) / static_cast<u32>(b));
}

/// A word with its `count` lowest bits set; none below 0, all from 32 on.
ATTNJIT_DEVICE u32 low_bits(int count) { return ~shift_left(~0u, max(count, 0)); }

/// One of two types.
template <bool kFirst, class First, class>
struct EitherOf {
  using Type = First;
};
template <class First, class Second>
struct EitherOf<false, First, Second> {
  using Type = Second;
};
template <bool kFirst, class First, class Second>
using Either = typename EitherOf<kFirst, First, Second>::Type;

}  // namespace attnjit

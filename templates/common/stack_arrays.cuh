// SPDX-License-Identifier: Apache-2.0
// What stack code works on: words of 32 bits, and the elements of arrays.
//
// NOTE: the tests compile this file for the host, too.
#pragma once

#ifndef ATTNJIT_INTERPRETER_ON_HOST
#include "common/ptx.cuh"
#include "common/stack_code.cuh"
#endif

namespace attnjit {

ATTNJIT_DEVICE int as_int(u32 bits) { return static_cast<int>(bits); }
ATTNJIT_DEVICE u32 as_bits(int value) { return static_cast<u32>(value); }
ATTNJIT_DEVICE u32 as_bits(bool value) { return value ? 1u : 0u; }
ATTNJIT_DEVICE float as_float(u32 bits) { return __uint_as_float(bits); }
ATTNJIT_DEVICE u32 as_bits(float value) { return __float_as_uint(value); }

/// The arrays that stack code reads, by their numbers in it.
struct StackArrays {
  const void* address[kStackArrays];

  /// NOTE: no element is taken by its number: an array that is would lie in local memory.
  ATTNJIT_DEVICE const void* at(u32 number) const {
    const void* found = address[0];
#pragma unroll
    for (u32 i = 1; i < kStackArrays; ++i) found = number == i ? address[i] : found;
    return found;
  }
};

/// The bits of an element that lies in an array, or 0.
ATTNJIT_DEVICE u32 element_of(const void* array, bool inside, i64 index, bool bf16) {
  if (!inside) return 0;
  if (bf16) return static_cast<u32>(static_cast<const unsigned short*>(array)[index]) << 16;
  return static_cast<const u32*>(array)[index];
}

}  // namespace attnjit

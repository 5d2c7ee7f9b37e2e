// SPDX-License-Identifier: Apache-2.0
// 16 elements of 6 or 4 bits, packed at the front of 16 bytes, each to a byte (PTX ISA 9.7.16.9.1):
// tcgen05.cp and ldmatrix.
//
// Thread rules: pure.
#pragma once

#include "emulator/integers.h"

namespace attnjit::emulator {

enum class Expansion : u8 { kNone, kFrom6, kFrom4 };

/// 6-bit types lie at the bottom of their byte, 4-bit ones in the middle.
inline void expand(Expansion how, const u8* packed, u8* bytes) {
  const int bits = how == Expansion::kFrom6 ? 6 : 4;
  for (int i = 0; i < 16; ++i) {
    const int bit = i * bits;
    u32 v = packed[bit / 8];
    if (bit / 8 + 1 < 16) v |= static_cast<u32>(packed[bit / 8 + 1]) << 8;
    v = (v >> (bit % 8)) & ((1u << bits) - 1);
    bytes[i] = static_cast<u8>(bits == 4 ? v << 2 : v);
  }
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// How the four lanes of a quad share a row of scores: lane q has the columns 8 i + 2 q and
// 8 i + 2 q + 1 of every 8, as in the accumulators of mma and wgmma.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

constexpr int kQuad = 4;

/// The lane's column of a number, from its first one on.
ATTNJIT_DEVICE int quad_column(int number) { return 8 * (number >> 1) + (number & 1); }

/// Rows of partial results may lie in the order in which quads have them: of 16 columns, 16 bytes
/// of each lane. NOTE: so a lane stores 16 bytes at a time, and the quad 64. Which pair of columns
/// the pair of a number is.
ATTNJIT_DEVICE int column_pair_of_quads(int number) {
  return (number & ~7) | (number & 1) << 2 | (number >> 1 & 3);
}

/// Of a row's columns in a lane, those before `column` of its first.
ATTNJIT_DEVICE int columns_before(int column) {
  return column <= 0 ? 0 : 2 * (column >> 3) + min(column & 7, 2);
}

/// Of 32 columns, a bit each, those of lane q of a quad: 8 bits.
ATTNJIT_DEVICE u32 bits_of_quad(u32 columns, int q) {
  const u32 pairs = columns >> 2 * q & 0x03030303u;
  const u32 halves = pairs | pairs >> 6;
  return (halves & 0x0fu) | (halves >> 12 & 0xf0u);
}

/// Byte i of four words, from the first on.
ATTNJIT_DEVICE u32 byte_of_each(const u32 (&words)[kQuad], int i) {
  const u32 pick = static_cast<u32>(i | (i + 4) << 4);
  return __byte_perm(__byte_perm(words[0], words[1], pick), __byte_perm(words[2], words[3], pick),
                     0x5410);
}

/// Of 32 columns, a bit each, by what the lanes of a quad have of them: a byte each, which is four
/// pairs. So it turns a square of pairs, of 2 by 2 and then within these.
ATTNJIT_DEVICE u32 columns_of_quad(u32 lanes) {
  const u32 far = (lanes ^ lanes >> 12) & 0x0000f0f0u;
  const u32 halves = lanes ^ far ^ far << 12;
  const u32 near = (halves ^ halves >> 6) & 0x00cc00ccu;
  return halves ^ near ^ near << 6;
}

}  // namespace attnjit

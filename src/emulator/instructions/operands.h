// SPDX-License-Identifier: Apache-2.0
// Registers that several families read and write alike: stored vectors, results of 32 or 64 bits.
#pragma once

#include <vector>

#include "emulator/decode/decoding.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

/// The modifiers .v2, .v4 and .v8: how many registers follow; 1 where there is none.
inline u8 take_vector(Decoding& d) {
  const int v = d.take_any({"v2", "v4", "v8"});
  return static_cast<u8>(v < 0 ? 1 : 2 << v);
}

/// The registers of a value that is stored: one, or `vector` of them in braces.
bool take_stored(Decoding& d, const Operand& operand, u8 vector, int bits, Type type,
                 std::vector<Ref>* refs);

/// Writes a result to a register of 64 bits, or its lanes' low halves to one of 32.
inline void blend_result(Warp& warp, Ref d, const u64* result, bool wide, u32 mask) {
  if (wide) return warp.blend(d, result, 2, mask);
  u32 narrow[32];
  for (int i = 0; i < 32; ++i) narrow[i] = static_cast<u32>(result[i]);
  warp.blend(d, narrow, 1, mask);
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// Shared-memory swizzles of TMA, wgmma and tcgen05: an XOR on the absolute shared address.
//
// Source: PTX ISA 9.1, section 5.5.7 (swizzling modes). Pure functions.
#pragma once

#include <cstdint>

namespace attnjit::emulator {

enum class Swizzle : std::uint8_t { kNone, k32B, k64B, k128B, k128BAtom32B, k128BAtom64B };

/// Bytes of one row of the pattern; 16 without swizzle (the core matrix's row).
constexpr std::uint32_t swizzle_span(Swizzle mode) {
  switch (mode) {
    case Swizzle::kNone:
      return 16;
    case Swizzle::k32B:
      return 32;
    case Swizzle::k64B:
      return 64;
    default:
      return 128;
  }
}

/// Where the byte of a linear address lies. Keeps the low 4 bits: 16-byte chunks stay whole.
constexpr std::uint32_t swizzle_address(Swizzle mode, std::uint32_t a) {
  switch (mode) {
    case Swizzle::kNone:
      return a;
    case Swizzle::k32B:
      return a ^ ((a >> 3) & 0x10u);
    case Swizzle::k64B:
      return a ^ ((a >> 3) & 0x30u);
    case Swizzle::k128B:
      return a ^ ((a >> 3) & 0x70u);
    case Swizzle::k128BAtom32B:
      return a ^ ((a >> 2) & 0x60u);
    case Swizzle::k128BAtom64B:
      return a ^ ((a >> 1) & 0x40u);
  }
  return a;
}

}  // namespace attnjit::emulator

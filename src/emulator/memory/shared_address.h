// SPDX-License-Identifier: Apache-2.0
// A place in a cluster's shared memory: whose (the CTA's rank) and where in it (the offset).
//
// In 32 bits, as instructions compute with it, the rank lies above the 24 bits of the offset.
// Thread rules: a value.
#pragma once

#include "emulator/integers.h"

namespace attnjit::emulator {

class SharedAddress {
 public:
  static constexpr int kOffsetBits = 24;
  static constexpr u32 kWindowBytes = u32{1} << kOffsetBits;  ///< of one CTA

  constexpr SharedAddress() = default;
  constexpr explicit SharedAddress(u32 bits) : bits_(bits) {}
  constexpr SharedAddress(u32 rank, u32 offset)
      : bits_(rank << kOffsetBits | (offset & (kWindowBytes - 1))) {}

  constexpr u32 bits() const { return bits_; }
  constexpr u32 rank() const { return bits_ >> kOffsetBits; }
  constexpr u32 offset() const { return bits_ & (kWindowBytes - 1); }
  /// The same offset in another CTA's memory.
  constexpr SharedAddress in(u32 rank) const { return {rank, offset()}; }
  constexpr SharedAddress operator+(u32 bytes) const { return SharedAddress(bits_ + bytes); }
  constexpr bool operator==(const SharedAddress&) const = default;

 private:
  u32 bits_ = 0;
};

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The lanes of a mask, in order: for (const u32 lane : lanes_of(mask)).
#pragma once

#include "emulator/integers.h"

namespace attnjit::emulator {

class LanesOf {
 public:
  class Iterator {
   public:
    explicit Iterator(u32 left) : left_(left) {}
    u32 operator*() const { return static_cast<u32>(__builtin_ctz(left_)); }
    Iterator& operator++() {
      left_ &= left_ - 1;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    u32 left_;
  };
  explicit LanesOf(u32 mask) : mask_(mask) {}
  Iterator begin() const { return Iterator(mask_); }
  Iterator end() const { return Iterator(0); }

 private:
  u32 mask_;
};

/// The lanes whose bits are set, lowest first.
inline LanesOf lanes_of(u32 mask) { return LanesOf(mask); }

/// How many there are.
/// NOTE: std::popcount is a call where the machine need not have the instruction.
inline u32 count_lanes(u32 mask) {
  mask -= mask >> 1 & 0x55555555;
  mask = (mask & 0x33333333) + (mask >> 2 & 0x33333333);
  return ((mask + (mask >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

/// The lowest lane. @pre mask is not 0
inline u32 lowest_lane(u32 mask) { return static_cast<u32>(__builtin_ctz(mask)); }

}  // namespace attnjit::emulator

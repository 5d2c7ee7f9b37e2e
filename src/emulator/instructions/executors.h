// SPDX-License-Identifier: Apache-2.0
// Executors that decoding emits on its own (symbols, clocks), and helpers that families share.
#pragma once

#include "emulator/decode/operation.h"

namespace attnjit::emulator {

/// The address of a shared or local variable.
struct SymbolAddress {
  Space space = Space::kShared;
  u64 offset = 0;
};
Step execute_symbol(Warp& warp, const Op& op, const SymbolAddress& symbol, u32 mask);

struct ClockReading {
  bool high = false;  ///< the upper word
};
Step execute_clock(Warp& warp, const Op& op, const ClockReading& clock, u32 mask);

/// Does nothing: of instructions that have no effect here.
Step execute_nothing(Warp& warp, const Op& op, u32 mask);

/// What an address operand (with Op::s[0]) is in each lane.
class LaneAddresses {
 public:
  LaneAddresses(const Warp& warp, const Op& op, const Address& address);
  u64 operator[](u32 lane) const {
    if (wide_ != nullptr) return wide_[lane] + offset_;
    return narrow_ != nullptr ? static_cast<u32>(narrow_[lane] + static_cast<u32>(offset_))
                              : offset_;
  }

 private:
  u64 offset_;
  const u64* wide_ = nullptr;    ///< a register of 64 bits
  const u32* narrow_ = nullptr;  ///< one of 32
};
inline u64 lane_address(const Warp& warp, const Op& op, const Address& address, u32 lane) {
  return LaneAddresses(warp, op, address)[lane];
}

/// Makes the warp's local memory, at its first use: most kernels have none, and a thread may ask
/// for half a megabyte.
void ensure_local(Warp& warp);

}  // namespace attnjit::emulator

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

/// What an address operand (with Op::s[0]) is in a lane.
u64 lane_address(const Warp& warp, const Op& op, const Address& address, u32 lane);

/// Makes the warp's local memory, at its first use: most kernels have none, and a thread may ask
/// for half a megabyte.
void ensure_local(Warp& warp);

}  // namespace attnjit::emulator

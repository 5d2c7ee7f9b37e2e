// SPDX-License-Identifier: Apache-2.0
// Executors that decoding emits on its own (symbols, clocks), and helpers that families share.
#pragma once

#include "emulator/decode/program.h"

namespace attnjit::emulator {

/// d = the address of a shared or local variable (op.imm its offset).
Step execute_symbol(Warp& warp, const Op& op, u32 mask);
/// d = a clock (op.mode: the special register).
Step execute_clock(Warp& warp, const Op& op, u32 mask);

// Bits of Op::mode for operations with an address in s[0] and imm.
inline constexpr u8 kFrameAddress = 0x40;  ///< imm is relative to the frame's local memory
inline constexpr u8 kRankAddress = 0x20;   ///< imm is an offset in the CTA's own shared memory

/// The address that a lane computes from s[0] and imm.
u64 lane_address(const Warp& warp, const Op& op, u32 lane);

/// Makes the warp's local memory, at its first use: most kernels have none, and a thread may ask
/// for half a megabyte.
void ensure_local(Warp& warp);

}  // namespace attnjit::emulator

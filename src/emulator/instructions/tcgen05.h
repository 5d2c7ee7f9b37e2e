// SPDX-License-Identifier: Apache-2.0
// What the tcgen05 families share in decoding and issue.
#pragma once

#include "emulator/decode/decoding.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {

class InstructionTable;

/// 1 or 2; refuses the instruction where the modifier is missing.
int take_cta_group(Decoding& d);

/// A tensor-memory address in brackets, with its offset.
Ref tensor_address(Decoding& d, const Operand& operand);

/// Reports an operand that is undefined or not the same in all lanes of `mask`.
bool uniform(Warp& warp, const Op& op, u32 mask, Ref r, const char* what);

void add_tcgen05_memory(InstructionTable& table);
void add_tcgen05_mma(InstructionTable& table);
void add_tcgen05_copies(InstructionTable& table);

}  // namespace attnjit::emulator

// Families to come.
#include "emulator/instruction_table.h"

namespace attnjit::emulator {
void add_async_copies(InstructionTable&) {}
void add_tensor_copies(InstructionTable&) {}
void add_matrices(InstructionTable&) {}
void add_wgmma(InstructionTable&) {}
void add_tcgen05(InstructionTable&) {}
}  // namespace attnjit::emulator

// Families to come.
#include "emulator/instruction_table.h"

namespace attnjit::emulator {
void add_tcgen05(InstructionTable&) {}
}  // namespace attnjit::emulator

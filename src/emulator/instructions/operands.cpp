// SPDX-License-Identifier: Apache-2.0
// Takes the registers of a stored value.
#include "emulator/instructions/operands.h"

namespace attnjit::emulator {

bool take_stored(Decoding& d, const Operand& operand, u8 vector, int bits, Type type,
                 std::vector<Ref>* refs) {
  if (operand.kind != Operand::Kind::kVector) {
    if (vector != 1) return d.invalid("a vector in braces is needed");
    refs->push_back(d.source(operand, bits, type));
    return true;
  }
  if (operand.parts.size() != vector)
    return d.invalid("the vector has another size than the modifier");
  for (const Operand& part : operand.parts) refs->push_back(d.source(part, bits, type));
  return true;
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The forms in which PTX has an instruction: which modifiers go with which types.
//
// A decoder takes modifiers one by one, so that it alone would let pass what each of them may mean
// somewhere: "add.relu.f32". The opcodes that are listed here are held to the ISA's syntax lines.
// Thread rules: pure functions of constant tables.
#pragma once

#include <string>

#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

struct FormFault {
  std::string text;         ///< what is wrong, empty where nothing is
  bool incomplete = false;  ///< only something that the form needs is missing
};

/// Compares an instruction's modifiers with its opcode's forms. An opcode without forms passes.
/// Source: the syntax blocks of PTX ISA 9.1, sections 9.7.1 to 9.7.9 and 9.7.13.
FormFault form_fault(const Instruction& instruction);

}  // namespace attnjit::emulator

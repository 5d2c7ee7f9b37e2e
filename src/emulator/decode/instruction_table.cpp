// SPDX-License-Identifier: Apache-2.0
// The instruction table, put together, and its form for the documentation.
#include "emulator/decode/instruction_table.h"

#include <fmt/format.h>

#include "attnjit/emulator.h"

namespace attnjit {
namespace emulator {

InstructionTable::InstructionTable() {
  add_arithmetic(*this);
  add_logic(*this);
  add_comparisons(*this);
  add_conversions(*this);
  add_moves(*this);
  add_memory(*this);
  add_atomics(*this);
  add_control(*this);
  add_warp_operations(*this);
  add_barriers(*this);
  add_mbarriers(*this);
  add_fences(*this);
  add_async_copies(*this);
  add_tensor_copies(*this);
  add_matrices(*this);
  add_wmma(*this);
  add_wgmma(*this);
  add_tcgen05(*this);
  add_launch_control(*this);
  add_miscellaneous(*this);
}

const InstructionTable& InstructionTable::instance() {
  static const InstructionTable table;
  return table;
}

}  // namespace emulator

std::string instruction_table_markdown() {
  std::string text = "| instruction | family | modelled | PTX ISA |\n|---|---|---|---|\n";
  for (const emulator::InstructionInfo& info : emulator::InstructionTable::instance().rows()) {
    text += fmt::format("| `{}{}` | {} | {} | {} |\n", info.root, info.selector, info.family,
                        info.modelled, info.section);
  }
  return text;
}

}  // namespace attnjit

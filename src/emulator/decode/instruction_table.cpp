// SPDX-License-Identifier: Apache-2.0
// The instruction table, put together, and its form for the documentation.
#include "emulator/decode/instruction_table.h"

#include <fmt/format.h>

#include <algorithm>

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

void InstructionTable::add(const InstructionInfo& info) {
  by_root_[info.root].push_back(rows_.size());
  rows_.push_back(info);
}

namespace {

/// Whether all modifiers of a selector, as ".async.bulk", are among those given.
bool fits(std::string_view selector, const std::vector<std::string_view>& modifiers) {
  while (!selector.empty()) {
    const std::size_t end = std::min(selector.find('.', 1), selector.size());
    const std::string_view piece = selector.substr(1, end - 1);
    if (std::find(modifiers.begin(), modifiers.end(), piece) == modifiers.end()) return false;
    selector.remove_prefix(end);
  }
  return true;
}

}  // namespace

const InstructionInfo* InstructionTable::find(
    std::string_view root, const std::vector<std::string_view>& modifiers) const {
  const auto same_root = by_root_.find(root);
  if (same_root == by_root_.end()) return nullptr;
  const InstructionInfo* best = nullptr;
  for (const std::size_t index : same_root->second) {
    const InstructionInfo& row = rows_[index];
    if (best != nullptr && row.selector.size() <= best->selector.size()) continue;
    if (fits(row.selector, modifiers)) best = &row;
  }
  return best;
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

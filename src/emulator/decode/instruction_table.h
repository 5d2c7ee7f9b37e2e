// SPDX-License-Identifier: Apache-2.0
// The table of instructions: the one source for decoding, execution and the documentation.
//
// Each family (instructions/*.cpp) adds its rows: an opcode's root (with the first modifier where
// that decides, as in "cp.async"), what it is, and the function that decodes it to operations.
// Thread rules: built once, immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attnjit/result.h"
#include "emulator/integers.h"

namespace attnjit::emulator {

class Decoding;

struct InstructionInfo {
  std::string_view root;      ///< "add"
  std::string_view selector;  ///< modifiers that must be present, as ".async.bulk"; may be empty
  std::string_view family;    ///< "integer", "tensor memory"
  std::string_view modelled;  ///< types and modifiers, for the documentation
  std::string_view section;   ///< of the PTX ISA
  bool (*decode)(Decoding&);  ///< false: refused, with the reason in the Decoding
};

class InstructionTable {
 public:
  static const InstructionTable& instance();
  const std::vector<InstructionInfo>& rows() const { return rows_; }
  void add(const InstructionInfo& info);

  bool has_root(std::string_view root) const { return by_root_.count(root) != 0; }
  /// Of the rows whose selector's modifiers are all there, that with the longest selector; null:
  /// there is none.
  const InstructionInfo* find(std::string_view root,
                              const std::vector<std::string_view>& modifiers) const;
  /// Of one of the table's rows.
  std::uint16_t index_of(const InstructionInfo& row) const {
    return static_cast<std::uint16_t>(&row - rows_.data());
  }

 private:
  InstructionTable();
  std::vector<InstructionInfo> rows_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_root_;
};

// The families.
void add_arithmetic(InstructionTable& table);
void add_logic(InstructionTable& table);
void add_comparisons(InstructionTable& table);
void add_conversions(InstructionTable& table);
void add_moves(InstructionTable& table);
void add_memory(InstructionTable& table);
void add_atomics(InstructionTable& table);
void add_control(InstructionTable& table);
void add_warp_operations(InstructionTable& table);
void add_barriers(InstructionTable& table);
void add_mbarriers(InstructionTable& table);
void add_fences(InstructionTable& table);
void add_async_copies(InstructionTable& table);
void add_tensor_copies(InstructionTable& table);
void add_matrices(InstructionTable& table);
void add_wmma(InstructionTable& table);
void add_wgmma(InstructionTable& table);
void add_tcgen05(InstructionTable& table);
void add_launch_control(InstructionTable& table);
void add_miscellaneous(InstructionTable& table);

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// Decoding of one PTX instruction: its modifiers are taken one by one, its operands resolved, and
// operations emitted. What is not taken is refused: nothing is skipped.
//
// Thread rules: confined to one decode.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "attnjit/result.h"
#include "emulator/decode/program.h"

namespace attnjit::emulator {

/// Where a variable lies.
struct VariablePlace {
  Space space = Space::kGlobal;
  u64 offset = 0;  ///< shared: address without the rank; global: the address; others: in the space
};

class ProgramBuilder;

/// Decodes the instructions of one function.
class FunctionDecoder {
 public:
  FunctionDecoder(ProgramBuilder& builder, const Function& function, FunctionCode& code);
  Result<void> decode();

  ProgramBuilder& builder;
  const Function& function;
  FunctionCode& code;

  Ref register_ref(RegisterId id);
  Ref special_ref(SpecialRegister special);
  Ref scratch(u32 rows);
  Ref scratch_predicate();
  /// The label's first operation, patched when the function is complete.
  void want_label(std::size_t op, std::size_t instruction) { fixups_.push_back({op, instruction}); }
  const VariablePlace* find_variable(std::string_view name, u32 scope);
  const Label* find_label(std::string_view name, u32 scope) const;
  u32 local_place(const Variable& variable);
  /// Marks the next operation to be emitted as one where paths meet.
  void reconverge_next() { meet_.push_back(code.ops.size()); }

 private:
  struct Fixup {
    std::size_t op;
    std::size_t instruction;  ///< operations of which it targets
  };
  void place_variables();
  void place_parameters();
  void add_variable(std::string_view name, const VariablePlace& place);
  Result<void> collect_labels();
  Result<void> check_registers() const;
  Result<void> decode(const Instruction& instruction);
  /// What named instructions, or labels, names operations.
  void patch_targets();
  bool in_scope(u32 scope, u32 of) const;
  std::unordered_set<std::string_view> sound_;  ///< spellings whose form is one of PTX's
  std::vector<Ref> refs_;                       ///< by RegisterId
  std::vector<Fixup> fixups_;
  std::vector<std::size_t> meet_;
  std::vector<u32> begins_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> labels_;
  std::unordered_map<std::string_view, std::vector<std::size_t>> variables_;
  std::vector<VariablePlace> places_;
  u32 next_row_ = 0;
  u32 next_predicate_ = 1;
  std::vector<Ref> specials_;
  friend class Decoding;
};

/// What a lane function needs beside its sources.
struct LaneControl {
  u64 imm = 0;      ///< see LaneOp
  u32 fp_mode = 0;  ///< 0: does not matter
};

class Decoding {
 public:
  Decoding(FunctionDecoder& decoder, const Instruction& instruction, u32 site);

  FunctionDecoder& f;
  const Instruction& in;

  // Modifiers.
  bool has(std::string_view modifier) const;
  bool take(std::string_view modifier);
  /// Which of the alternatives is present (taken), or -1.
  int take_any(std::initializer_list<std::string_view> alternatives);
  /// The next modifier that is a type, in written order; kNoRef if there is none.
  Type take_type();
  /// The next modifier that begins so; empty if there is none.
  std::string_view take_prefix(std::string_view prefix);
  /// Modifiers that only inform caches: .L1::..., .L2::..., .nc. Taken and ignored.
  void take_cache_hints();
  /// .relaxed, .acquire, .release, .acq_rel, .volatile, .weak, .mmio and the scopes.
  struct Semantics {
    bool acquire = false, release = false, strong = false, is_volatile = false;
    int scope = 0;  ///< 0 none, 1 cta, 2 cluster, 3 gpu, 4 sys
  };
  Semantics take_semantics();
  Space take_space(Space otherwise);
  /// All modifiers are taken, else refuses the instruction.
  bool done();

  // Failure: both return false.
  bool unsupported(std::string message);
  bool invalid(std::string message);
  const Error& error() const { return error_; }
  bool failed() const { return failed_; }

  // Operands.
  std::size_t count() const { return in.operands.size(); }
  bool expect(std::size_t least, std::size_t most);
  bool is(std::size_t i, Operand::Kind kind) const {
    return i < count() && in.operands[i].kind == kind;
  }
  /// A source of `bits` (8..128, or 1 for a predicate). Registers that are wider are narrowed.
  Ref source(const Operand& operand, int bits, Type type = Type::kNone);
  Ref source(std::size_t i, int bits, Type type = Type::kNone);
  /// A destination of `bits`; kNoRef for '_'.
  Ref destination(const Operand& operand, int bits, bool allow_wider = false);
  Ref destination(std::size_t i, int bits, bool allow_wider = false);
  int width(const Operand& operand) const;  ///< of a register; 0 for others
  /// An immediate integer.
  bool immediate(std::size_t i, u64* value);
  /// An address in brackets; where it names a variable, its space takes the place of a generic
  /// one. `base` is for Op::s[0].
  bool address(const Operand& operand, Space space, Address* address, Ref* base);
  /// The address as one value in a register of 64 bits (or 32 where the base is).
  Ref address_value(const Operand& operand, bool* wide);
  Ref constant(u64 value, int bits);
  u32 list(const std::vector<Ref>& refs);

  // Emission.
  template <auto f>
  Op& emit(const ArgumentsOf<f>& arguments = {}) {
    Op& op = append();
    op.bind<f>(arguments);
    return op;
  }
  /// A function on lanes; f: an executor that does more than execute_lane.
  template <auto f = execute_lane>
  Op& alu(LaneFn lane, Ref d, int d_bits, std::initializer_list<Ref> sources,
          LaneControl control = {}) {
    Op& op = append_lane(lane, d, d_bits, sources);
    op.bind<f>({lane, control.imm, control.fp_mode, static_cast<u8>(sources.size())});
    return op;
  }

 private:
  Op& append();
  Op& append_lane(LaneFn lane, Ref d, int d_bits, std::initializer_list<Ref> sources);
  std::vector<bool> taken_;
  u32 site_;
  bool first_ = true;
  bool failed_ = false;
  Error error_;
};

class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::shared_ptr<const Module> source) : module(std::move(source)) {}
  /// Decodes an entry and everything that it can call.
  Result<std::shared_ptr<Program>> build(const Function& entry);

  std::shared_ptr<const Module> module;
  std::shared_ptr<Program> program;
  /// Index in Program::functions of a called function; -1 where there is none of that name.
  int function_index(std::string_view name);
  void want(std::string_view name);
  void want_if_called(std::string_view symbol);
  /// Whether the program begins at a kernel (else at a function that is only checked).
  bool root_is_kernel() const { return root_is_kernel_; }
  Result<void> place_variables();
  const VariablePlace* find_variable(std::string_view name) const;
  VariablePlace place_shared(const Variable& variable);
  VariablePlace place_module_data(const Variable& variable);
  u32 constant_row(u64 low, u64 high, int rows);

 private:
  std::vector<std::string_view> wanted_;  ///< functions, in the order of their indices
  std::unordered_map<std::string_view, int> wanted_indices_;
  bool root_is_kernel_ = true;
  std::unordered_map<std::string_view, VariablePlace> variables_;
  std::unordered_map<std::string, u32> constant_rows_;
  u32 shared_end_ = kSharedBegin;
  friend class FunctionDecoder;
};

}  // namespace attnjit::emulator

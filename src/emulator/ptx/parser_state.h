// SPDX-License-Identifier: Apache-2.0
// The recursive-descent parser's state, shared by its module level (parser.cpp), its variables
// (variables.cpp) and its function bodies (body.cpp).
//
// Thread rules: confined to one parse.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "emulator/ptx/ast.h"
#include "emulator/ptx/cursor.h"

namespace attnjit::emulator {

/// `.reg .b32 %r<count>`: registers are made when they are first used, so that a count costs
/// nothing.
struct RegisterRange {
  std::string_view prefix;
  std::uint64_t count = 0;
  Type type = Type::kNone;
};

struct RegisterScope {
  std::unordered_map<std::string_view, RegisterId> names;
  std::vector<RegisterRange> ranges;
};

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), cursor_(*module.text) {}

  /// All return false after a failure, which error() then holds.
  bool parse();
  const Error& error() const { return cursor_.error(); }

 private:
  // parser.cpp: the module level.
  bool parse_directive(std::string_view name);
  bool parse_file();
  bool parse_linked();
  bool parse_function(bool is_entry, bool is_extern);
  void add_function(Function function);
  bool parse_performance_directives(Function& function);
  bool parse_parameters(std::vector<Variable>& into, std::vector<RegisterId>* registers,
                        Function& function);
  bool parse_threads(std::uint32_t (&into)[3]);

  // variables.cpp
  /// After the space's directive: attributes, type, name, extent, initialiser, further names; to
  /// the semicolon.
  bool parse_variables(Space space, bool is_extern, std::uint32_t scope,
                       std::vector<Variable>& into);
  bool parse_type_and_alignment(Variable& variable);
  bool parse_extent(Variable& variable);
  bool parse_initialiser(Variable& variable);
  bool parse_initial_values(Variable& variable, std::size_t& at, int depth);
  bool charge(std::uint64_t bytes);

  // body.cpp
  bool parse_body(Function& function);
  bool parse_statement();
  bool parse_body_directive(std::string_view name);
  bool parse_registers();
  bool parse_location();
  bool parse_targets(std::string_view label);
  bool parse_prototype(std::string_view label);
  bool parse_instruction();
  bool parse_guard(Instruction& instruction);
  bool parse_call_operands(Instruction& instruction);
  bool parse_operand(Operand& operand, int depth);
  bool parse_address(Operand& operand, int depth);
  bool parse_vector(Operand& operand, char close, int depth);
  bool parse_name(Operand& operand, std::string_view name);
  std::optional<RegisterId> find_register(std::string_view name);
  bool declare_register(std::string_view name, Type type, RegisterId& id);

  Module& module_;
  Cursor cursor_;
  std::uint64_t data_bytes_ = 0;
  std::unordered_set<std::string_view> declared_in_module_;  ///< variables, but extern ones

  // The function being parsed.
  Function* function_ = nullptr;
  std::vector<RegisterScope> register_scopes_;  ///< by scope
  std::vector<std::uint32_t> open_scopes_;
  std::unordered_map<std::uint32_t, std::unordered_set<std::string_view>> declared_;  ///< by scope
  SourceLocation location_;
};

/// The special register of a name such as "%tid" with the component ".x"; nullopt if there is none.
std::optional<SpecialRegister> special_register(std::string_view name, char component);

}  // namespace attnjit::emulator

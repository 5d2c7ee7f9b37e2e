// SPDX-License-Identifier: Apache-2.0
// Function bodies of the PTX parser: scopes, registers, labels, instructions and their operands.
#include <fmt/format.h>

#include <array>

#include "emulator/ptx/parser_state.h"

namespace attnjit::emulator {
namespace {

constexpr std::size_t kMaxRegisters = 1 << 20;
constexpr std::size_t kMaxScopeDepth = 1000;
constexpr std::size_t kMaxOperands = 1024;
constexpr int kMaxOperandDepth = 8;

struct SpecialName {
  std::string_view name;
  int bits;
};

// In the order of enum SpecialRegister.
constexpr std::array kSpecials = {
    SpecialName{"%tid.x", 32},
    SpecialName{"%tid.y", 32},
    SpecialName{"%tid.z", 32},
    SpecialName{"%ntid.x", 32},
    SpecialName{"%ntid.y", 32},
    SpecialName{"%ntid.z", 32},
    SpecialName{"%ctaid.x", 32},
    SpecialName{"%ctaid.y", 32},
    SpecialName{"%ctaid.z", 32},
    SpecialName{"%nctaid.x", 32},
    SpecialName{"%nctaid.y", 32},
    SpecialName{"%nctaid.z", 32},
    SpecialName{"%laneid", 32},
    SpecialName{"%warpid", 32},
    SpecialName{"%nwarpid", 32},
    SpecialName{"%smid", 32},
    SpecialName{"%nsmid", 32},
    SpecialName{"%gridid", 64},
    SpecialName{"%clusterid.x", 32},
    SpecialName{"%clusterid.y", 32},
    SpecialName{"%clusterid.z", 32},
    SpecialName{"%nclusterid.x", 32},
    SpecialName{"%nclusterid.y", 32},
    SpecialName{"%nclusterid.z", 32},
    SpecialName{"%cluster_ctaid.x", 32},
    SpecialName{"%cluster_ctaid.y", 32},
    SpecialName{"%cluster_ctaid.z", 32},
    SpecialName{"%cluster_nctaid.x", 32},
    SpecialName{"%cluster_nctaid.y", 32},
    SpecialName{"%cluster_nctaid.z", 32},
    SpecialName{"%cluster_ctarank", 32},
    SpecialName{"%cluster_nctarank", 32},
    SpecialName{"%is_explicit_cluster", 1},
    SpecialName{"%lanemask_eq", 32},
    SpecialName{"%lanemask_le", 32},
    SpecialName{"%lanemask_lt", 32},
    SpecialName{"%lanemask_ge", 32},
    SpecialName{"%lanemask_gt", 32},
    SpecialName{"%total_smem_size", 32},
    SpecialName{"%aggr_smem_size", 32},
    SpecialName{"%dynamic_smem_size", 32},
    SpecialName{"%reserved_smem_offset_begin", 32},
    SpecialName{"%reserved_smem_offset_end", 32},
    SpecialName{"%reserved_smem_offset_cap", 32},
    SpecialName{"%reserved_smem_offset_0", 32},
    SpecialName{"%reserved_smem_offset_1", 32},
    SpecialName{"%clock", 32},
    SpecialName{"%clock_hi", 32},
    SpecialName{"%clock64", 64},
    SpecialName{"%globaltimer", 64},
    SpecialName{"%globaltimer_lo", 32},
    SpecialName{"%globaltimer_hi", 32},
    SpecialName{"%current_graph_exec", 64},
};
static_assert(kSpecials.size() == static_cast<std::size_t>(SpecialRegister::kCount),
              "one line a special register, in the order of the enum");

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<SpecialRegister> special_register(std::string_view name, char component) {
  std::string full(name);
  if (component != 0) {
    full += '.';
    full += component;
  }
  for (std::size_t i = 0; i < kSpecials.size(); ++i) {
    if (kSpecials[i].name == full) return static_cast<SpecialRegister>(i);
  }
  return std::nullopt;
}

std::string_view to_string(SpecialRegister special) {
  return kSpecials[static_cast<std::size_t>(special)].name;
}
int bits_of(SpecialRegister special) { return kSpecials[static_cast<std::size_t>(special)].bits; }

bool Parser::parse_body(Function& function) {
  function_ = &function;
  while (cursor_.more()) {
    if (cursor_.accept('{')) {
      if (open_scopes_.size() >= kMaxScopeDepth)
        return cursor_.invalid("blocks are nested too deep");
      Scope scope;
      scope.parent = open_scopes_.back();
      open_scopes_.push_back(static_cast<std::uint32_t>(function.scopes.size()));
      function.scopes.push_back(scope);
      register_scopes_.emplace_back();
    } else if (cursor_.accept('}')) {
      register_scopes_[open_scopes_.back()] = {};
      open_scopes_.pop_back();
      if (open_scopes_.empty()) {
        function_ = nullptr;
        return true;
      }
    } else if (!cursor_.accept(';')) {
      if (!parse_statement()) return false;
    }
  }
  return cursor_.invalid(fmt::format("the text ends inside function {}", function.name));
}

bool Parser::parse_statement() {
  const char c = cursor_.peek();
  if (c == '@') {
    if (cursor_.accept("@@DWARF")) {
      cursor_.skip_line();
      return true;
    }
    return parse_instruction();
  }
  if (c == '.') {
    const std::string_view name = cursor_.directive();
    if (name.empty()) return cursor_.invalid("'.' where a statement is expected");
    return parse_body_directive(name);
  }
  const std::size_t position = cursor_.position();
  const int line = cursor_.line();
  const std::string_view name = cursor_.identifier();
  if (!name.empty() && cursor_.accept_colon()) {
    const std::size_t after = cursor_.position();
    const int after_line = cursor_.line();
    if (cursor_.peek() == '.') {
      const std::string_view directive = cursor_.directive();
      if (directive == "branchtargets" || directive == "calltargets") return parse_targets(name);
      if (directive == "callprototype") return parse_prototype(name);
      cursor_.restore(after, after_line);
    }
    Label label;
    label.name = name;
    label.scope = open_scopes_.back();
    label.position = static_cast<std::uint32_t>(function_->instructions.size());
    function_->labels.push_back(label);
    return true;
  }
  cursor_.restore(position, line);
  return parse_instruction();
}

bool Parser::parse_body_directive(std::string_view name) {
  const std::uint32_t scope = open_scopes_.back();
  if (name == "reg") return parse_registers();
  if (name == "loc") return parse_location();
  if (name == "local") return parse_variables(Space::kLocal, false, scope, function_->variables);
  if (name == "shared") return parse_variables(Space::kShared, false, scope, function_->variables);
  if (name == "param") return parse_variables(Space::kParam, false, scope, function_->variables);
  if (name == "global") return parse_variables(Space::kGlobal, false, scope, function_->variables);
  if (name == "const") return parse_variables(Space::kConst, false, scope, function_->variables);
  if (name == "extern") {
    if (cursor_.directive() == "shared")
      return parse_variables(Space::kShared, true, scope, function_->variables);
    return cursor_.invalid(".extern inside a function is for .shared only");
  }
  if (name == "file") return parse_file();
  if (name == "pragma") {
    do {
      if (!cursor_.string()) return cursor_.invalid(".pragma needs a string");
    } while (cursor_.accept(','));
    return cursor_.expect(';');
  }
  if (name == "section") {
    if (cursor_.directive().empty()) return cursor_.invalid(".section needs a name");
    return cursor_.expect('{') && cursor_.skip_block();
  }
  return cursor_.fail(ErrorCode::kUnsupported, fmt::format("unknown directive .{}", name));
}

bool Parser::parse_location() {
  const auto file = cursor_.number();
  const auto line = file ? cursor_.number() : std::nullopt;
  const auto column = line ? cursor_.number() : std::nullopt;
  if (!column) return cursor_.invalid(".loc needs file, line and column");
  location_.file = static_cast<std::uint32_t>(file->bits);
  location_.line = static_cast<std::uint32_t>(line->bits);
  while (cursor_.accept(',')) {
    const std::string_view what = cursor_.identifier();
    if (what == "function_name") {
      if (cursor_.identifier().empty()) return cursor_.invalid("function_name needs a label");
      if (cursor_.accept('+') && !cursor_.number())
        return cursor_.invalid("function_name's offset is a number");
    } else if (what == "inlined_at") {
      if (!cursor_.number() || !cursor_.number() || !cursor_.number()) {
        return cursor_.invalid("inlined_at needs file, line and column");
      }
    } else {
      return cursor_.invalid("a malformed .loc");
    }
  }
  return true;
}

bool Parser::declare_register(std::string_view name, Type type, RegisterId& id) {
  RegisterScope& scope = register_scopes_[open_scopes_.back()];
  if (function_->registers.size() >= kMaxRegisters) {
    return cursor_.fail(ErrorCode::kUnsupported, "a function uses more than 2^20 registers");
  }
  id = static_cast<RegisterId>(function_->registers.size());
  if (!scope.names.emplace(name, id).second)
    return cursor_.invalid(fmt::format("register {} is declared twice", name));
  function_->registers.push_back({std::string(name), type});
  return true;
}

bool Parser::parse_registers() {
  std::string_view type_name = cursor_.directive();
  if (type_name == "v2" || type_name == "v4") {
    return cursor_.fail(ErrorCode::kUnsupported, "vector registers are not modelled");
  }
  const Type type = type_from_string(type_name);
  if (type == Type::kNone)
    return cursor_.fail(ErrorCode::kUnsupported,
                        fmt::format("unknown register type .{}", type_name));
  if (bits_of(type) < 8 && type != Type::kPred)
    return cursor_.invalid(fmt::format("there are no registers of type .{}", type_name));
  do {
    const std::string_view name = cursor_.identifier();
    if (name.empty()) return cursor_.invalid("a register needs a name");
    if (cursor_.accept('<')) {
      const auto count = cursor_.number();
      if (!count || !cursor_.expect('>')) return cursor_.invalid("a register count is expected");
      register_scopes_[open_scopes_.back()].ranges.push_back({name, count->bits, type});
      if (register_scopes_[open_scopes_.back()].ranges.size() > 256) {
        return cursor_.fail(ErrorCode::kUnsupported, "more than 256 register ranges in one scope");
      }
    } else {
      RegisterId id = kNoRegister;
      if (!declare_register(name, type, id)) return false;
    }
  } while (cursor_.accept(','));
  return cursor_.expect(';');
}

std::optional<RegisterId> Parser::find_register(std::string_view name) {
  for (std::size_t i = open_scopes_.size(); i-- > 0;) {
    RegisterScope& scope = register_scopes_[open_scopes_[i]];
    if (const auto found = scope.names.find(name); found != scope.names.end()) return found->second;
    for (const RegisterRange& range : scope.ranges) {
      if (name.size() <= range.prefix.size() || name.substr(0, range.prefix.size()) != range.prefix)
        continue;
      const std::string_view digits = name.substr(range.prefix.size());
      if (digits.size() > 10 || (digits.size() > 1 && digits[0] == '0')) continue;
      std::uint64_t index = 0;
      bool numeric = true;
      for (const char c : digits) {
        if (!is_digit(c)) numeric = false;
        index = index * 10 + static_cast<std::uint64_t>(c - '0');
      }
      if (!numeric || index >= range.count) continue;
      if (function_->registers.size() >= kMaxRegisters) {
        cursor_.fail(ErrorCode::kUnsupported, "a function uses more than 2^20 registers");
        return std::nullopt;
      }
      const auto id = static_cast<RegisterId>(function_->registers.size());
      function_->registers.push_back({std::string(name), range.type});
      scope.names.emplace(name, id);
      return id;
    }
  }
  return std::nullopt;
}

bool Parser::parse_targets(std::string_view label) {
  TargetTable table;
  table.name = label;
  table.scope = open_scopes_.back();
  table.line = cursor_.line();
  do {
    const std::string_view target = cursor_.identifier();
    if (target.empty()) return cursor_.invalid("a target's name is expected");
    table.targets.push_back(target);
    if (table.targets.size() > 65536) return cursor_.invalid("more than 65536 targets");
  } while (cursor_.accept(','));
  function_->tables.push_back(std::move(table));
  return cursor_.expect(';');
}

bool Parser::parse_prototype(std::string_view label) {
  Prototype prototype;
  prototype.name = label;
  prototype.scope = open_scopes_.back();
  Function* const function = function_;
  std::vector<RegisterId> ignored;
  if (cursor_.peek() == '(' && !parse_parameters(prototype.results, &ignored, *function))
    return false;
  if (cursor_.identifier().empty()) return cursor_.invalid("a .callprototype needs '_'");
  if (cursor_.peek() == '(' && !parse_parameters(prototype.parameters, &ignored, *function))
    return false;
  while (cursor_.peek() == '.') {
    const std::string_view name = cursor_.directive();
    if (name == "abi_preserve" && cursor_.number()) continue;
    if (name != "noreturn")
      return cursor_.fail(ErrorCode::kUnsupported, fmt::format("unknown directive .{}", name));
  }
  function_->prototypes.push_back(std::move(prototype));
  return cursor_.expect(';');
}

bool Parser::parse_guard(Instruction& instruction) {
  if (!cursor_.accept('@')) return true;
  instruction.guard_negated = cursor_.accept('!');
  const std::string_view name = cursor_.identifier();
  const auto id = name.empty() ? std::nullopt : find_register(name);
  if (!id) return cursor_.invalid(fmt::format("'{}' is not a declared predicate", name));
  if (function_->registers[*id].type != Type::kPred)
    return cursor_.invalid(fmt::format("{} is no predicate", name));
  instruction.guard = *id;
  return true;
}

bool Parser::parse_instruction() {
  Instruction instruction;
  instruction.scope = open_scopes_.back();
  instruction.source = location_;
  if (!parse_guard(instruction)) return false;
  cursor_.peek();
  instruction.line = cursor_.line();
  instruction.column = cursor_.column();
  instruction.text = cursor_.opcode();
  if (instruction.text.empty()) {
    const char c = cursor_.peek();
    return cursor_.invalid(c >= 32 && c < 127
                               ? fmt::format("'{}' where an instruction is expected", c)
                               : std::string("an instruction is expected"));
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= instruction.text.size(); ++at) {
    if (at < instruction.text.size() && instruction.text[at] != '.') continue;
    const std::string_view piece = instruction.text.substr(begin, at - begin);
    if (begin == 0) {
      instruction.root = piece;
    } else {
      instruction.modifiers.push_back(piece);
    }
    begin = at + 1;
  }
  if (instruction.modifiers.size() > 64) return cursor_.invalid("more than 64 modifiers");
  if (instruction.root == "call") {
    if (!parse_call_operands(instruction)) return false;
  } else if (!cursor_.accept(';')) {
    do {
      Operand operand;
      if (!parse_operand(operand, 0)) return false;
      instruction.operands.push_back(std::move(operand));
      if (instruction.operands.size() > kMaxOperands) return cursor_.invalid("too many operands");
    } while (cursor_.accept(','));
    if (!cursor_.expect(';')) return false;
  }
  function_->instructions.push_back(std::move(instruction));
  return true;
}

bool Parser::parse_call_operands(Instruction& instruction) {
  // call (results), function, (arguments), prototype: always made to four operands.
  Operand results;
  results.kind = Operand::Kind::kList;
  Operand arguments = results;
  Operand prototype;
  if (cursor_.accept('(')) {
    if (!parse_vector(results, ')', 1) || !cursor_.expect(',')) return false;
    results.kind = Operand::Kind::kList;
  }
  Operand target;
  if (!parse_operand(target, 1)) return false;
  if (target.kind != Operand::Kind::kSymbol && target.kind != Operand::Kind::kRegister) {
    return cursor_.invalid("call needs a function or a register");
  }
  if (cursor_.accept(',')) {
    bool more = true;
    if (cursor_.accept('(')) {
      if (!parse_vector(arguments, ')', 1)) return false;
      arguments.kind = Operand::Kind::kList;
      more = cursor_.accept(',');
    }
    if (more && !parse_operand(prototype, 1)) return false;
  }
  for (Operand* operand : {&results, &target, &arguments, &prototype})
    instruction.operands.push_back(std::move(*operand));
  return cursor_.expect(';');
}

bool Parser::parse_vector(Operand& operand, char close, int depth) {
  operand.kind = Operand::Kind::kVector;
  if (cursor_.accept(close)) return true;
  do {
    Operand part;
    if (!parse_operand(part, depth + 1)) return false;
    operand.parts.push_back(std::move(part));
    if (operand.parts.size() > kMaxOperands)
      return cursor_.invalid("a vector of more than 1024 operands");
  } while (cursor_.accept(','));
  return cursor_.expect(close);
}

bool Parser::parse_name(Operand& operand, std::string_view name) {
  if (name == "_") {
    operand.kind = Operand::Kind::kSink;
    return true;
  }
  if (const auto id = find_register(name)) {
    operand.kind = Operand::Kind::kRegister;
    operand.reg = *id;
    if (cursor_.peek() == '.')
      return cursor_.fail(ErrorCode::kUnsupported, "vector registers are not modelled");
    return true;
  }
  if (cursor_.failed()) return false;
  if (name[0] == '%') {
    char component = 0;
    if (cursor_.peek() == '.') {
      const std::string_view part = cursor_.directive();
      if (part.size() != 1)
        return cursor_.invalid(fmt::format("{}.{} is not a special register", name, part));
      component = part[0];
    }
    const auto special = special_register(name, component);
    if (!special) {
      if (component != 0 || name.substr(0, 7) == "%envreg" || name.substr(0, 3) == "%pm" ||
          name == "%nwarpid" || special_register(name, 'x')) {
        return cursor_.fail(ErrorCode::kUnsupported,
                            fmt::format("special register {} is not modelled", name));
      }
      return cursor_.invalid(fmt::format("register {} is not declared", name));
    }
    operand.kind = Operand::Kind::kSpecial;
    operand.special = *special;
    return true;
  }
  if (name == "WARP_SZ") {
    operand.kind = Operand::Kind::kInteger;
    operand.value = 32;
    return true;
  }
  operand.kind = Operand::Kind::kSymbol;
  operand.symbol = name;
  operand.has_symbol = true;
  return true;
}

bool Parser::parse_address(Operand& operand, int depth) {
  const std::string_view name = cursor_.identifier();
  if (!name.empty()) {
    if (!parse_name(operand, name)) return false;
    if (operand.kind == Operand::Kind::kSink || operand.kind == Operand::Kind::kSpecial) {
      return cursor_.invalid("an address is a register, a variable or a number");
    }
  }
  operand.kind = Operand::Kind::kAddress;
  if (name.empty()) {
    const auto n = cursor_.constant();
    if (!n) return false;
    operand.value = n->bits;
  } else if (cursor_.accept('+')) {
    const auto n = cursor_.constant();
    if (!n) return false;
    operand.value += n->bits;
  } else if (cursor_.peek() == '-') {
    const auto n = cursor_.constant();
    if (!n) return false;
    operand.value += n->bits;
  }
  if (cursor_.accept(',')) {
    Operand coordinates;
    if (!parse_operand(coordinates, depth + 1)) return false;
    operand.has_coordinates = true;
    if (coordinates.kind == Operand::Kind::kVector) {
      operand.parts = std::move(coordinates.parts);
    } else {
      operand.parts.push_back(std::move(coordinates));
    }
  }
  return cursor_.expect(']');
}

bool Parser::parse_operand(Operand& operand, int depth) {
  if (depth > kMaxOperandDepth) return cursor_.invalid("operands are nested too deep");
  const char c = cursor_.peek();
  if (c == '{') {
    cursor_.accept('{');
    return parse_vector(operand, '}', depth);
  }
  if (c == '[') {
    cursor_.accept('[');
    return parse_address(operand, depth);
  }
  if (c == '!') {
    cursor_.accept('!');
    const std::string_view name = cursor_.identifier();
    if (name.empty() || !parse_name(operand, name)) return cursor_.invalid("'!' needs a predicate");
    if (operand.kind != Operand::Kind::kRegister) return cursor_.invalid("'!' needs a predicate");
    operand.negated = true;
    return true;
  }
  const std::string_view name = cursor_.identifier();
  if (!name.empty()) {
    if (!parse_name(operand, name)) return false;
    if (operand.kind == Operand::Kind::kSymbol &&
        (cursor_.peek() == '+' || cursor_.peek() == '-')) {
      cursor_.accept('+');
      const auto n = cursor_.constant();
      if (!n) return false;
      operand.value = n->bits;
    }
    if (cursor_.accept('|')) {
      Operand pair;
      pair.kind = Operand::Kind::kPair;
      Operand second;
      if (!parse_operand(second, depth + 1)) return false;
      pair.parts.push_back(std::move(operand));
      pair.parts.push_back(std::move(second));
      operand = std::move(pair);
    }
    return true;
  }
  const auto n = cursor_.constant();
  if (!n) return false;
  operand.kind = n->kind == Number::Kind::kInteger ? Operand::Kind::kInteger
                 : n->kind == Number::Kind::kFloat ? Operand::Kind::kFloat
                                                   : Operand::Kind::kDouble;
  operand.value = n->bits;
  return true;
}

}  // namespace attnjit::emulator

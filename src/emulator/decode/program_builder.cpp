// SPDX-License-Identifier: Apache-2.0
// Builds a Program: finds what an entry reaches, places variables, decodes functions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_forms.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/memory/shared_address.h"

namespace attnjit::emulator {
namespace {

Error error_at(ErrorCode code, int line, std::string message) {
  Error e = make_error(code, std::move(message), "ptx");
  e.line = line;
  return e;
}

u64 align_up(u64 v, u64 a) { return (v + a - 1) / a * a; }

void visit_symbols(const Operand& operand, const auto& visit) {
  if (operand.has_symbol) visit(operand.symbol);
  for (const Operand& part : operand.parts) visit_symbols(part, visit);
}

}  // namespace

u32 ProgramBuilder::constant_row(u64 low, u64 high, int rows) {
  std::string key(17, '\0');
  std::memcpy(key.data(), &low, 8);
  std::memcpy(key.data() + 8, &high, 8);
  key[16] = static_cast<char>(rows);
  const auto [it, fresh] = constant_rows_.emplace(key, static_cast<u32>(program->constants.size()));
  if (!fresh) return it->second;
  if (rows == 1) {
    Row row;
    for (u32& lane : row.lane) lane = static_cast<u32>(low);
    program->constants.push_back(row);
    return it->second;
  }
  for (int half = 0; half < rows / 2; ++half) {
    u64 lanes[32];
    for (u64& lane : lanes) lane = half == 0 ? low : high;
    Row pair[2];
    std::memcpy(pair, lanes, sizeof(lanes));
    program->constants.push_back(pair[0]);
    program->constants.push_back(pair[1]);
  }
  return it->second;
}

int ProgramBuilder::function_index(std::string_view name) {
  const auto found = wanted_indices_.find(name);
  return found == wanted_indices_.end() ? -1 : found->second;
}

void ProgramBuilder::want(std::string_view name) {
  if (wanted_indices_.emplace(name, static_cast<int>(wanted_.size())).second) {
    wanted_.push_back(name);
  }
}

void ProgramBuilder::want_if_called(std::string_view symbol) {
  const Function* called = module->find_function(symbol);
  if (called != nullptr && !called->is_entry && called->has_body) want(symbol);
}

VariablePlace ProgramBuilder::place_shared(const Variable& variable) {
  shared_end_ = static_cast<u32>(align_up(shared_end_, variable.align));
  const VariablePlace place{Space::kShared, shared_end_};
  shared_end_ =
      static_cast<u32>(std::min<u64>(shared_end_ + variable.bytes, SharedAddress::kWindowBytes));
  return place;
}

VariablePlace ProgramBuilder::place_module_data(const Variable& variable) {
  std::vector<u8>& image =
      variable.space == Space::kConst ? program->const_image : program->global_image;
  const u64 offset = align_up(image.size(), std::max<u64>(variable.align, 16));
  image.resize(offset + variable.bytes);
  if (!variable.initial.empty())
    std::memcpy(image.data() + offset, variable.initial.data(), variable.initial.size());
  return {variable.space, variable.space == Space::kConst ? offset : kModuleGlobals + offset};
}

const VariablePlace* ProgramBuilder::find_variable(std::string_view name) const {
  const auto it = variables_.find(name);
  return it == variables_.end() ? nullptr : &it->second;
}

Result<void> ProgramBuilder::place_variables() {
  // Only what the reachable functions name, so that a module of many kernels fits.
  std::unordered_map<std::string_view, bool> named;
  for (const std::string_view name : wanted_) {
    for (const Instruction& i : module->find_function(name)->instructions) {
      for (const Operand& operand : i.operands)
        visit_symbols(operand, [&](std::string_view s) { named[s] = true; });
    }
  }
  std::unordered_set<std::string_view> defined;
  for (const Variable& v : module->variables) {
    for (const InitialiserSymbol& s : v.symbols) named[s.symbol] = true;
    if (!v.is_extern) defined.insert(v.name);
  }
  for (const Variable& v : module->variables) {
    if (v.is_extern && !v.unsized && v.space != Space::kShared) {
      if (defined.count(v.name) != 0) continue;
      if (named.count(v.name) != 0)
        return error_at(ErrorCode::kUnsupported, v.line,
                        fmt::format("extern variable {} is defined in another module", v.name));
      continue;
    }
    if (variables_.count(v.name) != 0) continue;
    if (v.space == Space::kShared) {
      if (named.count(v.name) == 0) continue;
      if (v.unsized) {
        program->uses_dynamic_smem = true;
        program->dynamic_smem_align =
            std::max(program->dynamic_smem_align, static_cast<u32>(v.align));
        continue;
      }
      variables_[v.name] = place_shared(v);
    } else {
      if (v.unsized) continue;
      variables_[v.name] = place_module_data(v);
    }
  }
  // Initialisers with addresses.
  for (const Variable& v : module->variables) {
    const auto it = variables_.find(v.name);
    if (it == variables_.end() || v.symbols.empty()) continue;
    std::vector<u8>& image =
        v.space == Space::kConst ? program->const_image : program->global_image;
    const u64 base =
        v.space == Space::kConst ? it->second.offset : it->second.offset - kModuleGlobals;
    for (const InitialiserSymbol& s : v.symbols) {
      u64 value = 0;
      if (const VariablePlace* target = find_variable(s.symbol)) {
        value = target->offset + s.addend;
        if (s.generic && target->space == Space::kConst) value |= kConstWindow;
      } else if (const int f = function_index(s.symbol); f >= 0) {
        value = static_cast<u64>(f) + 1;
      } else if (module->find_function(s.symbol) == nullptr) {
        return error_at(ErrorCode::kInvalid, v.line,
                        fmt::format("{} in an initialiser is not declared", s.symbol));
      }
      std::memcpy(image.data() + base + s.offset, &value,
                  static_cast<std::size_t>(std::min(s.bytes, 8)));
    }
  }
  return {};
}

Result<std::shared_ptr<Program>> ProgramBuilder::build(const Function& entry) {
  program = std::make_shared<Program>();
  program->module = module;
  want(entry.name);
  root_is_kernel_ = entry.is_entry;
  // Called functions, and any whose address is taken.
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const Function* f = module->find_function(wanted_[i]);
    for (const Instruction& instruction : f->instructions) {
      for (const Operand& operand : instruction.operands) {
        visit_symbols(operand, [&](std::string_view symbol) { want_if_called(symbol); });
      }
    }
    for (const TargetTable& table : f->tables) {
      for (const std::string_view target : table.targets) want_if_called(target);
    }
  }
  // Functions whose address is in an initialiser can be called through it.
  for (const Variable& v : module->variables) {
    for (const InitialiserSymbol& s : v.symbols) want_if_called(s.symbol);
  }
  if (auto placed = place_variables(); !placed) return placed.error();
  program->functions.resize(wanted_.size());

  u64 offset = 0;
  for (const Variable& p : entry.parameters) {
    if (!entry.is_entry) break;  // a function judged on its own
    offset = align_up(offset, p.align);
    program->functions[0].parameters.push_back({p.name, offset, p.bytes, p.align});
    offset += p.bytes;
  }
  program->parameter_bytes = offset;
  if (offset > 32764)
    return error_at(ErrorCode::kInvalid, entry.line, "the parameters take more than 32764 bytes");

  // The dynamic memory follows all static variables, those of functions included; the functions'
  // decoders place theirs, in this order, from where the module's end.
  const u32 module_end = shared_end_;
  for (const std::string_view name : wanted_) {
    for (const Variable& v : module->find_function(name)->variables) {
      if (v.space != Space::kShared) continue;
      if (v.unsized) {
        program->uses_dynamic_smem = true;
        program->dynamic_smem_align =
            std::max(program->dynamic_smem_align, static_cast<u32>(v.align));
      } else {
        place_shared(v);
      }
    }
  }
  program->static_smem_end = shared_end_;
  shared_end_ = module_end;
  const u64 dynamic = align_up(program->static_smem_end, program->dynamic_smem_align);
  for (const Variable& v : module->variables) {
    if (v.space == Space::kShared && v.unsized) variables_[v.name] = {Space::kShared, dynamic};
  }

  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const Function& f = *module->find_function(wanted_[i]);
    FunctionCode& code = program->functions[i];
    code.name = f.name;
    FunctionDecoder decoder(*this, f, code);
    if (auto decoded = decoder.decode(); !decoded) return decoded.error();
  }
  u64 stack = 0;
  bool calls = program->functions.size() > 1;
  for (const FunctionCode& code : program->functions) stack += code.local_bytes;
  if (calls) stack += 64 * 1024;  // recursion
  if (stack > (u64{512 + 64} << 10)) {
    return error_at(ErrorCode::kUnsupported, entry.line,
                    "a thread needs more than 512 KiB of local memory");
  }
  program->local_stack = static_cast<u32>(stack);
  for (int i = 0; i < 3; ++i) {
    program->required_threads[i] = entry.required_threads[i];
    program->max_threads[i] = entry.max_threads[i];
    program->required_cluster[i] = entry.required_cluster[i];
  }
  program->maxnreg = entry.maxnreg;
  return program;
}

FunctionDecoder::FunctionDecoder(ProgramBuilder& owner, const Function& f, FunctionCode& c)
    : builder(owner), function(f), code(c) {
  refs_.assign(function.registers.size(), kNoRef);
  specials_.assign(static_cast<std::size_t>(SpecialRegister::kCount), kNoRef);
}

Ref FunctionDecoder::scratch(u32 rows) {
  const Ref ref = next_row_;
  next_row_ += rows;
  return ref;
}

Ref FunctionDecoder::scratch_predicate() { return kPredicate | next_predicate_++; }

Ref FunctionDecoder::register_ref(RegisterId id) {
  Ref& ref = refs_[id];
  if (ref == kNoRef) {
    const int bits = bits_of(function.registers[id].type);
    ref = bits == 1 ? scratch_predicate() : scratch(bits <= 32 ? 1 : bits == 64 ? 2 : 4);
  }
  return ref;
}

Ref FunctionDecoder::special_ref(SpecialRegister special) {
  Ref& ref = specials_[static_cast<std::size_t>(special)];
  if (ref == kNoRef) {
    const int bits = bits_of(special);
    ref = bits == 1 ? scratch_predicate() : scratch(bits == 64 ? 2 : 1);
    code.specials.push_back({special, ref});
  }
  return ref;
}

bool FunctionDecoder::in_scope(u32 scope, u32 of) const {
  for (;;) {
    if (scope == of) return true;
    if (scope == 0) return false;
    scope = function.scopes[scope].parent;
  }
}

const VariablePlace* FunctionDecoder::find_variable(std::string_view name, u32 scope) {
  const auto it = variables_.find(name);
  if (it != variables_.end()) {
    // The innermost scope is the one declared last.
    for (std::size_t i = it->second.size(); i-- > 0;) {
      const std::size_t v = it->second[i];
      const u32 where = v < function.variables.size() ? function.variables[v].scope : 0;
      if (in_scope(scope, where)) return &places_[v];
    }
  }
  return builder.find_variable(name);
}

const Label* FunctionDecoder::find_label(std::string_view name, u32 scope) const {
  const auto it = labels_.find(name);
  if (it == labels_.end()) return nullptr;
  for (;;) {
    for (const std::size_t i : it->second) {
      if (function.labels[i].scope == scope) return &function.labels[i];
    }
    if (scope == 0) return nullptr;
    scope = function.scopes[scope].parent;
  }
}

u32 FunctionDecoder::local_place(const Variable& variable) {
  const auto offset =
      static_cast<u32>(align_up(code.local_bytes, std::max<u64>(variable.align, 1)));
  code.local_bytes = static_cast<u32>(std::min<u64>(offset + variable.bytes, u64{1} << 28));
  return offset;
}

Result<void> FunctionDecoder::decode() {
  place_variables();
  place_parameters();
  if (auto known = collect_labels(); !known) return known.error();
  if (auto modelled = check_registers(); !modelled) return modelled.error();
  begins_.reserve(function.instructions.size() + 1);
  for (const Instruction& instruction : function.instructions) {
    begins_.push_back(static_cast<u32>(code.ops.size()));
    if (auto decoded = decode(instruction); !decoded) return decoded.error();
    if (code.ops.size() > (std::size_t{1} << 26))
      return error_at(ErrorCode::kUnsupported, function.line, "the function is too large");
  }
  begins_.push_back(static_cast<u32>(code.ops.size()));
  patch_targets();
  // Falling off the end returns.
  Instruction end;
  end.root = "ret";
  end.text = "ret";
  end.line = function.line;
  if (auto decoded = decode(end); !decoded) return decoded.error();
  for (const std::size_t op : meet_)
    code.ops[op].flags = static_cast<u8>(code.ops[op].flags | kOpReconverges);
  code.rows = next_row_;
  code.predicates = next_predicate_;
  find_reconvergence(code, *builder.program);
  return {};
}

void FunctionDecoder::place_variables() {
  for (const Variable& v : function.variables) {
    VariablePlace place{v.space, 0};
    switch (v.space) {
      case Space::kShared:
        if (v.unsized) {
          place.offset =
              align_up(builder.program->static_smem_end, builder.program->dynamic_smem_align);
        } else {
          place = builder.place_shared(v);
        }
        break;
      case Space::kGlobal:
      case Space::kConst:
        place = builder.place_module_data(v);
        break;
      default:
        place = {Space::kLocal, local_place(v)};
    }
    add_variable(v.name, place);
  }
}

void FunctionDecoder::place_parameters() {
  if (function.is_entry) {
    for (const ParameterPlace& p : code.parameters) add_variable(p.name, {Space::kParam, p.offset});
    return;
  }
  const auto place = [&](const std::vector<Variable>& of, std::vector<ParameterPlace>& into) {
    for (const Variable& v : of) {
      const u64 offset = local_place(v);
      into.push_back({v.name, offset, v.bytes, v.align});
      add_variable(v.name, {Space::kLocal, offset});
    }
  };
  place(function.parameters, code.parameters);
  place(function.results, code.results);
}

void FunctionDecoder::add_variable(std::string_view name, const VariablePlace& place) {
  variables_[name].push_back(places_.size());
  places_.push_back(place);
}

Result<void> FunctionDecoder::collect_labels() {
  for (std::size_t i = 0; i < function.labels.size(); ++i) {
    const Label& label = function.labels[i];
    std::vector<std::size_t>& same = labels_[label.name];
    for (const std::size_t other : same) {
      if (function.labels[other].scope == label.scope) {
        return error_at(ErrorCode::kInvalid, function.line,
                        fmt::format("label {} is defined twice in {}", label.name, function.name));
      }
    }
    same.push_back(i);
  }
  return {};
}

Result<void> FunctionDecoder::check_registers() const {
  const auto any = [](const std::vector<RegisterId>& registers) {
    return std::any_of(registers.begin(), registers.end(),
                       [](RegisterId id) { return id != kNoRegister; });
  };
  for (const auto& [registers, what] : {std::pair(&function.parameter_registers, "parameters"),
                                        std::pair(&function.result_registers, "results")}) {
    if (any(*registers)) {
      return error_at(ErrorCode::kUnsupported, function.line,
                      fmt::format("{}: {} in registers are not modelled", function.name, what));
    }
  }
  return {};
}

Result<void> FunctionDecoder::decode(const Instruction& instruction) {
  const auto refused = [&](ErrorCode kind, const std::string& why) {
    return error_at(kind, instruction.line, fmt::format("{}: {}", instruction.text, why));
  };
  const InstructionTable& table = InstructionTable::instance();
  if (!table.has_root(instruction.root)) return refused(ErrorCode::kUnsupported, "unknown opcode");
  const InstructionInfo* info = table.find(instruction.root, instruction.modifiers);
  if (info == nullptr) {
    return refused(ErrorCode::kUnsupported, fmt::format("unknown form of {}", instruction.root));
  }
  if (sound_.insert(instruction.text).second) {
    const FormFault fault = form_fault(instruction);
    if (!fault.text.empty()) {
      return refused(fault.incomplete ? ErrorCode::kInvalid : ErrorCode::kUnsupported, fault.text);
    }
  }
  const auto site = static_cast<u32>(builder.program->sites.size());
  builder.program->sites.push_back(
      {instruction.line, instruction.source, instruction.text, table.index_of(*info)});
  Decoding decoding(*this, instruction, site);
  // Whatever the selector promised stays to be taken by the family.
  const bool ok = info->decode(decoding);
  if (decoding.failed()) return decoding.error();
  return ok ? Result<void>() : refused(ErrorCode::kUnsupported, "not modelled");
}

void FunctionDecoder::patch_targets() {
  for (const Fixup& fixup : fixups_) code.ops[fixup.op].target = begins_[fixup.instruction];
  for (const Op& op : code.ops) {
    if ((op.flags & kOpTable) == 0) continue;
    for (u32& target : builder.program->tables[op.target]) target = begins_[target];
  }
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// Decodes the modifiers and operands of one instruction to operations.
#include "emulator/decode/decoding.h"

#include <fmt/format.h>

#include <bit>

#include "emulator/instructions/executors.h"

namespace attnjit::emulator {

Decoding::Decoding(FunctionDecoder& decoder, const Instruction& instruction, u32 site)
    : f(decoder), in(instruction), taken_(instruction.modifiers.size(), false), site_(site) {}

bool Decoding::unsupported(std::string message) {
  if (!failed_) {
    failed_ = true;
    error_ = make_error(ErrorCode::kUnsupported, fmt::format("{}: {}", in.text, message), "ptx");
    error_.line = in.line;
    error_.column = in.column;
  }
  return false;
}

bool Decoding::invalid(std::string message) {
  if (!failed_) {
    failed_ = true;
    error_ = make_error(ErrorCode::kInvalid, fmt::format("{}: {}", in.text, message), "ptx");
    error_.line = in.line;
    error_.column = in.column;
  }
  return false;
}

bool Decoding::has(std::string_view modifier) const {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (in.modifiers[i] == modifier) return true;
  }
  return false;
}

bool Decoding::take(std::string_view modifier) {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i] && in.modifiers[i] == modifier) {
      taken_[i] = true;
      return true;
    }
  }
  return false;
}

int Decoding::take_any(std::initializer_list<std::string_view> alternatives) {
  int index = 0;
  for (const std::string_view alternative : alternatives) {
    if (take(alternative)) return index;
    ++index;
  }
  return -1;
}

Type Decoding::take_type() {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    const Type type = type_from_string(in.modifiers[i]);
    if (type == Type::kNone) continue;
    taken_[i] = true;
    return type;
  }
  return Type::kNone;
}

std::string_view Decoding::take_prefix(std::string_view prefix) {
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i] && in.modifiers[i].substr(0, prefix.size()) == prefix) {
      taken_[i] = true;
      return in.modifiers[i];
    }
  }
  return {};
}

void Decoding::take_cache_hints() {
  while (!take_prefix("L1::").empty()) {
  }
  for (const std::string_view name :
       {"L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::64B", "L2::128B", "L2::256B",
        "ca", "cg", "cs", "lu", "cv", "wb", "wt"})
    take(name);
}

Decoding::Semantics Decoding::take_semantics() {
  Semantics s;
  if (take("relaxed")) s.strong = true;
  if (take("acquire")) s.strong = s.acquire = true;
  if (take("release")) s.strong = s.release = true;
  if (take("acq_rel")) s.strong = s.acquire = s.release = true;
  if (take("volatile")) s.strong = s.is_volatile = true;
  if (take("mmio")) s.strong = true;
  take("weak");
  s.scope = 1 + take_any({"cta", "cluster", "gpu", "sys"});
  return s;
}

Space Decoding::take_space(Space otherwise) {
  if (take("global")) return Space::kGlobal;
  if (take("shared::cluster")) return Space::kSharedCluster;
  if (take("shared") || take("shared::cta")) return Space::kShared;
  if (take("local")) return Space::kLocal;
  if (take("const")) return Space::kConst;
  if (take("param") || take("param::entry") || take("param::func")) return Space::kParam;
  return otherwise;
}

bool Decoding::done() {
  if (failed_) return false;
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i])
      return unsupported(fmt::format("modifier .{} is not modelled here", in.modifiers[i]));
  }
  return true;
}

bool Decoding::expect(std::size_t least, std::size_t most) {
  if (failed_) return false;
  if (count() >= least && count() <= most) return true;
  // A modifier that is not known may be why the operands differ.
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    if (!taken_[i])
      return unsupported(fmt::format("modifier .{} is not modelled here", in.modifiers[i]));
  }
  return invalid(
      fmt::format("{} operands where {} are expected", count(),
                  least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

int Decoding::width(const Operand& operand) const {
  return operand.kind == Operand::Kind::kRegister ? bits_of(f.function.registers[operand.reg].type)
                                                  : 0;
}

Ref Decoding::constant(u64 value, int bits) {
  const int rows = bits <= 32 ? 1 : bits == 64 ? 2 : 4;
  if (bits < 64) value &= (u64{1} << bits) - 1;
  return kConstant |
         f.builder.constant_row(value, (value >> 63) != 0 && bits == 128 ? ~u64{0} : 0, rows);
}

Ref Decoding::source(std::size_t i, int bits, Type type) {
  if (failed_) return kNoRef;
  if (i >= count()) {
    invalid("an operand is missing");
    return kNoRef;
  }
  return source(in.operands[i], bits, type);
}

Ref Decoding::source(const Operand& operand, int bits, Type type) {
  if (failed_) return kNoRef;
  switch (operand.kind) {
    case Operand::Kind::kRegister: {
      const int have = bits_of(f.function.registers[operand.reg].type);
      const Ref ref = f.register_ref(operand.reg);
      if ((have == 1) != (bits == 1)) {
        invalid(fmt::format("register {} is {} predicate", f.function.registers[operand.reg].name,
                            have == 1 ? "a" : "no"));
        return kNoRef;
      }
      if (bits == 1) return operand.negated ? ref | kNegated : ref;
      if (operand.negated) {
        invalid("'!' needs a predicate");
        return kNoRef;
      }
      if (have < bits) {
        invalid(fmt::format("register {} has {} bits where {} are needed",
                            f.function.registers[operand.reg].name, have, bits));
        return kNoRef;
      }
      if (have > 32 && bits <= 32) {
        const Ref narrow = f.scratch(1);
        alu(select_lane({LaneOp::kNarrow64}), narrow, 32, {ref});
        return narrow;
      }
      return ref;  // of a 128-bit register, its low 64 bits come first
    }
    case Operand::Kind::kInteger: {
      if (bits == 1) return operand.value != 0 ? kTrue : kFalse;
      u64 value = operand.value;
      const auto as_double = static_cast<double>(static_cast<s64>(value));
      if (type == Type::kF32) value = std::bit_cast<u32>(static_cast<float>(as_double));
      if (type == Type::kF64) value = std::bit_cast<u64>(as_double);
      return constant(value, bits);
    }
    case Operand::Kind::kFloat:
      if (bits == 64)
        return constant(type == Type::kF64
                            ? std::bit_cast<u64>(static_cast<double>(
                                  std::bit_cast<float>(static_cast<u32>(operand.value))))
                            : operand.value,
                        64);
      if (bits != 32) {
        invalid("an f32 constant where another width is needed");
        return kNoRef;
      }
      return constant(operand.value, 32);
    case Operand::Kind::kDouble:
      if (bits == 32)
        return constant(
            std::bit_cast<u32>(static_cast<float>(std::bit_cast<double>(operand.value))), 32);
      if (bits != 64) {
        invalid("an f64 constant where another width is needed");
        return kNoRef;
      }
      return constant(operand.value, 64);
    case Operand::Kind::kSpecial: {
      const int have = bits_of(operand.special);
      if ((have == 1) != (bits == 1)) {
        invalid("a special register of another kind is needed");
        return kNoRef;
      }
      const bool clock = operand.special >= SpecialRegister::kClock &&
                         operand.special <= SpecialRegister::kGlobaltimerHi;
      Ref ref;
      if (clock) {
        ref = f.scratch(have == 64 ? 2 : 1);
        Op& op = emit<execute_clock>({operand.special == SpecialRegister::kClockHi ||
                                      operand.special == SpecialRegister::kGlobaltimerHi});
        op.d = ref;
        op.d_rows = have == 64 ? 2 : 1;
        op.set(kOpClock);
      } else {
        ref = f.special_ref(operand.special);
      }
      if (have < bits && bits == 64) {
        const Ref wide = f.scratch(2);
        alu(select_lane({LaneOp::kWiden32}), wide, 64, {ref});
        return wide;
      }
      if (have > bits && bits >= 8 && have == 64) {
        const Ref narrow = f.scratch(1);
        alu(select_lane({LaneOp::kNarrow64}), narrow, 32, {ref});
        return narrow;
      }
      return ref;
    }
    case Operand::Kind::kSymbol: {
      if (bits != 32 && bits != 64) {
        invalid("an address needs 32 or 64 bits");
        return kNoRef;
      }
      const VariablePlace* place = f.find_variable(operand.symbol, in.scope);
      if (place == nullptr) {
        const int function = f.builder.function_index(operand.symbol);
        if (function >= 0) return constant(static_cast<u64>(function) + 1, bits);
        invalid(fmt::format("{} is not declared", operand.symbol));
        return kNoRef;
      }
      if (place->space != Space::kShared && place->space != Space::kLocal)
        return constant(place->offset + operand.value, bits);
      const Ref ref = f.scratch(bits == 64 ? 2 : 1);
      Op& op = emit<execute_symbol>({place->space, place->offset + operand.value});
      op.d = ref;
      op.d_rows = bits == 64 ? 2 : 1;
      return ref;
    }
    default:
      invalid("an operand of another kind is needed");
      return kNoRef;
  }
}

Ref Decoding::destination(std::size_t i, int bits, bool allow_wider) {
  if (failed_) return kNoRef;
  if (i >= count()) {
    invalid("an operand is missing");
    return kNoRef;
  }
  return destination(in.operands[i], bits, allow_wider);
}

Ref Decoding::destination(const Operand& operand, int bits, bool allow_wider) {
  if (failed_) return kNoRef;
  if (operand.kind == Operand::Kind::kSink) return kNoRef;
  if (operand.kind != Operand::Kind::kRegister || operand.negated) {
    invalid("a register is needed for the result");
    return kNoRef;
  }
  const Register& reg = f.function.registers[operand.reg];
  const int have = bits_of(reg.type);
  if ((have == 1) != (bits == 1) || have < bits ||
      (have > bits && !allow_wider && (have > 32 || bits > 32))) {
    invalid(fmt::format("register {} has {} bits where {} are needed", reg.name, have, bits));
    return kNoRef;
  }
  return f.register_ref(operand.reg);
}

bool Decoding::immediate(std::size_t i, u64* value) {
  if (failed_) return false;
  if (!is(i, Operand::Kind::kInteger)) return invalid("an integer constant is needed");
  *value = in.operands[i].value;
  return true;
}

bool Decoding::address(const Operand& operand, Space space, Address* address, Ref* base) {
  if (failed_) return false;
  if (operand.kind != Operand::Kind::kAddress) return invalid("an address in brackets is needed");
  *address = {};
  *base = kNoRef;
  address->offset = operand.value;
  address->space = space;
  address->wide = true;
  if (operand.has_symbol) {
    const VariablePlace* place = f.find_variable(operand.symbol, in.scope);
    if (place == nullptr) return invalid(fmt::format("{} is not declared", operand.symbol));
    address->offset += place->offset;
    if (space == Space::kGeneric || place->space == Space::kLocal) address->space = place->space;
    if (place->space == Space::kLocal) address->origin = Address::Origin::kFrame;
    if (place->space == Space::kShared) address->origin = Address::Origin::kCta;
    return true;
  }
  if (operand.reg != kNoRegister) {
    const int have = bits_of(f.function.registers[operand.reg].type);
    if (have != 32 && have != 64) return invalid("an address register has 32 or 64 bits");
    *base = f.register_ref(operand.reg);
    address->wide = have == 64;
  }
  return true;
}

Ref Decoding::address_value(const Operand& operand, bool* wide) {
  if (failed_) return kNoRef;
  if (operand.kind != Operand::Kind::kAddress) {
    invalid("an address in brackets is needed");
    return kNoRef;
  }
  if (operand.has_symbol) {
    Operand symbol = operand;
    symbol.kind = Operand::Kind::kSymbol;
    *wide = true;
    return source(symbol, 64);
  }
  if (operand.reg == kNoRegister) {
    *wide = true;
    return constant(operand.value, 64);
  }
  const int have = bits_of(f.function.registers[operand.reg].type);
  if (have != 32 && have != 64) {
    invalid("an address register has 32 or 64 bits");
    return kNoRef;
  }
  *wide = have == 64;
  Ref ref = f.register_ref(operand.reg);
  if (operand.value == 0) return ref;
  const Ref sum = f.scratch(*wide ? 2 : 1);
  LaneRequest request;
  request.op = LaneOp::kAdd;
  request.type = *wide ? Type::kU64 : Type::kU32;
  alu(select_lane(request), sum, have, {ref, constant(operand.value, have)});
  return sum;
}

u32 Decoding::list(const std::vector<Ref>& refs) {
  auto& lists = f.builder.program->lists;
  const auto at = static_cast<u32>(lists.size());
  lists.insert(lists.end(), refs.begin(), refs.end());
  return at;
}

Op& Decoding::append() {
  Op op;
  op.site = site_;
  if (in.guard != kNoRegister) {
    op.guard = f.register_ref(in.guard);
    if (in.guard_negated) op.guard |= kNegated;
  }
  if (first_) op.flags = kOpFirst;
  first_ = false;
  f.code.ops.push_back(op);
  return f.code.ops.back();
}

Op& Decoding::append_lane(LaneFn lane, Ref d, int d_bits, std::initializer_list<Ref> sources) {
  if (lane == nullptr) unsupported("this combination of types and modifiers is not modelled");
  Op& op = append();
  op.d = d;
  op.d_rows = d_bits == 1 ? 0 : d_bits <= 32 ? 1 : d_bits == 64 ? 2 : 4;
  std::size_t i = 0;
  for (const Ref s : sources) op.s[i++] = s;
  // NOTE: '_' as the result still executes, into a scratch register.
  if (d == kNoRef) op.d = d_bits == 1 ? f.scratch_predicate() : f.scratch(op.d_rows);
  return op;
}

}  // namespace attnjit::emulator

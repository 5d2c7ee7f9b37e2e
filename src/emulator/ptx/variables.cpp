// SPDX-License-Identifier: Apache-2.0
// Variables of the PTX parser: types, alignment, extents, initialisers.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "emulator/ptx/parser_state.h"

namespace attnjit::emulator {
namespace {

constexpr std::uint64_t kMaxData = std::uint64_t{256} << 20;

}  // namespace

bool Parser::charge(std::uint64_t bytes) {
  data_bytes_ += bytes;
  if (bytes <= kMaxData && data_bytes_ <= kMaxData) return true;
  return cursor_.fail(ErrorCode::kUnsupported, "the module's variables take more than 256 MiB");
}

bool Parser::parse_type_and_alignment(Variable& variable) {
  std::uint64_t lanes = 1;
  bool typed = false;
  while (cursor_.peek() == '.') {
    const std::string_view name = cursor_.directive();
    if (name == "align") {
      const auto n = cursor_.number();
      if (!n || !std::has_single_bit(n->bits) || n->bits > (1u << 20)) {
        return cursor_.invalid(".align needs a power of two");
      }
      variable.align = std::max(variable.align, n->bits);
    } else if (name == "ptr") {
      // The pointed-to space and alignment only inform the optimiser.
      while (cursor_.peek() == '.') {
        const std::string_view pointee = cursor_.directive();
        if (pointee == "align") {
          if (!cursor_.number()) return cursor_.invalid(".align needs a number");
        } else if (pointee != "global" && pointee != "shared" && pointee != "local" &&
                   pointee != "const") {
          return cursor_.invalid(fmt::format(".ptr .{} is not PTX", pointee));
        }
      }
    } else if (name == "v2" || name == "v4" || name == "v8") {
      lanes = static_cast<std::uint64_t>(name[1] - '0');
    } else if (name == "attribute") {
      if (!cursor_.expect('(')) return false;
      while (!cursor_.accept(')')) {
        if (cursor_.directive().empty() && !cursor_.accept(',') && !cursor_.number())
          return cursor_.invalid("a malformed .attribute");
      }
    } else if (name == "texref" || name == "samplerref" || name == "surfref") {
      return cursor_.fail(ErrorCode::kUnsupported,
                          fmt::format("the type .{} is not modelled", name));
    } else {
      variable.type = type_from_string(name);
      if (variable.type == Type::kNone)
        return cursor_.fail(ErrorCode::kUnsupported, fmt::format("unknown type .{}", name));
      typed = true;
    }
  }
  if (!typed) return cursor_.invalid("a type is expected");
  variable.bytes = static_cast<std::uint64_t>((bits_of(variable.type) + 7) / 8) * lanes;
  variable.align = std::max(variable.align, std::min<std::uint64_t>(variable.bytes, 16));
  return true;
}

bool Parser::parse_extent(Variable& variable) {
  while (cursor_.accept('[')) {
    if (cursor_.accept(']')) {
      if (variable.unsized) return cursor_.invalid("only the first extent can be left open");
      variable.unsized = true;
      continue;
    }
    const auto n = cursor_.constant();
    if (!n) return false;
    if (n->kind != Number::Kind::kInteger || n->bits > kMaxData) {
      return cursor_.fail(ErrorCode::kUnsupported, "an array's extent is out of range");
    }
    variable.bytes *= n->bits;
    if (variable.bytes > kMaxData)
      return cursor_.fail(ErrorCode::kUnsupported, "an array is larger than 256 MiB");
    if (!cursor_.expect(']')) return false;
  }
  return true;
}

bool Parser::parse_initial_values(Variable& variable, std::size_t& at, int depth) {
  if (depth > 16) return cursor_.invalid("an initialiser is nested too deep");
  const std::size_t width = static_cast<std::size_t>((bits_of(variable.type) + 7) / 8);
  if (cursor_.accept('{')) {
    if (cursor_.accept('}')) return true;
    do {
      if (!parse_initial_values(variable, at, depth + 1)) return false;
    } while (cursor_.accept(','));
    return cursor_.expect('}');
  }
  if (variable.unsized && variable.initial.size() < at + width) {
    if (!charge(width)) return false;
    variable.initial.resize(at + width);
  }
  if (at + width > variable.initial.size())
    return cursor_.invalid("more initial values than elements");
  bool generic = false;
  std::string_view name = cursor_.identifier();
  if (name == "generic" && cursor_.accept('(')) {
    generic = true;
    name = cursor_.identifier();
    if (name.empty() || !cursor_.expect(')')) return cursor_.invalid("generic() needs a variable");
  }
  if (!name.empty()) {
    InitialiserSymbol symbol;
    symbol.offset = at;
    symbol.bytes = static_cast<int>(width);
    symbol.generic = generic;
    symbol.symbol = name;
    if (cursor_.peek() == '+' || cursor_.peek() == '-') {
      const auto n = cursor_.constant();
      if (!n) return false;
      symbol.addend = n->bits;
    }
    variable.symbols.push_back(symbol);
  } else {
    const auto n = cursor_.constant();
    if (!n) return false;
    if (cursor_.peek() == '(') {
      return cursor_.fail(ErrorCode::kUnsupported,
                          "a masked address in an initialiser is not modelled");
    }
    std::uint64_t bits = n->bits;
    if (variable.type == Type::kF32 && n->kind == Number::Kind::kDouble) {
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    }
    if (variable.type == Type::kF64 && n->kind == Number::Kind::kFloat) {
      bits = std::bit_cast<std::uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
    }
    std::memcpy(variable.initial.data() + at, &bits, std::min<std::size_t>(width, 8));
  }
  at += width;
  return true;
}

bool Parser::parse_initialiser(Variable& variable) {
  if (variable.space != Space::kGlobal && variable.space != Space::kConst) {
    return cursor_.invalid("only .global and .const variables have initial values");
  }
  if (!variable.unsized) variable.initial.resize(variable.bytes);
  std::size_t at = 0;
  if (!parse_initial_values(variable, at, 0)) return false;
  if (variable.unsized) {
    variable.bytes = variable.initial.size();
    variable.unsized = false;
  }
  return true;
}

bool Parser::parse_variables(Space space, bool is_extern, std::uint32_t scope,
                             std::vector<Variable>& into) {
  Variable shape;
  shape.space = space;
  shape.is_extern = is_extern;
  shape.scope = scope;
  if (!parse_type_and_alignment(shape)) return false;
  std::unordered_set<std::string_view>& declared =
      &into == &module_.variables ? declared_in_module_ : declared_[scope];
  do {
    Variable variable = shape;
    variable.line = cursor_.line();
    variable.name = cursor_.identifier();
    if (variable.name.empty()) return cursor_.invalid("a variable needs a name");
    if (cursor_.peek() == '<') {
      return cursor_.fail(ErrorCode::kUnsupported,
                          "a parametrised variable name is not modelled outside .reg");
    }
    if (!parse_extent(variable) || !charge(variable.bytes)) return false;
    if (cursor_.accept('=') && !parse_initialiser(variable)) return false;
    if (variable.unsized && !is_extern)
      return cursor_.invalid("an array without a size must be .extern");
    if (variable.unsized) variable.bytes = 0;
    if (!is_extern && !declared.insert(variable.name).second && space != Space::kParam) {
      return cursor_.invalid(fmt::format("variable {} is declared twice", variable.name));
    }
    into.push_back(std::move(variable));
    if (into.size() > (1u << 20))
      return cursor_.fail(ErrorCode::kUnsupported, "more than 2^20 variables");
  } while (cursor_.accept(','));
  return cursor_.expect(';');
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The syntax tree of a PTX module: names resolved to registers and scopes, opcodes still text.
//
// Thread rules: plain values. string_views point into Module::text, which the module owns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnjit::emulator {

/// Scalar types as PTX spells them. Packed types have the width of the whole.
enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kTf32,
  kF32,
  kF64,
  kF16x2,
  kBf16x2,
  kF32x2,
  kU16x2,
  kS16x2,
  kE4m3,
  kE5m2,
  kE4m3x2,
  kE5m2x2,
  kE4m3x4,
  kE5m2x4,
  kE2m1,
  kE2m3,
  kE3m2,
  kE2m1x2,
  kE2m3x2,
  kE3m2x2,
  kE2m1x4,
  kE2m3x4,
  kE3m2x4,
  kUe8m0x2,
  kUe8m0,
  kUe4m3,
  kU4,
  kS4,
  kU2,
  kS2,
  kB1,
  kB1024,
};

/// Bits of a value of a type (a predicate has 1; sub-byte types their own width).
int bits_of(Type type);
/// "f32", "bf16x2", ...
std::string_view to_string(Type type);
/// kNone where `name` (without the dot) is not a type.
Type type_from_string(std::string_view name);

enum class Space : std::uint8_t {
  kGeneric,
  kGlobal,
  kShared,
  kSharedCluster,
  kLocal,
  kParam,
  kConst
};
std::string_view to_string(Space space);

/// Index into Function::registers.
using RegisterId = std::uint32_t;
inline constexpr RegisterId kNoRegister = ~0u;

struct Register {
  std::string name;
  Type type = Type::kB32;
};

enum class SpecialRegister : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kClusteridX,
  kClusteridY,
  kClusteridZ,
  kNclusteridX,
  kNclusteridY,
  kNclusteridZ,
  kClusterCtaidX,
  kClusterCtaidY,
  kClusterCtaidZ,
  kClusterNctaidX,
  kClusterNctaidY,
  kClusterNctaidZ,
  kClusterCtarank,
  kClusterNctarank,
  kIsExplicitCluster,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kTotalSmemSize,
  kAggrSmemSize,
  kDynamicSmemSize,
  kReservedSmemOffsetBegin,
  kReservedSmemOffsetEnd,
  kReservedSmemOffsetCap,
  kReservedSmemOffset0,
  kReservedSmemOffset1,
  kClock,
  kClockHi,
  kClock64,
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kCurrentGraphExec,
  kCount,
};

/// The name with its component: "%tid.x".
std::string_view to_string(SpecialRegister special);
/// Bits of its natural type.
int bits_of(SpecialRegister special);

struct Operand {
  enum class Kind : std::uint8_t {
    kRegister,  ///< reg; negated: !p
    kInteger,   ///< value, two's complement
    kFloat,     ///< value: the bits of an f32 (0f...)
    kDouble,    ///< value: the bits of an f64 (0d..., 1.5)
    kSymbol,    ///< symbol + value: a variable, function or label as a value
    kSpecial,   ///< special
    kAddress,   ///< [base + value]; base is reg, symbol or absent; parts: tensor coordinates
    kVector,    ///< {parts}
    kPair,      ///< parts[0] | parts[1]
    kList,      ///< (parts)
    kSink,      ///< _
  };
  Kind kind = Kind::kSink;
  bool negated = false;
  bool has_symbol = false;
  bool has_coordinates = false;
  SpecialRegister special = SpecialRegister::kTidX;
  RegisterId reg = kNoRegister;
  std::uint64_t value = 0;
  std::string_view symbol;
  std::vector<Operand> parts;
};

/// A position in the source that the PTX was compiled from; file is an index of Module::files.
struct SourceLocation {
  std::uint32_t file = 0;
  std::uint32_t line = 0;  ///< 0: none
};

struct Instruction {
  std::string_view root;                    ///< "cp", "tcgen05", "add"
  std::string_view text;                    ///< the opcode with all modifiers, as written
  std::vector<std::string_view> modifiers;  ///< "async", "shared::cluster", in written order
  std::vector<Operand> operands;
  RegisterId guard = kNoRegister;
  bool guard_negated = false;
  std::uint32_t scope = 0;  ///< for labels and variables
  int line = 0;
  int column = 0;
  SourceLocation source;
};

/// A relocated word of an initialiser: the address of a symbol.
struct InitialiserSymbol {
  std::uint64_t offset = 0;
  int bytes = 8;
  bool generic = false;
  std::uint64_t addend = 0;
  std::string_view symbol;
};

struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  std::uint64_t align = 1;
  std::uint64_t bytes = 0;  ///< 0 for an unsized extern array
  bool is_extern = false;
  bool unsized = false;
  std::vector<std::uint8_t> initial;  ///< empty: zero (global, const) or uninitialised
  std::vector<InitialiserSymbol> symbols;
  std::uint32_t scope = 0;
  int line = 0;
};

struct Label {
  std::string_view name;
  std::uint32_t scope = 0;
  std::uint32_t position = 0;  ///< index of the instruction that follows
};

/// A .branchtargets or .calltargets table.
struct TargetTable {
  std::string_view name;
  std::uint32_t scope = 0;
  std::vector<std::string_view> targets;
  int line = 0;
};

/// A .callprototype.
struct Prototype {
  std::string_view name;
  std::uint32_t scope = 0;
  std::vector<Variable> results;
  std::vector<Variable> parameters;
};

/// One lexical scope; scope 0 is the function's.
struct Scope {
  std::uint32_t parent = 0;
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Variable> results;             ///< .func only
  std::vector<Variable> parameters;          ///< .param or, in a .func, registers' images
  std::vector<RegisterId> result_registers;  ///< for `.func (.reg .b32 r)`: kNoRegister otherwise
  std::vector<RegisterId> parameter_registers;
  std::vector<Register> registers;
  std::vector<Scope> scopes;
  std::vector<Variable> variables;
  std::vector<Label> labels;
  std::vector<TargetTable> tables;
  std::vector<Prototype> prototypes;
  std::vector<Instruction> instructions;
  std::uint32_t maxnreg = 0;                      ///< .maxnreg; 0: none
  std::uint32_t required_threads[3] = {0, 0, 0};  ///< .reqntid
  std::uint32_t max_threads[3] = {0, 0, 0};       ///< .maxntid
  std::uint32_t required_cluster[3] = {0, 0, 0};  ///< .reqnctapercluster
  int line = 0;
};

struct Module {
  std::shared_ptr<const std::string> text;
  int version_major = 0;
  int version_minor = 0;
  std::string target;
  int address_size = 64;
  std::vector<std::string> files;  ///< by .file index
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::unordered_map<std::string_view, std::size_t> function_indices;  ///< the first of each name

  /// The function of a name; null: there is none.
  const Function* find_function(std::string_view name) const {
    const auto found = function_indices.find(name);
    return found == function_indices.end() ? nullptr : &functions[found->second];
  }
};

}  // namespace attnjit::emulator

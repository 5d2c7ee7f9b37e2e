// SPDX-License-Identifier: Apache-2.0
// A kernel decoded for execution: micro-operations with resolved operands.
//
// Thread rules: immutable once decoded; shared by the threads that run CTAs.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "emulator/integers.h"
#include "emulator/lanes/lanes.h"
#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

class Warp;
struct Op;

/// 32 lanes of 32 bits. A 64-bit register takes two rows (u64[32]), a 128-bit one four (low
/// u64[32], high u64[32]).
struct alignas(64) Row {
  u32 lane[32];
};

/// A resolved operand: a row of the register file, a row of the program's constants, or a predicate
/// (possibly negated). Predicate 0 is always false.
using Ref = u32;
inline constexpr Ref kNoRef = ~0u;
inline constexpr Ref kConstant = 1u << 30;
inline constexpr Ref kPredicate = 2u << 30;
inline constexpr Ref kNegated = 3u << 30;
inline constexpr Ref kIndex = (1u << 30) - 1;
inline constexpr Ref kFalse = kPredicate;
inline constexpr Ref kTrue = kNegated;
constexpr bool is_row(Ref r) { return (r >> 30) == 0; }
constexpr bool is_constant(Ref r) { return (r >> 30) == 1; }
constexpr bool is_predicate(Ref r) { return (r >> 31) == 1 && r != kNoRef; }
constexpr u32 index_of(Ref r) { return r & kIndex; }

/// What a micro-operation did to its lane group.
enum class Step : u8 {
  kNext,    ///< go on with the next operation
  kJump,    ///< the group's pc is set
  kWait,    ///< the group's state says what it waits for; the operation runs again when it is ready
  kSwitch,  ///< the warp's groups changed: choose again
};

using Execute = Step (*)(Warp& warp, const Op& op, u32 mask);

struct Op {
  Execute execute = nullptr;
  LaneFn lane = nullptr;
  u64 imm = 0;
  u64 imm2 = 0;
  Ref d = kNoRef;
  Ref d2 = kNoRef;
  std::array<Ref, 4> s{kNoRef, kNoRef, kNoRef, kNoRef};
  Ref guard = kNoRef;
  u32 target = 0;           ///< bra: the operation; call: the function
  u32 reconverge = kNoRef;  ///< bra: the immediate post-dominator
  u32 list = 0;             ///< first of list_count operands in Program::lists
  u32 list_count = 0;
  u32 fp_mode = 0;  ///< 0: does not matter
  u32 site = 0;     ///< index of Program::sites
  u8 d_rows = 1;    ///< rows of d: 1, 2, 4; 0: a predicate
  u8 sources = 0;   ///< of s, for lane functions
  Space space = Space::kGeneric;
  Type type = Type::kNone;
  u8 bytes = 0;   ///< memory: of one element
  u8 vector = 1;  ///< memory: elements
  u8 mode = 0;    ///< the family's own
  u8 flags = 0;
};
inline constexpr u8 kOpReconverges = 1;  ///< some branch's paths meet here
inline constexpr u8 kOpFirst = 2;        ///< the first of its PTX instruction
inline constexpr u8 kOpAligned = 4;      ///< every thread of the warp must execute it together
inline constexpr u8 kOpPolls = 8;      ///< reads what another agent may change: a spin loop's heart
inline constexpr u8 kOpBranches = 16;  ///< may go to target
inline constexpr u8 kOpEnds = 32;      ///< ret, exit, trap: no successor where the guard holds
inline constexpr u8 kOpTable = 64;     ///< brx.idx: goes to one of tables[target]

/// Where an operation comes from.
struct Site {
  int line = 0;
  SourceLocation source;
  std::string_view text;  ///< the opcode with its modifiers
  u16 info = 0;           ///< row of the instruction table
};

struct ParameterPlace {
  std::string_view name;
  u64 offset = 0;
  u64 bytes = 0;
  u64 align = 1;
};

struct FunctionCode {
  std::string_view name;
  std::vector<Op> ops;
  u32 rows = 0;
  u32 predicates = 1;
  u32 local_bytes = 0;  ///< of a thread, .param variables of calls included
  std::vector<ParameterPlace>
      parameters;  ///< entry: in the parameter block; .func: in local memory
  std::vector<ParameterPlace> results;
  struct SpecialRow {
    SpecialRegister special;
    Ref row;
  };
  std::vector<SpecialRow> specials;  ///< rows (or predicates) set when a frame is entered
};

struct Program {
  std::shared_ptr<const Module> module;
  std::vector<FunctionCode> functions;  ///< [0] is the entry
  std::vector<Row> constants;
  std::vector<Site> sites;
  std::vector<Ref> lists;
  std::vector<std::vector<u32>> tables;  ///< brx.idx, call: operations or functions

  u64 parameter_bytes = 0;
  u32 local_stack = 0;           ///< bytes of local memory a thread needs, all frames
  std::vector<u8> global_image;  ///< the module's .global variables, at kModuleGlobals
  std::vector<u8> const_image;   ///< .const
  u32 static_smem_end = 0;       ///< first shared address after the static variables
  u32 dynamic_smem_align = 16;
  bool uses_dynamic_smem = false;
  bool communicates = false;  ///< CTAs may talk through global memory
  bool steals = false;        ///< uses cluster launch control
  bool uses_tmem = false;

  std::array<u32, 3> required_threads{0, 0, 0};
  std::array<u32, 3> max_threads{0, 0, 0};
  std::array<u32, 3> required_cluster{0, 0, 0};
  u32 maxnreg = 0;
};

// The emulated address space. Global buffer i begins at buffer_base(i); the other spaces have
// windows in generic addresses.
inline constexpr u32 kSharedBegin = 0x400;  ///< the first KiB is the system's, as on hardware
inline constexpr u32 kMaxSharedBytes = 227 * 1024 + kSharedBegin;
inline constexpr u64 kSharedWindow = u64{0xF0} << 48;
inline constexpr u64 kLocalWindow = u64{0xF1} << 48;
inline constexpr u64 kParamWindow = u64{0xF2} << 48;
inline constexpr u64 kConstWindow = u64{0xF3} << 48;
inline constexpr u64 kWindowMask = u64{0xFFFF} << 48;
inline constexpr int kBufferShift = 36;
/// NOTE: aligned to 512 bytes as cudaMalloc's are, and to no more, so that a kernel that relies on
/// more is found out.
inline constexpr u64 buffer_base(u64 index) { return ((index + 1) << kBufferShift) + 0x200; }
inline constexpr u64 kModuleGlobals = buffer_base(0);

/// Fills Op::reconverge and kOpReconverges: the immediate post-dominators of branches.
void find_reconvergence(FunctionCode& code, const Program& program);

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// A kernel decoded for execution: micro-operations with resolved operands.
//
// Thread rules: immutable once decoded; shared by the threads that run CTAs.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "emulator/decode/operation.h"

namespace attnjit::emulator {

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

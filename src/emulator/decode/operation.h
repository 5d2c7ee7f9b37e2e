// SPDX-License-Identifier: Apache-2.0
// An operation: one step of an instruction, decoded once and executed for a warp at a time.
//
// Each family gives its executors a struct of arguments: what the decoder made of the modifiers.
// The decoder ties both together (Decoding::emit), so that an executor can only be handed the
// arguments that it was decoded with.
// Thread rules: immutable once decoded.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>

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

struct NoArguments {};

/// What an executor takes and how an operation calls it; specialised below for functions
/// f(warp, op, arguments, mask) and f(warp, op, mask).
template <auto f>
struct Executor;
template <auto f>
using ArgumentsOf = typename Executor<f>::Arguments;

struct Op {
  Execute execute = nullptr;

  // Registers. NOTE: these, and not the arguments, are what operations in flight are checked
  // against (Cluster::check_in_flight).
  Ref d = kNoRef;
  Ref d2 = kNoRef;
  std::array<Ref, 4> s{kNoRef, kNoRef, kNoRef, kNoRef};
  u32 list = 0;  ///< first of list_count further operands in Program::lists
  u32 list_count = 0;

  // Control.
  Ref guard = kNoRef;
  u32 target = 0;           ///< bra: the operation; call: the function; brx: the table
  u32 reconverge = kNoRef;  ///< bra: the immediate post-dominator
  u32 site = 0;             ///< index of Program::sites
  u8 d_rows = 1;            ///< rows of d: 1, 2, 4; 0: a predicate
  u8 flags = 0;

  void set(u8 flag) { flags = static_cast<u8>(flags | flag); }
  bool has(u8 flag) const { return (flags & flag) != 0; }

  /// Makes this an operation of the executor f.
  template <auto f>
  void bind(const ArgumentsOf<f>& arguments) {
    using A = ArgumentsOf<f>;
    static_assert(std::is_trivially_copyable_v<A> && sizeof(A) <= sizeof(arguments_) &&
                  alignof(A) <= alignof(u64));
    std::memcpy(arguments_.data(), &arguments, sizeof(A));
    execute = Executor<f>::entry;
  }
  /// @pre it is an operation of the executor f
  template <auto f>
  const ArgumentsOf<f>& arguments() const {
    assert(execute == &Executor<f>::entry);
    return *std::launder(reinterpret_cast<const ArgumentsOf<f>*>(arguments_.data()));
  }

 private:
  alignas(u64) std::array<std::byte, 40> arguments_{};
};

template <Step (*f)(Warp&, const Op&, u32)>
struct Executor<f> {
  using Arguments = NoArguments;
  static Step entry(Warp& warp, const Op& op, u32 mask) { return f(warp, op, mask); }
};
template <class A, Step (*f)(Warp&, const Op&, const A&, u32)>
struct Executor<f> {
  using Arguments = A;
  static Step entry(Warp& warp, const Op& op, u32 mask) {
    return f(warp, op, op.arguments<f>(), mask);
  }
};

inline constexpr u8 kOpReconverges = 1;  ///< some branch's paths meet here
inline constexpr u8 kOpFirst = 2;        ///< the first of its PTX instruction
inline constexpr u8 kOpAligned = 4;      ///< every thread of the warp must execute it together
inline constexpr u8 kOpPolls = 8;      ///< reads what another agent may change: a spin loop's heart
inline constexpr u8 kOpBranches = 16;  ///< may go to target
inline constexpr u8 kOpEnds = 32;      ///< ret, exit, trap: no successor where the guard holds
inline constexpr u8 kOpTable = 64;     ///< brx.idx: goes to one of tables[target]
inline constexpr u8 kOpClock = 128;    ///< reads a clock

/// A function on lanes, of the registers in Op::s, to Op::d.
struct LaneOperation {
  LaneFn function = nullptr;
  u64 imm = 0;      ///< see LaneOp
  u32 fp_mode = 0;  ///< 0: does not matter
  u8 sources = 0;
};
Step execute_lane(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask);
extern template struct Executor<execute_lane>;

/// execute_lane where each half of the result comes from that half of the sources alone: a copy, or
/// arithmetic on a pair. A half that is undefined leaves the other one defined.
Step execute_halves(Warp& warp, const Op& op, const LaneOperation& lane, u32 mask);
extern template struct Executor<execute_halves>;

/// The address operand of an instruction: the register in Op::s[0], if there is one, and an
/// offset.
struct Address {
  enum class Origin : u8 { kZero, kFrame, kCta };  ///< kFrame: local memory; kCta: shared memory
  u64 offset = 0;
  Space space = Space::kGeneric;
  Origin origin = Origin::kZero;
  bool wide = false;  ///< the register has 64 bits
};

}  // namespace attnjit::emulator

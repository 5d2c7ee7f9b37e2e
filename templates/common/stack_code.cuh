// SPDX-License-Identifier: Apache-2.0
// Stack code: an expression as data, which a launch gives to a kernel that interprets it
// (common/interpreter.cuh).
//
// An instruction has two words. The machine has an accumulator and a stack; each step may push the
// accumulator, takes one operand from where the first word says, may exchange the two, and
// computes. The second word is a literal's bits.
//
// NOTE: the library compiles this file for the host, too (src/spec/stack_code.h): it is plain C++.
#pragma once

#ifndef ATTNJIT_FLOAT_FUNCTIONS
#include "common/expression_functions.cuh"
#endif

namespace attnjit {

constexpr int kStackInstructions = 256;  ///< of a mask and a score modification together
constexpr int kStackDepth = 16;
constexpr int kStackArrays = 8;
constexpr int kStackCoords = 8;  ///< of the language, but for total_row, which is computed

/// What an instruction computes of the accumulator `a` and the operand `b`: bits 0 to 7. A bool is
/// 0 or 1. NOTE: those from kStackDivideFloat on are computed for one score after another.
enum StackOp : unsigned {
  kStackLoad,  ///< b
  kStackNot,   ///< of a bool
  kStackIntToBool,
  kStackFloatToBool,
  kStackFloatToInt,
  kStackFloatToUint,
  kStackIntToFloat,
  kStackUintToFloat,
  kStackNegateInt,
  kStackNegateFloat,
  kStackBitNot,
  kStackAbsInt,
  kStackAbsFloat,
  kStackAdd,  ///< of int and u32 alike, as the next two
  kStackSubtract,
  kStackMultiply,
  kStackAnd,  ///< of int, u32 and bool alike, as the next two
  kStackOr,
  kStackXor,
  kStackShiftLeft,
  kStackShiftRightInt,
  kStackShiftRightUint,
  kStackLessInt,
  kStackLessEqualInt,
  kStackLessUint,
  kStackLessEqualUint,
  kStackLessFloat,
  kStackLessEqualFloat,
  kStackEqualInt,  ///< of bool and u32, too, as the next one
  kStackNotEqualInt,
  kStackEqualFloat,
  kStackNotEqualFloat,
  kStackMinInt,
  kStackMaxInt,
  kStackMinUint,
  kStackMaxUint,
  kStackMinFloat,
  kStackMaxFloat,
  kStackAddFloat,
  kStackSubtractFloat,
  kStackMultiplyFloat,
  kStackSelect,    ///< (popped) ? b : a
  kStackElement1,  ///< element a of an array
  kStackElement2,  ///< column a of row b
  kStackElement3,  ///< column a of row b of plane (popped)
  kStackFma,       ///< (popped) * b + a
  kStackDivideInt,
  kStackDivideUint,
  kStackModuloInt,
  kStackModuloUint,
  kStackDivideFloat,
#define ATTNJIT_STACK_OP(Title, ...) kStack##Title,
  ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_STACK_OP, ATTNJIT_STACK_OP)
#undef ATTNJIT_STACK_OP
};

/// Where the operand is: bits 8 to 11.
enum StackOperand : unsigned {
  kOperandNone,
  kOperandStack,  ///< popped
  kOperandLiteral,
  kOperandCoord,  ///< the one of bits 16 to 23, in the order of the language's coordinates
  kOperandScore,
  kOperandKey,  ///< kv_idx, which is no kOperandCoord
};

constexpr unsigned kStackOperandShift = 8;
constexpr unsigned kStackPush = 1u << 12;      ///< the accumulator is pushed first
constexpr unsigned kStackExchange = 1u << 13;  ///< a and b change places before the operation
constexpr unsigned kStackBf16 = 1u << 14;      ///< elements are bf16, not 32 bits wide
constexpr unsigned kStackFloat = 1u << 15;     ///< elements, or what is selected, are floats
constexpr unsigned kStackPlaceShift = 16;      ///< of the number of a coordinate, or of an array

/// A launch's mask and score modification. The mask's instructions come first.
struct StackCode {
  int mask_end;
  int score_end;
  int extents[kStackArrays][3];  ///< elements; rows, columns; or planes, rows, columns
  unsigned words[2 * kStackInstructions];
};

}  // namespace attnjit

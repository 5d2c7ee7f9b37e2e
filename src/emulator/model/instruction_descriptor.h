// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma's 32-bit instruction descriptor, and which shapes each kind allows.
//
// Source: PTX ISA 9.1, section 9.7.16.4.2 and table 39. Pure functions.
#pragma once

#include <cstdint>

#include "emulator/model/numeric.h"

namespace attnjit::emulator {

/// The .kind of a tcgen05.mma; it is in the opcode, not in the descriptor.
enum class MmaKind : std::uint8_t { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };

enum class AccumulatorType : std::uint8_t { kF16, kF32, kS32 };

struct InstructionDescriptor {
  AccumulatorType d_type = AccumulatorType::kF32;
  const FloatFormat* a_format = nullptr;  ///< null: i8
  const FloatFormat* b_format = nullptr;
  bool a_signed = false, b_signed = false;  ///< i8
  bool saturate = false;
  bool negate_a = false, negate_b = false;
  bool transpose_a = false, transpose_b = false;  ///< MN-major
  int n = 0;
  int m = 0;
  int k = 0;        ///< elements an instruction: 32 bytes of packed operand
  int b_shift = 0;  ///< .ws: largest shift of B
  bool block_scaled = false;
  bool scale_is_ue8m0 = true;  ///< else ue4m3
  int sfa_id = 0, sfb_id = 0;
};

/// Decodes under a kind. nullptr and `out` filled, or a sentence saying which field is malformed.
/// Sparse descriptors are refused: the emulator has no sparse MMA.
const char* decode_instruction_descriptor(MmaKind kind, std::uint32_t bits,
                                          InstructionDescriptor* out);

/// nullptr, or why the ISA has no such shape.
const char* check_mma_shape(MmaKind kind, int m, int n, int cta_group, bool ws);

/// Bits an element takes in shared or tensor memory: sub-byte types lie in 8-bit containers except
/// in mxf4 and mxf4nvf4, where two share a byte.
int container_bits(MmaKind kind, const FloatFormat* format);

}  // namespace attnjit::emulator

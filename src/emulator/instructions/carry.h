// SPDX-License-Identifier: Apache-2.0
// Carry chains: add.cc, addc, sub.cc, subc, mad.cc, madc.
//
// Thread rules: pure but for the Decoding, which belongs to its caller.
#pragma once

#include "emulator/integers.h"

namespace attnjit::emulator {

class Decoding;

/// One step of a chain, on the condition code's carry.
struct Carry {
  enum class Operation : u8 { kAdd, kSubtract, kMultiplyLow, kMultiplyHigh };
  Operation operation = Operation::kAdd;  ///< a product's half is added to the third source
  bool in = false, out = false;
  bool wide = false;  ///< of 64 bits
  bool is_signed = false;

  bool multiplies() const { return operation >= Operation::kMultiplyLow; }
};

/// @param in the carry goes into the operation
bool decode_carry(Decoding& d, Carry::Operation operation, bool in);

}  // namespace attnjit::emulator

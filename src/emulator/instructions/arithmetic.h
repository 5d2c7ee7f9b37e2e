// SPDX-License-Identifier: Apache-2.0
// Decoding of instructions that are one function on lanes, with the modifiers that they share.
//
// Thread rules: pure but for the Decoding, which belongs to its caller.
#pragma once

#include <cstddef>

#include "emulator/decode/decoding.h"

namespace attnjit::emulator {

struct Arithmetic {
  LaneOp op = LaneOp::kAdd;
  std::size_t sources = 2;
  bool bits_only = false;  ///< .b types
};

bool decode_simple(Decoding& d, Arithmetic a);

template <LaneOp Operation, std::size_t Sources, bool Bits = false>
bool simple(Decoding& d) {
  return decode_simple(d, {Operation, Sources, Bits});
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The table of PTX types and number formats.
#include "emulator/lanes/number_format.h"

namespace attnjit::emulator {

const FloatFormat* float_format(Type type) {
  switch (type) {
    case Type::kF16:
      return &kFormatF16;
    case Type::kBf16:
      return &kFormatBf16;
    case Type::kF32:
      return &kFormatF32;
    case Type::kTf32:
      return &kFormatTf32;
    case Type::kE4m3:
      return &kFormatE4m3;
    case Type::kE5m2:
      return &kFormatE5m2;
    case Type::kE2m1:
      return &kFormatE2m1;
    case Type::kE2m3:
      return &kFormatE2m3;
    case Type::kE3m2:
      return &kFormatE3m2;
    case Type::kUe8m0:
      return &kFormatUe8m0;
    default:
      return nullptr;
  }
}

u32 operand_code(Type type, u32 bits) { return type == Type::kTf32 ? bits >> 13 : bits; }

}  // namespace attnjit::emulator

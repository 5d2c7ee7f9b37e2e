// SPDX-License-Identifier: Apache-2.0
// PTX types as the device models' number formats.
#pragma once

#include "emulator/integers.h"
#include "emulator/model/numeric.h"
#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

/// nullptr for types that are no float of at most 32 bits.
const FloatFormat* float_format(Type type);

/// An operand's bits as the format's code: tf32 lies in the high 19 bits of 32.
u32 operand_code(Type type, u32 bits);

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The calling thread's floating-point control: its rounding mode, and whether denormals are zero.
#pragma once

#include "emulator/integers.h"

namespace attnjit::emulator {

/// Makes a mode of fp_mode() the calling thread's. A mode is written as x86-64's MXCSR; on Arm it
/// is translated to FPCR.
inline void set_fp_mode(u32 mode) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(mode);
#else
  constexpr u32 kRounding[] = {0, 2, 1, 3};  // nearest, down, up, toward zero: FPCR's RMode
  const u32 flush = (mode & 0x8040) != 0 ? u32{1} << 24 : 0;
  __builtin_aarch64_set_fpcr(kRounding[mode >> 13 & 3] << 22 | flush);
#endif
}

}  // namespace attnjit::emulator

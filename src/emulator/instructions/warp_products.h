// SPDX-License-Identifier: Apache-2.0
// What the decoders of a warp's matrix products share.
//
// Thread rules: pure but for the Decoding, which belongs to its caller.
#pragma once

namespace attnjit::emulator {

class Decoding;

/// mma.sync or wmma.mma in any modelled shape and type, after the opcode. mma.sync of f16, bf16,
/// tf32, FP8 and 8-bit integers in m16n8kK has its own path.
bool decode_warp_product(Decoding& d, bool wmma);

}  // namespace attnjit::emulator

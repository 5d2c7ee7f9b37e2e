// SPDX-License-Identifier: Apache-2.0
// Shared-memory matrix descriptors of wgmma and tcgen05, and where an operand's elements lie.
//
// Sources: PTX ISA 9.1, sections 9.7.15.5.1.2 (wgmma) and 9.7.16.4.1 (tcgen05); canonical layouts
// in 9.7.16.5. Pure functions; addresses are offsets in the executing CTA's shared window.
#pragma once

#include <cstdint>

#include "emulator/model/swizzle.h"

namespace attnjit::emulator {

struct MatrixDescriptor {
  std::uint32_t start = 0;    ///< bytes
  std::uint32_t leading = 0;  ///< leading dimension byte offset (LBO)
  std::uint32_t stride = 0;   ///< stride dimension byte offset (SBO)
  std::uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::kNone;
};

/// Both return nullptr and fill `out`, or a sentence saying which field is malformed.
const char* decode_wgmma_descriptor(std::uint64_t bits, MatrixDescriptor* out);
const char* decode_tcgen05_descriptor(std::uint64_t bits, MatrixDescriptor* out);

/// Encoders, for tests and kernels written by hand.
std::uint64_t encode_wgmma_descriptor(const MatrixDescriptor& descriptor);
std::uint64_t encode_tcgen05_descriptor(const MatrixDescriptor& descriptor);

/// Address of the 16 bytes `chunk` (0 or 1, along K) of row `row` (M or N) of a K-major operand's
/// 32-byte K slice.
constexpr std::uint32_t k_major_chunk(const MatrixDescriptor& d, std::uint32_t row,
                                      std::uint32_t chunk) {
  const std::uint32_t along_k = d.swizzle == Swizzle::kNone ? chunk * d.leading : chunk * 16;
  return swizzle_address(
      d.swizzle, d.start + (row / 8) * d.stride + (row % 8) * swizzle_span(d.swizzle) + along_k);
}

/// Address of 16 bytes of an MN-major operand: elements mn_chunk * (16 / element size) and
/// following along M or N, at index k along K.
constexpr std::uint32_t mn_major_chunk(const MatrixDescriptor& d, std::uint32_t mn_chunk,
                                       std::uint32_t k) {
  if (d.swizzle == Swizzle::kNone) {
    return d.start + mn_chunk * d.stride + (k % 8) * 16 + (k / 8) * d.leading;
  }
  const std::uint32_t width = swizzle_span(d.swizzle) / 16;  // chunks per row of the pattern
  const std::uint32_t rows = d.swizzle == Swizzle::k128BAtom32B ? 4 : 8;
  return swizzle_address(d.swizzle, d.start + (mn_chunk % width) * 16 +
                                        (mn_chunk / width) * d.leading + (k % rows) * width * 16 +
                                        (k / rows) * d.stride);
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// Decodes, encodes and checks the matrix descriptors of wgmma and tcgen05.
#include "emulator/model/matrix_descriptor.h"

namespace attnjit::emulator {
namespace {

constexpr std::uint32_t field(std::uint64_t bits, int low) {
  return static_cast<std::uint32_t>((bits >> low) & 0x3FFF) << 4;
}

constexpr std::uint64_t packed(const MatrixDescriptor& d) {
  const auto enc = [](std::uint32_t bytes) {
    return static_cast<std::uint64_t>((bytes & 0x3FFFF) >> 4);
  };
  return enc(d.start) | enc(d.leading) << 16 | enc(d.stride) << 32 |
         static_cast<std::uint64_t>(d.base_offset & 7) << 49;
}

void common_fields(std::uint64_t bits, MatrixDescriptor* out) {
  out->start = field(bits, 0);
  out->leading = field(bits, 16);
  out->stride = field(bits, 32);
  out->base_offset = static_cast<std::uint32_t>((bits >> 49) & 7);
}

/// What both kinds require of the fields that they share.
const char* check_common(std::uint64_t bits, const MatrixDescriptor& d) {
  if (((bits >> 14) & 3) != 0 || ((bits >> 30) & 3) != 0) {
    return "reserved bits 14-15 or 30-31 of the matrix descriptor are set";
  }
  // NOTE: without a swizzle there is no pattern to begin; Triton fills the field in all the same.
  if (d.base_offset != 0 && (bits >> 61) != 0) {
    return "the matrix descriptor's base offset is not 0: the swizzle pattern does not begin at an "
           "aligned "
           "address, which this emulator does not model";
  }
  return nullptr;
}

}  // namespace

const char* decode_wgmma_descriptor(std::uint64_t bits, MatrixDescriptor* out) {
  common_fields(bits, out);
  if (((bits >> 46) & 7) != 0) return "bits 46-48 of a wgmma descriptor are not 0";
  if (((bits >> 52) & 0x3FF) != 0) return "reserved bits 52-61 of the wgmma descriptor are set";
  static constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k128B, Swizzle::k64B,
                                       Swizzle::k32B};
  out->swizzle = kModes[bits >> 62];
  return check_common(bits, *out);
}

const char* decode_tcgen05_descriptor(std::uint64_t bits, MatrixDescriptor* out) {
  common_fields(bits, out);
  if (((bits >> 46) & 7) != 1) {
    return "bits 46-48 of a tcgen05 descriptor are not 0b001 (is it a wgmma descriptor?)";
  }
  if (((bits >> 53) & 0xFF) != 0) return "reserved bits 53-60 of the tcgen05 descriptor are set";
  if (((bits >> 52) & 1) != 0) {
    return "the tcgen05 descriptor asks for the absolute leading-dimension mode, which only "
           "sm_103a has for "
           "K = 48 bytes";
  }
  switch (bits >> 61) {
    case 0:
      out->swizzle = Swizzle::kNone;
      break;
    case 1:
      out->swizzle = Swizzle::k128BAtom32B;
      break;
    case 2:
      out->swizzle = Swizzle::k128B;
      break;
    case 4:
      out->swizzle = Swizzle::k64B;
      break;
    case 6:
      out->swizzle = Swizzle::k32B;
      break;
    default:
      return "the tcgen05 descriptor's swizzle mode is not one of 0, 1, 2, 4, 6";
  }
  return check_common(bits, *out);
}

std::uint64_t encode_wgmma_descriptor(const MatrixDescriptor& d) {
  std::uint64_t mode = 0;
  if (d.swizzle == Swizzle::k128B) mode = 1;
  if (d.swizzle == Swizzle::k64B) mode = 2;
  if (d.swizzle == Swizzle::k32B) mode = 3;
  return packed(d) | mode << 62;
}

std::uint64_t encode_tcgen05_descriptor(const MatrixDescriptor& d) {
  std::uint64_t mode = 0;
  if (d.swizzle == Swizzle::k128BAtom32B) mode = 1;
  if (d.swizzle == Swizzle::k128B) mode = 2;
  if (d.swizzle == Swizzle::k64B) mode = 4;
  if (d.swizzle == Swizzle::k32B) mode = 6;
  return packed(d) | std::uint64_t{1} << 46 | mode << 61;
}

}  // namespace attnjit::emulator

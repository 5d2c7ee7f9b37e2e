// SPDX-License-Identifier: Apache-2.0
// Decodes tcgen05.mma's instruction descriptor and checks its shape.
#include "emulator/model/instruction_descriptor.h"

namespace attnjit::emulator {
namespace {

constexpr bool is_block_scaled(MmaKind kind) {
  return kind == MmaKind::kMxf8f6f4 || kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4;
}

/// The format that a type code names under a kind; null where it names none.
const FloatFormat* float_format(MmaKind kind, std::uint32_t code) {
  switch (kind) {
    case MmaKind::kF16:
      return code == 0 ? &kFormatF16 : code == 1 ? &kFormatBf16 : nullptr;
    case MmaKind::kTf32:
      return code == 2 ? &kFormatTf32 : nullptr;
    case MmaKind::kF8f6f4:
    case MmaKind::kMxf8f6f4: {
      static constexpr const FloatFormat* kCodes[] = {&kFormatE4m3, &kFormatE5m2, nullptr,
                                                      &kFormatE2m3, &kFormatE3m2, &kFormatE2m1};
      // NOTE: PTX ISA table 45: 0 E4M3, 1 E5M2, 3 E2M3, 4 E3M2, 5 E2M1; 2 is not assigned.
      return code < 6 ? kCodes[code] : nullptr;
    }
    case MmaKind::kMxf4:
    case MmaKind::kMxf4nvf4:
      return code == 1 ? &kFormatE2m1 : nullptr;
    case MmaKind::kI8:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

int container_bits(MmaKind kind, const FloatFormat* format) {
  if (kind == MmaKind::kMxf4 || kind == MmaKind::kMxf4nvf4) return 4;
  if (format == nullptr) return 8;
  if (format == &kFormatTf32) return 32;
  return format->bits() <= 8 ? 8 : 16;
}

const char* decode_instruction_descriptor(MmaKind kind, std::uint32_t bits,
                                          InstructionDescriptor* out) {
  const auto get = [bits](int low, int width) { return (bits >> low) & ((1u << width) - 1); };
  if (get(2, 1) != 0) return "the instruction descriptor asks for sparsity";
  InstructionDescriptor d;
  d.block_scaled = is_block_scaled(kind);
  d.negate_a = get(13, 1) != 0;
  d.negate_b = get(14, 1) != 0;
  d.transpose_a = get(15, 1) != 0;
  d.transpose_b = get(16, 1) != 0;
  d.n = static_cast<int>(get(17, 6)) * 8;
  if (d.block_scaled) {
    if (get(0, 2) != 0 || get(3, 1) != 0 || get(6, 1) != 0 || get(24, 3) != 0) {
      return "reserved bits of the block-scaled instruction descriptor are set";
    }
    d.sfb_id = static_cast<int>(get(4, 2));
    d.sfa_id = static_cast<int>(get(29, 2));
    d.scale_is_ue8m0 = get(23, 1) != 0;
    d.m = static_cast<int>(get(27, 2)) * 128;
    const bool packed = kind != MmaKind::kMxf8f6f4;
    if (get(31, 1) != 0)
      return "the instruction descriptor asks for K = 96, which only sm_103a has";
    if (!d.scale_is_ue8m0 && kind != MmaKind::kMxf4nvf4) {
      return "the instruction descriptor's scale type is UE4M3, which only kind::mxf4nvf4 has";
    }
    if (packed && (d.transpose_a || d.transpose_b)) return "a 4-bit operand cannot be MN-major";
    d.a_format = float_format(kind, get(7, 3));
    d.b_format = float_format(kind, packed ? get(10, 2) : get(10, 3));
    d.k = packed ? 64 : 32;
  } else {
    if (get(6, 1) != 0 || get(23, 1) != 0 || get(29, 1) != 0) {
      return "reserved bits of the instruction descriptor are set";
    }
    d.saturate = get(3, 1) != 0;
    d.m = static_cast<int>(get(24, 5)) * 16;
    d.b_shift = static_cast<int>(get(30, 2)) * 8;
    switch (get(4, 2)) {
      case 0:
        d.d_type = AccumulatorType::kF16;
        break;
      case 1:
        d.d_type = AccumulatorType::kF32;
        break;
      case 2:
        d.d_type = AccumulatorType::kS32;
        break;
      default:
        return "the instruction descriptor's D type is 3";
    }
    d.k = kind == MmaKind::kF16 ? 16 : kind == MmaKind::kTf32 ? 8 : 32;
    if (kind == MmaKind::kI8) {
      if (get(7, 3) > 1 || get(10, 3) > 1) return "an i8 operand's type is neither U8 nor S8";
      d.a_signed = get(7, 3) == 1;
      d.b_signed = get(10, 3) == 1;
    } else {
      d.a_format = float_format(kind, get(7, 3));
      d.b_format = float_format(kind, get(10, 3));
    }
    const bool integer = kind == MmaKind::kI8;
    if (integer != (d.d_type == AccumulatorType::kS32)) {
      return "the instruction descriptor's D type does not fit the kind";
    }
    if (d.d_type == AccumulatorType::kF16 && kind == MmaKind::kTf32) {
      return "kind::tf32 has no f16 accumulator";
    }
    if (integer && (d.negate_a || d.negate_b)) return "kind::i8 does not negate";
    if (d.saturate && !integer) return "only kind::i8 saturates";
  }
  if (kind != MmaKind::kI8 && (d.a_format == nullptr || d.b_format == nullptr)) {
    return "the instruction descriptor's A or B type is not one of this kind's";
  }
  const auto sub_byte = [](const FloatFormat* f) { return f != nullptr && f->bits() < 8; };
  if ((d.transpose_a && sub_byte(d.a_format)) || (d.transpose_b && sub_byte(d.b_format))) {
    return "a 4- or 6-bit operand cannot be MN-major";
  }
  *out = d;
  return nullptr;
}

const char* check_mma_shape(MmaKind kind, int m, int n, int cta_group, bool ws) {
  if (ws) {
    if (cta_group != 1) return "tcgen05.mma.ws exists for cta_group::1 only";
    if (is_block_scaled(kind)) return "tcgen05.mma.ws has no block-scaled kind";
    if (m != 32 && m != 64 && m != 128) return ".ws takes M 32, 64 or 128";
    if (n != 64 && n != 128 && n != 256) return ".ws takes N 64, 128 or 256";
    return nullptr;
  }
  if (n < 8 || n > 256) return "N is not in 8..256";
  if (is_block_scaled(kind)) {
    if (cta_group == 1 && m != 128) return "a block-scaled kind takes M 128 for cta_group::1";
    if (cta_group == 2 && m != 128 && m != 256) return "a block-scaled kind takes M 128 or 256";
    if (n % (cta_group == 1 ? 8 : 16) != 0) return "N is not a multiple of 8 (16 for cta_group::2)";
    return nullptr;
  }
  if (cta_group == 1 && m != 64 && m != 128) return "cta_group::1 takes M 64 or 128";
  if (cta_group == 2 && m != 128 && m != 256) return "cta_group::2 takes M 128 or 256";
  if (kind == MmaKind::kI8) {
    const bool small = cta_group == 1 && (n == 8 || n == 24);
    if (!small && n % (cta_group == 1 ? 16 : 32) != 0) return "kind::i8 does not take this N";
    return nullptr;
  }
  if (cta_group == 2) return n % 16 != 0 ? "N is not a multiple of 16" : nullptr;
  // NOTE: the ISA's table 39 says step 8 for both M; CUTLASS asserts 16 for M = 128. The ISA
  // decides.
  return n % 8 != 0 ? "N is not a multiple of 8" : nullptr;
}

}  // namespace attnjit::emulator

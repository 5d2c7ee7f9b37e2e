// SPDX-License-Identifier: Apache-2.0
// The number formats of PTX below 32 bits, decoded and encoded bit by bit, with PTX's rounding
// modes.
//
// Source: PTX ISA 9.1, sections 5.2.3 (alternate floating-point formats) and 9.7.9.21 (cvt). Pure
// functions.
#pragma once

#include <bit>
#include <cstdint>

namespace attnjit::emulator {

enum class Rounding : std::uint8_t {
  kNearestEven,  ///< .rn
  kTowardZero,   ///< .rz
  kNearestAway,  ///< .rna: nearest, ties away from zero
  kDown,         ///< .rm
  kUp,           ///< .rp
};

/// A binary floating-point format of at most 32 bits.
struct FloatFormat {
  enum class Special : std::uint8_t {
    kIeee,             ///< infinities and NaNs in the highest exponent
    kNanOnly,          ///< e4m3: no infinity; only S.1111.111 is NaN
    kFinite,           ///< e2m1, e2m3, e3m2: every code is a number
    kExponent,         ///< ue8m0: no sign, no mantissa, 0xFF is NaN
    kUnsignedNanOnly,  ///< ue4m3: e4m3 without sign
  };
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Special special;

  constexpr int bits() const {
    const bool sign = special != Special::kExponent && special != Special::kUnsignedNanOnly;
    return exponent_bits + mantissa_bits + (sign ? 1 : 0);
  }
  constexpr bool is_signed() const {
    return special != Special::kExponent && special != Special::kUnsignedNanOnly;
  }
  /// Exponent of the smallest normal number, which subnormals share.
  constexpr int min_exponent() const { return special == Special::kExponent ? -bias : 1 - bias; }
};

inline constexpr FloatFormat kFormatF32{8, 23, 127, FloatFormat::Special::kIeee};
inline constexpr FloatFormat kFormatTf32{8, 10, 127,
                                         FloatFormat::Special::kIeee};  ///< in the high 19 bits
inline constexpr FloatFormat kFormatBf16{8, 7, 127, FloatFormat::Special::kIeee};
inline constexpr FloatFormat kFormatF16{5, 10, 15, FloatFormat::Special::kIeee};
inline constexpr FloatFormat kFormatE5m2{5, 2, 15, FloatFormat::Special::kIeee};
inline constexpr FloatFormat kFormatE4m3{4, 3, 7, FloatFormat::Special::kNanOnly};
inline constexpr FloatFormat kFormatE3m2{3, 2, 3, FloatFormat::Special::kFinite};
inline constexpr FloatFormat kFormatE2m3{2, 3, 1, FloatFormat::Special::kFinite};
inline constexpr FloatFormat kFormatE2m1{2, 1, 1, FloatFormat::Special::kFinite};
inline constexpr FloatFormat kFormatUe8m0{8, 0, 127, FloatFormat::Special::kExponent};
inline constexpr FloatFormat kFormatUe4m3{4, 3, 7, FloatFormat::Special::kUnsignedNanOnly};

/// The value of a code; exact. NaN codes give a quiet NaN.
double decode(const FloatFormat& format, std::uint32_t code);

struct EncodeOptions {
  Rounding rounding = Rounding::kNearestEven;
  bool saturate =
      false;          ///< .satfinite: beyond the largest number (infinity too): the largest, signed
  bool relu = false;  ///< .relu: negative gives +0, NaN the canonical NaN
};

/// The code of a value under a rounding mode. `value` must be exact in double (any f32, f16 or bf16
/// is). NaN gives the canonical NaN (0x7FFF for 16-bit formats, 0x7F for e4m3 and e5m2, the largest
/// number for formats without one). Without saturation, overflow gives infinity (or NaN where there
/// is none) under .rn/.rna and the directed modes' finite bound otherwise.
std::uint32_t encode(const FloatFormat& format, double value, EncodeOptions options = {});

inline float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t float_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }

inline float bf16_to_float(std::uint16_t code) {
  return bits_to_float(static_cast<std::uint32_t>(code) << 16);
}

/// cvt.rn.bf16.f32, the hot one: the same as encode(kFormatBf16, value).
inline std::uint16_t float_to_bf16_rn(float value) {
  const std::uint32_t bits = float_to_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float half_to_float(std::uint16_t code);
std::uint16_t float_to_half_rn(float value);

/// Double to f32 toward zero, subnormals kept; what a tensor core's output rounding does.
float round_toward_zero(double value);

}  // namespace attnjit::emulator

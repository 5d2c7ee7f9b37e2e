// SPDX-License-Identifier: Apache-2.0
// Decodes and encodes the small number formats, with every rounding mode of PTX.
#include "emulator/model/numeric.h"

#include <cmath>
#include <limits>

namespace attnjit::emulator {
namespace {

using Special = FloatFormat::Special;

/// The largest finite code without its sign.
std::uint32_t max_code(const FloatFormat& f) {
  const std::uint32_t mantissa = (1u << f.mantissa_bits) - 1;
  const std::uint32_t exponent = (1u << f.exponent_bits) - 1;
  switch (f.special) {
    case Special::kIeee:
      return ((exponent - 1) << f.mantissa_bits) | mantissa;
    case Special::kNanOnly:
    case Special::kUnsignedNanOnly:
      return (exponent << f.mantissa_bits) | (mantissa - 1);
    case Special::kFinite:
      return (exponent << f.mantissa_bits) | mantissa;
    case Special::kExponent:
      return exponent - 1;
  }
  return 0;
}

std::uint32_t nan_code(const FloatFormat& f) {
  // NOTE: PTX's canonical NaN has every bit but the sign set, in each format that has a NaN.
  if (f.special == Special::kFinite) return max_code(f);
  if (f.special == Special::kExponent) return 0xFF;
  return (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
}

/// Rounds a non-negative x to an integer; `negative` is the sign that directed modes look at.
double round_magnitude(double x, Rounding rounding, bool negative) {
  const double floor = std::floor(x);
  const double rest = x - floor;
  if (rest == 0) return floor;
  switch (rounding) {
    case Rounding::kNearestEven:
      if (rest != 0.5) return rest > 0.5 ? floor + 1 : floor;
      return std::fmod(floor, 2.0) == 0 ? floor : floor + 1;
    case Rounding::kNearestAway:
      return rest >= 0.5 ? floor + 1 : floor;
    case Rounding::kTowardZero:
      return floor;
    case Rounding::kDown:
      return negative ? floor + 1 : floor;
    case Rounding::kUp:
      return negative ? floor : floor + 1;
  }
  return floor;
}

std::uint32_t overflow_code(const FloatFormat& f, EncodeOptions options, bool negative,
                            bool infinite) {
  if (options.saturate || f.special == Special::kFinite) return max_code(f);
  const bool stops_at_max = !infinite && (options.rounding == Rounding::kTowardZero ||
                                          (options.rounding == Rounding::kDown && !negative) ||
                                          (options.rounding == Rounding::kUp && negative));
  if (stops_at_max) return max_code(f);
  if (f.special == Special::kIeee) return ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  return nan_code(f);
}

}  // namespace

double decode(const FloatFormat& f, std::uint32_t code) {
  if (f.special == Special::kExponent) {
    return (code & 0xFF) == 0xFF ? std::numeric_limits<double>::quiet_NaN()
                                 : std::ldexp(1.0, static_cast<int>(code & 0xFF) - f.bias);
  }
  const std::uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
  const std::uint32_t exponent = (code >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1);
  const bool negative = f.is_signed() && ((code >> (f.exponent_bits + f.mantissa_bits)) & 1) != 0;
  const bool top = exponent == (1u << f.exponent_bits) - 1;
  double magnitude = 0;
  if (top && f.special == Special::kIeee) {
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                              : std::numeric_limits<double>::infinity();
  } else if (top && (f.special == Special::kNanOnly || f.special == Special::kUnsignedNanOnly) &&
             mantissa == (1u << f.mantissa_bits) - 1) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<double>(mantissa), f.min_exponent() - f.mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<double>(mantissa | (1u << f.mantissa_bits)),
                           static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

std::uint32_t encode(const FloatFormat& f, double value, EncodeOptions options) {
  if (std::isnan(value)) return nan_code(f);
  bool negative = std::signbit(value);
  if (negative && options.relu) {
    value = 0;
    negative = false;
  }
  if (negative && !f.is_signed()) {
    // NOTE: unsigned formats have no negative numbers; PTX takes the magnitude of ue8m0's source
    // and clamps ue4m3's. Neither occurs in a scale factor that is one.
    if (f.special == Special::kUnsignedNanOnly) value = 0;
    negative = false;
  }
  const std::uint32_t sign = negative ? 1u << (f.exponent_bits + f.mantissa_bits) : 0u;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | overflow_code(f, options, negative, true);
  if (magnitude == 0 && f.special != Special::kExponent) return sign;

  int exponent = magnitude == 0 ? f.min_exponent() : std::ilogb(magnitude);
  if (exponent < f.min_exponent()) exponent = f.min_exponent();
  // The code's integer, in units of the last place at this exponent; a carry moves it to the next
  // exponent.
  double units = round_magnitude(std::ldexp(magnitude, f.mantissa_bits - exponent),
                                 options.rounding, negative);
  if (units >= std::ldexp(1.0, f.mantissa_bits + 1)) {
    units /= 2;
    ++exponent;
  }
  const auto integer = static_cast<std::uint32_t>(units);
  if (f.special == Special::kExponent) {
    const int biased = exponent + f.bias + (integer == 0 ? -1 : 0);
    if (biased > 254) return overflow_code(f, options, negative, false);
    return biased < 0 ? 0u : static_cast<std::uint32_t>(biased);
  }
  const std::uint32_t hidden = 1u << f.mantissa_bits;
  const std::uint32_t code =
      integer < hidden
          ? integer  // subnormal, or zero
          : (static_cast<std::uint32_t>(exponent + f.bias) << f.mantissa_bits) | (integer - hidden);
  if (integer >= hidden && (exponent + f.bias >= (1 << f.exponent_bits) || code > max_code(f))) {
    return sign | overflow_code(f, options, negative, false);
  }
  return sign | code;
}

float half_to_float(std::uint16_t code) { return static_cast<float>(decode(kFormatF16, code)); }

std::uint16_t float_to_half_rn(float value) {
  return static_cast<std::uint16_t>(encode(kFormatF16, static_cast<double>(value)));
}

float round_toward_zero(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isinf(nearest) && !std::isinf(value)) return nearest;  // beyond f32's range: infinity
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) {
    return bits_to_float(float_to_bits(nearest) - 1);
  }
  return nearest;
}

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// Rounds floats to bf16, fp16 and e4m3, and widens them again.
#include "verify/numeric.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace attnjit::verify {
namespace {

// A binary format with `mantissa` stored bits and exponent bias `bias`: the code of |value| before
// overflow is looked at. Exact: the scaling is by powers of two, and nearbyint rounds to even.
std::uint32_t magnitude_code(double magnitude, int mantissa, int bias) {
  const int min_exponent = 1 - bias;
  int exponent = magnitude == 0 ? min_exponent : std::ilogb(magnitude);
  if (exponent < min_exponent) exponent = min_exponent;
  const auto steps =
      static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa - exponent)));
  // NOTE: addition, not or: rounding up to the next binade carries into the exponent, and for a
  // subnormal the exponent field is 0 because steps lacks the hidden bit.
  return (static_cast<std::uint32_t>(exponent - min_exponent) << mantissa) + steps;
}

float float_from_code(std::uint32_t code, int mantissa, int bias) {
  const std::uint32_t exponent = code >> mantissa;
  const std::uint32_t fraction = code & ((1U << mantissa) - 1);
  const double steps = exponent == 0 ? fraction : static_cast<double>(fraction + (1U << mantissa));
  const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias - mantissa;
  return static_cast<float>(std::ldexp(steps, scale));
}

const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (std::uint32_t code = 0; code < 256; ++code) {
      const std::uint32_t magnitude = code & 0x7f;
      const float value = magnitude == 0x7f ? std::numeric_limits<float>::quiet_NaN()
                                            : float_from_code(magnitude, 3, 7);
      values[code] = (code & 0x80) != 0 ? -value : value;
    }
    return values;
  }();
  return table;
}

const std::vector<float>& fp16_table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(1U << 16);
    for (std::uint32_t code = 0; code < values.size(); ++code) {
      const std::uint32_t magnitude = code & 0x7fff;
      float value = 0;
      if (magnitude > 0x7c00) {
        value = std::numeric_limits<float>::quiet_NaN();
      } else if (magnitude == 0x7c00) {
        value = std::numeric_limits<float>::infinity();
      } else {
        value = float_from_code(magnitude, 10, 15);
      }
      values[code] = (code & 0x8000) != 0 ? -value : value;
    }
    return values;
  }();
  return table;
}

}  // namespace

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

std::uint16_t fp16_from_float(float value) {
  if (std::isnan(value)) return 0x7fff;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  std::uint32_t code = 0x7c00;
  if (std::isfinite(value)) {
    code = magnitude_code(std::fabs(static_cast<double>(value)), 10, 15);
    if (code > 0x7c00) code = 0x7c00;
  }
  return static_cast<std::uint16_t>(sign | code);
}

std::uint8_t e4m3_from_float(float value) {
  if (std::isnan(value)) return 0x7f;
  const std::uint32_t sign = std::signbit(value) ? 0x80 : 0;
  std::uint32_t code = 0x7e;
  if (std::isfinite(value)) {
    code = magnitude_code(std::fabs(static_cast<double>(value)), 3, 7);
    if (code > 0x7e) code = 0x7e;
  }
  return static_cast<std::uint8_t>(sign | code);
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
float float_from_fp16(std::uint16_t bits) { return fp16_table()[bits]; }
float float_from_e4m3(std::uint8_t bits) { return e4m3_table()[bits]; }

bool is_float_storage(Dtype dtype) {
  return dtype == Dtype::kBf16 || dtype == Dtype::kFp16 || dtype == Dtype::kE4m3 ||
         dtype == Dtype::kF32;
}

void store_float(Tensor& tensor, std::int64_t index, float value) {
  switch (tensor.dtype) {
    case Dtype::kBf16:
      tensor.as<std::uint16_t>()[index] = bf16_from_float(value);
      break;
    case Dtype::kFp16:
      tensor.as<std::uint16_t>()[index] = fp16_from_float(value);
      break;
    case Dtype::kE4m3:
      tensor.as<std::uint8_t>()[index] = e4m3_from_float(value);
      break;
    default:
      tensor.as<float>()[index] = value;
      break;
  }
}

float load_float(const Tensor& tensor, std::int64_t index) {
  switch (tensor.dtype) {
    case Dtype::kBf16:
      return float_from_bf16(tensor.as<std::uint16_t>()[index]);
    case Dtype::kFp16:
      return float_from_fp16(tensor.as<std::uint16_t>()[index]);
    case Dtype::kE4m3:
      return float_from_e4m3(tensor.as<std::uint8_t>()[index]);
    default:
      return tensor.as<float>()[index];
  }
}

void load_doubles(const Tensor& tensor, std::int64_t first, std::int64_t count, double* out) {
  switch (tensor.dtype) {
    case Dtype::kBf16: {
      const std::uint16_t* in = tensor.as<std::uint16_t>() + first;
      for (std::int64_t i = 0; i < count; ++i) out[i] = float_from_bf16(in[i]);
      break;
    }
    case Dtype::kFp16: {
      const std::uint16_t* in = tensor.as<std::uint16_t>() + first;
      const std::vector<float>& table = fp16_table();
      for (std::int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
      break;
    }
    case Dtype::kE4m3: {
      const std::uint8_t* in = tensor.as<std::uint8_t>() + first;
      const std::array<float, 256>& table = e4m3_table();
      for (std::int64_t i = 0; i < count; ++i) out[i] = table[in[i]];
      break;
    }
    case Dtype::kF64:
      std::copy_n(tensor.as<double>() + first, count, out);
      break;
    default: {
      const float* in = tensor.as<float>() + first;
      for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
      break;
    }
  }
}

Tensor widened(const Tensor& tensor) {
  if (!is_float_storage(tensor.dtype) || tensor.dtype == Dtype::kF32) return tensor;
  Tensor result = make_tensor(Dtype::kF32, tensor.shape);
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i) result.as<float>()[i] = load_float(tensor, i);
  return result;
}

void poison(Tensor& tensor) {
  // All bits set is a NaN in bf16, fp16, e4m3, f32 and f64 alike.
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::uint8_t{0xff});
}

}  // namespace attnjit::verify

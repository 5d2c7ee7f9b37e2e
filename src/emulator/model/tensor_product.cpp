// SPDX-License-Identifier: Apache-2.0
// Computes a matrix product with the tensor cores' exact products and truncating sums.
#include "emulator/model/tensor_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace attnjit::emulator {
namespace {

// A zero operand takes its product out of the search for the largest exponent, whatever it is
// multiplied with (seen on an H200: 0 beside the largest bf16 does not coarsen the sum).
constexpr std::int32_t kZeroExponent = -1000;

constexpr std::int32_t kSmallestExponent = -126;  // of f32 and bf16: what their subnormals share

/// 2^e as a double, for e in the normal range.
inline double power_of_two(std::int64_t e) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}

/// Exponent of an f32 addend, unnormalised as the model wants it: subnormals share the smallest
/// normal's.
inline std::int32_t addend_exponent(float value) {
  const auto biased = static_cast<std::int32_t>((float_to_bits(value) >> 23) & 0xFF);
  return biased == 0 ? kSmallestExponent : biased - 127;
}

/// The model's result from the exact sum: f32 truncated to `output_fraction` bits below its leading
/// one, or f16 rounded to nearest even.
float round_output(double sum, const ProductModel& model) {
  if (sum == 0) return 0.0f;
  if (model.f16_output) return static_cast<float>(decode(kFormatF16, encode(kFormatF16, sum)));
  if (model.output_fraction == 23) return round_toward_zero(sum);
  int exponent = std::ilogb(sum);
  exponent = std::max(exponent, -126);
  const double unit = std::ldexp(1.0, exponent - model.output_fraction);
  return round_toward_zero(std::trunc(sum / unit) * unit);
}

float special_sum(const ProductOperand& a, const ProductOperand& b, int m, int n, float c) {
  double sum = c;
  for (int k = 0; k < a.k; ++k) {
    sum += a.value[static_cast<std::size_t>(k) * a.extent + m] *
           b.value[static_cast<std::size_t>(k) * b.extent + n];
  }
  return std::isnan(sum) ? bits_to_float(0x7FFFFFFF) : static_cast<float>(sum);
}

// NOTE: no clones under ThreadSanitizer: the loader calls their resolver before the sanitizer is
// there, and the process dies before main.
#if defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define ATTNJIT_VECTOR_CLONES
#else
#define ATTNJIT_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

/// One row of D. Written as flat loops over n so that the compiler vectorises them.
ATTNJIT_VECTOR_CLONES void product_row(const ProductModel& model, int n_count, int k_count,
                                       const double* a_value, const std::int32_t* a_exponent,
                                       const double* b_value, const std::int32_t* b_exponent,
                                       const float* c, std::int32_t* largest, double* scale,
                                       double* sum) {
  for (int n = 0; n < n_count; ++n) largest[n] = addend_exponent(c[n]);
  for (int k = 0; k < k_count; ++k) {
    const std::int32_t ea = a_exponent[k];
    const std::int32_t* eb = b_exponent + static_cast<std::size_t>(k) * n_count;
    for (int n = 0; n < n_count; ++n) largest[n] = std::max(largest[n], ea + eb[n]);
  }
  for (int n = 0; n < n_count; ++n) {
    scale[n] = power_of_two(model.fraction_bits - static_cast<std::int64_t>(largest[n]));
    sum[n] = std::trunc(static_cast<double>(c[n]) * scale[n]);
  }
  for (int k = 0; k < k_count; ++k) {
    const double va = a_value[k];
    if (va == 0) continue;
    const double* vb = b_value + static_cast<std::size_t>(k) * n_count;
    for (int n = 0; n < n_count; ++n) sum[n] += std::trunc(va * vb[n] * scale[n]);
  }
  for (int n = 0; n < n_count; ++n) {
    sum[n] *= power_of_two(static_cast<std::int64_t>(largest[n]) - model.fraction_bits);
  }
}

bool is_finite(float value) { return (float_to_bits(value) & 0x7F800000u) != 0x7F800000u; }

}  // namespace

void ProductOperand::reset(int new_extent, int new_k) {
  extent = new_extent;
  k = new_k;
  finite.assign(static_cast<std::size_t>(extent), 1);
  const auto count = static_cast<std::size_t>(extent) * static_cast<std::size_t>(k);
  value.assign(count, 0.0);
  exponent.assign(count, kZeroExponent);
}

namespace {

/// A code's value and unnormalised exponent.
struct Term {
  double value;
  std::int32_t exponent;
};

Term slow_term(const FloatFormat& format, std::uint32_t code) {
  const double v = decode(format, code);
  std::int32_t e = kZeroExponent;
  if (std::isfinite(v) && v != 0) e = std::max(std::ilogb(v), format.min_exponent());
  return {v, e};
}

/// Every format of at most 8 bits, by code.
std::array<Term, 256> make_table(const FloatFormat& format) {
  std::array<Term, 256> table{};
  for (std::uint32_t code = 0; code < 256; ++code) table[code] = slow_term(format, code);
  return table;
}

Term term_of(const FloatFormat& format, std::uint32_t code) {
  // NOTE: the 16-bit formats are decoded by moving their bits: ldexp costs more than the products.
  if (&format == &kFormatBf16) {
    const auto biased = static_cast<std::int32_t>((code >> 7) & 0xFF);
    const std::int32_t e = biased != 0          ? biased - 127
                           : (code & 0x7F) != 0 ? kSmallestExponent
                                                : kZeroExponent;
    return {static_cast<double>(bits_to_float(code << 16)), e};
  }
  if (&format == &kFormatF16) {
    const std::uint32_t exponent = (code >> 10) & 31, mantissa = code & 0x3FF;
    if (exponent != 0 && exponent != 31) {
      const std::uint64_t bits = static_cast<std::uint64_t>(code & 0x8000) << 48 |
                                 static_cast<std::uint64_t>(exponent + 1008) << 52 |
                                 static_cast<std::uint64_t>(mantissa) << 42;
      return {std::bit_cast<double>(bits), static_cast<std::int32_t>(exponent) - 15};
    }
  } else if (&format == &kFormatE4m3) {
    static const std::array<Term, 256> kTable = make_table(kFormatE4m3);
    return kTable[code & 0xFF];
  } else if (&format == &kFormatE5m2) {
    static const std::array<Term, 256> kTable = make_table(kFormatE5m2);
    return kTable[code & 0xFF];
  }
  return slow_term(format, code);
}

}  // namespace

void ProductOperand::set(const FloatFormat& format, int row, int index_k, std::uint32_t code,
                         bool negate) {
  const Term term = term_of(format, code);
  if (!std::isfinite(term.value)) finite[static_cast<std::size_t>(row)] = 0;
  set_value(row, index_k, negate ? -term.value : term.value, term.exponent);
}

void tensor_product(const ProductModel& model, const ProductOperand& a, const ProductOperand& b,
                    const float* c, float* d) {
  const int m_count = a.extent, n_count = b.extent, k_count = a.k;
  const auto width = static_cast<std::size_t>(n_count);
  std::vector<double> a_value(static_cast<std::size_t>(k_count));
  std::vector<std::int32_t> a_exponent(static_cast<std::size_t>(k_count));
  std::vector<std::int32_t> largest(width);
  std::vector<double> scale(width), sum(width);
  std::vector<float> addend(width, 0.0f);
  for (int m = 0; m < m_count; ++m) {
    const std::size_t row = static_cast<std::size_t>(m) * width;
    if (c != nullptr) std::copy_n(c + row, width, addend.begin());
    if (a.finite[static_cast<std::size_t>(m)] == 0) {
      for (int n = 0; n < n_count; ++n) d[row + n] = special_sum(a, b, m, n, addend[n]);
      continue;
    }
    for (int k = 0; k < k_count; ++k) {
      a_value[k] = a.value[static_cast<std::size_t>(k) * m_count + m];
      a_exponent[k] = a.exponent[static_cast<std::size_t>(k) * m_count + m];
    }
    product_row(model, n_count, k_count, a_value.data(), a_exponent.data(), b.value.data(),
                b.exponent.data(), addend.data(), largest.data(), scale.data(), sum.data());
    // A column that is not finite stays in its column: the others' sums are as they should be.
    for (int n = 0; n < n_count; ++n) {
      d[row + n] = b.finite[static_cast<std::size_t>(n)] != 0 && is_finite(addend[n])
                       ? round_output(sum[n], model)
                       : special_sum(a, b, m, n, addend[n]);
    }
  }
}

void mma_sync_fp8(const ProductOperand& a, const ProductOperand& b, const float* c, float* d) {
  const int half = a.k / 2;
  const auto part = [half](const ProductOperand& whole, int first) {
    ProductOperand p;
    p.reset(whole.extent, half);
    for (int row = 0; row < whole.extent; ++row) {
      for (int i = 0; i < half; ++i) {
        const int k = i / 2 * 4 + first + i % 2;
        const double v = whole.value[static_cast<std::size_t>(k) * whole.extent + row];
        p.set(kFormatF16, row, i, encode(kFormatF16, v));
      }
    }
    return p;
  };
  std::vector<float> sum(static_cast<std::size_t>(a.extent) * b.extent);
  tensor_product(kMmaSync, part(a, 0), part(b, 0), nullptr, sum.data());
  tensor_product(kMmaSync, part(a, 2), part(b, 2), sum.data(), sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float total = c != nullptr ? c[i] + sum[i] : sum[i];
    d[i] = std::isnan(total) ? bits_to_float(0x7FFFFFFF) : total;
  }
}

void scaled_tensor_product(const ProductModel& model, const ProductOperand& a,
                           const ProductOperand& b, const BlockScales& scales, bool exact_blocks,
                           const float* c, float* d) {
  const int blocks = a.k / scales.block;
  // Terms that are aligned one by one: every product, or, with exact blocks, each run of 16
  // products.
  const int run = exact_blocks ? 16 : 1;
  for (int m = 0; m < a.extent; ++m) {
    for (int n = 0; n < b.extent; ++n) {
      const std::size_t at = static_cast<std::size_t>(m) * b.extent + n;
      const float addend = c != nullptr ? c[at] : 0.0f;
      double plain = addend;
      std::int32_t largest = addend_exponent(addend);
      double term[64];
      int terms = 0;
      for (int k = 0; k < a.k; k += run) {
        const double sa = scales.a[static_cast<std::size_t>(m) * blocks + k / scales.block];
        const double sb = scales.b[static_cast<std::size_t>(n) * blocks + k / scales.block];
        double dot = 0;
        std::int32_t e = exact_blocks ? 0 : kZeroExponent;
        for (int i = 0; i < run; ++i) {
          const std::size_t ia = static_cast<std::size_t>(k + i) * a.extent + m;
          const std::size_t ib = static_cast<std::size_t>(k + i) * b.extent + n;
          dot += a.value[ia] * b.value[ib];
          if (!exact_blocks) e = a.exponent[ia] + b.exponent[ib];
        }
        term[terms] = dot * sa * sb;
        plain += term[terms];
        ++terms;
        if (std::isfinite(sa) && std::isfinite(sb)) {
          const int scale_exponent = (sa != 0 ? std::ilogb(sa) : kZeroExponent) +
                                     (sb != 0 ? std::ilogb(sb) : kZeroExponent);
          largest = std::max(largest, e + scale_exponent);
        }
      }
      if (!std::isfinite(plain)) {
        d[at] = std::isnan(plain) ? bits_to_float(0x7FFFFFFF) : static_cast<float>(plain);
        continue;
      }
      double sum =
          std::trunc(std::ldexp(static_cast<double>(addend), model.fraction_bits - largest));
      for (int i = 0; i < terms; ++i) {
        sum += std::trunc(std::ldexp(term[i], model.fraction_bits - largest));
      }
      d[at] = round_output(std::ldexp(sum, largest - model.fraction_bits), model);
    }
  }
}

void integer_product(const std::int32_t* a, const std::int32_t* b, int m, int n, int k,
                     bool saturate, const std::int32_t* c, std::int32_t* d) {
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      std::int64_t sum = c != nullptr ? c[static_cast<std::size_t>(row) * n + column] : 0;
      for (int i = 0; i < k; ++i) {
        sum += static_cast<std::int64_t>(a[static_cast<std::size_t>(row) * k + i]) *
               b[static_cast<std::size_t>(column) * k + i];
      }
      if (saturate) {
        sum = std::clamp<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min(),
                                       std::numeric_limits<std::int32_t>::max());
      }
      d[static_cast<std::size_t>(row) * n + column] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(sum));
    }
  }
}

}  // namespace attnjit::emulator

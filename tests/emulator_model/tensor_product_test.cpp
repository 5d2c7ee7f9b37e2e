// SPDX-License-Identifier: Apache-2.0
// Tests of the tensor cores' arithmetic: the aligned truncating sum, its special values, and scaled
// blocks.
#include "emulator/model/tensor_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace attnjit::emulator {
namespace {

ProductOperand operand(const FloatFormat& format, const std::vector<std::vector<double>>& rows) {
  ProductOperand o;
  o.reset(static_cast<int>(rows.size()), static_cast<int>(rows[0].size()));
  for (int r = 0; r < o.extent; ++r) {
    for (int k = 0; k < o.k; ++k) {
      o.set(format, r, k,
            encode(format, rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(k)]));
    }
  }
  return o;
}

float product(const ProductModel& model, const FloatFormat& format, const std::vector<double>& a,
              const std::vector<double>& b, float c) {
  float d = -1;
  tensor_product(model, operand(format, {a}), operand(format, {b}), &c, &d);
  return d;
}

TEST(TensorProduct, SumsExactly) {
  EXPECT_EQ(product(kTcgen05, kFormatBf16, std::vector<double>(16, 1.0),
                    std::vector<double>(16, 1.0), 0.5f),
            16.5f);
}

TEST(TensorProduct, DropsWhatFallsBelowTheLargestTerm) {
  // 2^-26 beside 1 lies below the 25 fractional bits that are kept; 2^-25 does not, but f32
  // truncates it.
  EXPECT_EQ(product(kTcgen05, kFormatBf16, {1.0, std::ldexp(1.0, -26)}, {1.0, 1.0}, 0), 1.0f);
  EXPECT_EQ(product(kTcgen05, kFormatBf16, {1.0, std::ldexp(1.0, -25), -1.0}, {1.0, 1.0, 1.0}, 0),
            std::ldexp(1.0f, -25));
  EXPECT_EQ(product(kTcgen05, kFormatBf16, {1.0, std::ldexp(1.0, -26), -1.0}, {1.0, 1.0, 1.0}, 0),
            0.0f);
  // Truncation is toward zero on both sides.
  EXPECT_EQ(product(kTcgen05, kFormatBf16, {-1.0, -std::ldexp(1.0, -25)}, {1.0, 1.0}, 0), -1.0f);
  // Hopper's FP8 keeps 13 bits.
  EXPECT_EQ(
      product(kWgmmaFp8, kFormatE4m3, {1.0, std::ldexp(1.0, -7)}, {1.0, std::ldexp(1.0, -7)}, 0),
      1.0f);
  EXPECT_EQ(
      product(kTcgen05, kFormatE4m3, {1.0, std::ldexp(1.0, -7)}, {1.0, std::ldexp(1.0, -7)}, 0),
      1.0f + std::ldexp(1.0f, -14));
}

TEST(TensorProduct, OperandsDecodeEveryCode) {
  for (const FloatFormat* format :
       {&kFormatBf16, &kFormatF16, &kFormatE4m3, &kFormatE5m2, &kFormatE2m1}) {
    for (std::uint32_t code = 0; code < (1u << format->bits()); ++code) {
      ProductOperand o;
      o.reset(1, 1);
      o.set(*format, 0, 0, code);
      const double expected = decode(*format, code);
      EXPECT_EQ(o.finite[0] != 0, std::isfinite(expected));
      if (!std::isfinite(expected)) continue;
      EXPECT_EQ(o.value[0], expected);
      EXPECT_EQ(std::signbit(o.value[0]), std::signbit(expected));
      if (expected == 0) continue;
      EXPECT_EQ(o.exponent[0], std::max(std::ilogb(expected), format->min_exponent())) << code;
    }
  }
}

TEST(TensorProduct, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(product(kTcgen05, kFormatBf16, {inf, 1.0}, {2.0, 1.0}, 0),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_to_bits(product(kTcgen05, kFormatBf16, {inf, inf}, {1.0, -1.0}, 0)), 0x7FFFFFFFu);
  EXPECT_EQ(float_to_bits(product(kTcgen05, kFormatBf16, {inf}, {0.0}, 0)), 0x7FFFFFFFu);
  EXPECT_EQ(float_to_bits(product(kTcgen05, kFormatBf16, {0.0}, {0.0}, 0)), 0u);
}

/// The model, straight from its definition, one term at a time.
float naive(const ProductModel& model, const FloatFormat& format, const std::vector<double>& a,
            const std::vector<double>& b, float c) {
  struct Term {
    double value;
    int exponent;
  };
  const auto exponent = [](double v, int least) {
    return v == 0 ? -126 : std::max(static_cast<int>(std::floor(std::log2(std::fabs(v)))), least);
  };
  std::vector<Term> terms{{c, exponent(c, -126)}};
  for (std::size_t i = 0; i < a.size(); ++i) {
    terms.push_back({a[i] * b[i], exponent(a[i], format.min_exponent()) +
                                      exponent(b[i], format.min_exponent())});
  }
  int largest = -100000;
  for (const Term& t : terms) largest = std::max(largest, t.exponent);
  double sum = 0;
  for (const Term& t : terms) sum += std::trunc(std::ldexp(t.value, model.fraction_bits - largest));
  sum = std::ldexp(sum, largest - model.fraction_bits);
  return round_toward_zero(sum);
}

TEST(TensorProduct, MatchesTheDefinitionOnRandomTiles) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (const FloatFormat* format : {&kFormatBf16, &kFormatF16, &kFormatE4m3}) {
    for (int round = 0; round < 50; ++round) {
      const int m = 3, n = 5, k = 16;
      std::vector<std::vector<double>> a(m, std::vector<double>(k)), b(n, std::vector<double>(k));
      for (auto* rows : {&a, &b}) {
        for (auto& row : *rows) {
          for (double& v : row) {
            v = decode(*format, encode(*format, normal(random) * std::exp(2 * normal(random)),
                                       {Rounding::kNearestEven, true, false}));
          }
        }
      }
      std::vector<float> c(m * n), d(m * n);
      for (float& v : c) v = static_cast<float>(normal(random));
      tensor_product(kTcgen05, operand(*format, a), operand(*format, b), c.data(), d.data());
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          EXPECT_EQ(d[i * n + j], naive(kTcgen05, *format, a[i], b[j], c[i * n + j]));
        }
      }
    }
  }
}

TEST(TensorProduct, BlockScalesMultiplyTheirBlock) {
  const std::vector<double> ones(64, 1.0);
  const ProductOperand a = operand(kFormatE2m1, {ones}), b = operand(kFormatE2m1, {ones});
  BlockScales scales{32, {2.0, 0.5}, {1.0, 4.0}};
  float d = 0;
  scaled_tensor_product(kTcgen05Mxf4, a, b, scales, true, nullptr, &d);
  EXPECT_EQ(d, 32 * 2.0f + 32 * 2.0f);
  scales.a[0] = std::numeric_limits<double>::quiet_NaN();
  scaled_tensor_product(kTcgen05Mxf4, a, b, scales, true, nullptr, &d);
  EXPECT_EQ(float_to_bits(d), 0x7FFFFFFFu);
}

TEST(IntegerProduct, WrapsOrSaturates) {
  const std::vector<std::int32_t> a(32, 127), b(32, 127);
  const std::int32_t c = std::numeric_limits<std::int32_t>::max();
  std::int32_t d = 0;
  integer_product(a.data(), b.data(), 1, 1, 32, true, &c, &d);
  EXPECT_EQ(d, c);
  integer_product(a.data(), b.data(), 1, 1, 32, false, &c, &d);
  EXPECT_LT(d, 0);
}

}  // namespace
}  // namespace attnjit::emulator

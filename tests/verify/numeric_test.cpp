// SPDX-License-Identifier: Apache-2.0
// Rounding to 16 and 8 bits, against an exhaustive nearest-value search and published bit patterns.
#include "verify/numeric.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "verify/random.h"

namespace attnjit::verify {
namespace {

TEST(Numeric, Bf16KnownBits) {
  EXPECT_EQ(bf16_from_float(1.0F), 0x3f80);
  EXPECT_EQ(bf16_from_float(-2.0F), 0xc000);
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // tie to even: down
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3f818000U)), 0x3f82);  // tie to even: up
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  EXPECT_EQ(bf16_from_float(std::nanf("")), 0x7fff);
  EXPECT_EQ(bf16_from_float(-0.0F), 0x8000);
}

TEST(Numeric, Fp16KnownBits) {
  EXPECT_EQ(fp16_from_float(1.0F), 0x3c00);
  EXPECT_EQ(fp16_from_float(65504.0F), 0x7bff);
  EXPECT_EQ(fp16_from_float(65519.0F), 0x7bff);
  EXPECT_EQ(fp16_from_float(65520.0F), 0x7c00);  // the tie goes to infinity
  EXPECT_EQ(fp16_from_float(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(fp16_from_float(0x1p-24F), 0x0001);  // smallest subnormal
  EXPECT_EQ(fp16_from_float(0x1p-25F), 0x0000);  // tie to even: zero
  EXPECT_EQ(fp16_from_float(0x1.8p-25F), 0x0001);
  EXPECT_EQ(fp16_from_float(0x1.ffcp-15F), 0x0400);  // rounds up into the normals
  EXPECT_EQ(fp16_from_float(0.1F), 0x2e66);
}

TEST(Numeric, E4m3KnownBits) {
  EXPECT_EQ(e4m3_from_float(1.0F), 0x38);
  EXPECT_EQ(e4m3_from_float(448.0F), 0x7e);
  EXPECT_EQ(e4m3_from_float(1e9F), 0x7e);  // saturates
  EXPECT_EQ(e4m3_from_float(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(e4m3_from_float(0x1p-9F), 0x01);
  EXPECT_EQ(e4m3_from_float(0x1p-10F), 0x00);
  EXPECT_EQ(float_from_e4m3(0x7e), 448.0F);
  EXPECT_TRUE(std::isnan(float_from_e4m3(0xff)));
}

// Every finite value of the format; the nearest one wins, of two the one with an even code.
template <class Decode>
std::uint32_t nearest(float value, std::uint32_t largest_code, Decode decode) {
  const double magnitude = std::fabs(static_cast<double>(value));
  std::uint32_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (std::uint32_t code = 0; code <= largest_code; ++code) {
    const double distance = std::fabs(static_cast<double>(decode(code)) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

TEST(Numeric, RoundsToNearest) {
  const RandomStream stream(7, "numeric");
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const auto e4m3 = static_cast<float>(stream.normal(i) * std::exp2(10 * stream.uniform(i) - 8));
    if (std::fabs(e4m3) < 440) {
      EXPECT_EQ(e4m3_from_float(std::fabs(e4m3)), nearest(e4m3, 0x7e, [](std::uint32_t code) {
                  return float_from_e4m3(static_cast<std::uint8_t>(code));
                }));
    }
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto value =
        static_cast<float>(stream.normal(i) * std::exp2(30 * stream.uniform(i) - 26));
    if (std::fabs(value) < 60000) {
      EXPECT_EQ(fp16_from_float(std::fabs(value)),
                nearest(value, 0x7bff,
                        [](std::uint32_t code) {
                          return float_from_fp16(static_cast<std::uint16_t>(code));
                        }))
          << value;
    }
  }
}

TEST(Numeric, EveryCodeRoundTrips) {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    if (!std::isnan(float_from_fp16(bits))) {
      ASSERT_EQ(fp16_from_float(float_from_fp16(bits)), bits);
    }
    if (!std::isnan(float_from_bf16(bits))) {
      ASSERT_EQ(bf16_from_float(float_from_bf16(bits)), bits);
    }
  }
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    if (!std::isnan(float_from_e4m3(bits))) {
      ASSERT_EQ(e4m3_from_float(float_from_e4m3(bits)), bits);
    }
  }
}

TEST(Numeric, PoisonIsNan) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kF32}) {
    Tensor tensor = make_tensor(dtype, {3, 5});
    poison(tensor);
    for (std::int64_t i = 0; i < 15; ++i) EXPECT_TRUE(std::isnan(load_float(tensor, i)));
  }
}

TEST(Numeric, LoadDoublesAgreesWithLoadFloat) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kF32}) {
    Tensor tensor = make_tensor(dtype, {40});
    for (int i = 0; i < 40; ++i) store_float(tensor, i, static_cast<float>(i) * 0.37F - 5);
    double values[10];
    load_doubles(tensor, 20, 10, values);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(values[i], load_float(tensor, 20 + i));
    EXPECT_EQ(load_float(widened(tensor), 7), load_float(tensor, 7));
  }
}

// Random123's known answers (kat_vectors, philox4x32 10).
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, NormalHasItsMoments) {
  const RandomStream stream(3, "moments");
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = stream.normal(i);
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 3, 0.15);
}

}  // namespace
}  // namespace attnjit::verify

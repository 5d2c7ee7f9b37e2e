// SPDX-License-Identifier: Apache-2.0
// Tests of the number formats: against known codes, by exhaustion, and against the compiler's own
// rounding.
#include "emulator/model/numeric.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

namespace attnjit::emulator {
namespace {

TEST(Numeric, EveryCodeRoundTrips) {
  for (const FloatFormat* f : {&kFormatBf16, &kFormatF16, &kFormatE5m2, &kFormatE4m3, &kFormatE3m2,
                               &kFormatE2m3, &kFormatE2m1, &kFormatUe8m0, &kFormatUe4m3}) {
    for (std::uint32_t code = 0; code < (1u << f->bits()); ++code) {
      const double value = decode(*f, code);
      if (std::isnan(value)) continue;
      EXPECT_EQ(encode(*f, value), code) << f->bits() << " bits, code " << code;
    }
  }
}

TEST(Numeric, KnownValues) {
  EXPECT_EQ(decode(kFormatE4m3, 0x7E), 448.0);
  EXPECT_TRUE(std::isnan(decode(kFormatE4m3, 0x7F)));
  EXPECT_EQ(decode(kFormatE4m3, 0x01), std::ldexp(1.0, -9));
  EXPECT_EQ(decode(kFormatE5m2, 0x7B), 57344.0);
  EXPECT_TRUE(std::isinf(decode(kFormatE5m2, 0x7C)));
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(decode(kFormatE2m1, i), e2m1[i]);
  EXPECT_EQ(decode(kFormatE2m3, 0x1F), 7.5);
  EXPECT_EQ(decode(kFormatE3m2, 0x1F), 28.0);
  EXPECT_EQ(decode(kFormatUe8m0, 127), 1.0);
  EXPECT_EQ(decode(kFormatUe8m0, 0), std::ldexp(1.0, -127));
  EXPECT_TRUE(std::isnan(decode(kFormatUe8m0, 255)));
}

TEST(Numeric, SaturationAndNan) {
  const EncodeOptions finite{Rounding::kNearestEven, true, false};
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(encode(kFormatE4m3, 1e9, finite), 0x7Eu);
  EXPECT_EQ(encode(kFormatE4m3, -inf, finite), 0xFEu);
  EXPECT_EQ(encode(kFormatE4m3, nan, finite), 0x7Fu);
  EXPECT_EQ(encode(kFormatE5m2, 1e9, finite), 0x7Bu);
  EXPECT_EQ(encode(kFormatE2m1, nan, finite), 0x7u);
  EXPECT_EQ(encode(kFormatE2m1, -100, finite), 0xFu);
  EXPECT_EQ(encode(kFormatF16, 1e9), 0x7C00u);
  EXPECT_EQ(encode(kFormatF16, 1e9, {Rounding::kTowardZero}), 0x7BFFu);
  EXPECT_EQ(encode(kFormatBf16, nan), 0x7FFFu);
  EXPECT_EQ(encode(kFormatBf16, -3.0, {Rounding::kNearestEven, false, true}), 0u);
  // Between 448 and the rounding boundary 464: still 448; from 464 on out of range.
  EXPECT_EQ(encode(kFormatE4m3, 463.9), 0x7Eu);
  EXPECT_EQ(encode(kFormatE4m3, 480.0), 0x7Fu);
}

TEST(Numeric, RoundingModes) {
  // 1 + 2^-8 lies midway between the bf16 numbers 1 and 1 + 2^-7.
  const double half = 1.0 + std::ldexp(1.0, -8);
  EXPECT_EQ(encode(kFormatBf16, half, {Rounding::kNearestEven}), 0x3F80u);
  EXPECT_EQ(encode(kFormatBf16, half, {Rounding::kNearestAway}), 0x3F81u);
  EXPECT_EQ(encode(kFormatBf16, half, {Rounding::kTowardZero}), 0x3F80u);
  EXPECT_EQ(encode(kFormatBf16, half, {Rounding::kUp}), 0x3F81u);
  EXPECT_EQ(encode(kFormatBf16, -half, {Rounding::kUp}), 0xBF80u);
  EXPECT_EQ(encode(kFormatBf16, -half, {Rounding::kDown}), 0xBF81u);
  // A carry into the next binade, and from the subnormals into the normals.
  EXPECT_EQ(encode(kFormatBf16, 1.9999, {Rounding::kNearestEven}), 0x4000u);
  EXPECT_EQ(encode(kFormatE4m3, std::ldexp(0.99, -6)), 0x08u);
}

TEST(Numeric, FastBf16AgreesWithTheGeneralForm) {
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float value = bits_to_float(static_cast<std::uint32_t>(random()));
    EXPECT_EQ(float_to_bf16_rn(value), encode(kFormatBf16, static_cast<double>(value)))
        << std::hexfloat << value;
  }
}

TEST(Numeric, RoundTowardZeroAgreesWithTheProcessor) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())),
                                    static_cast<int>(random() % 300) - 220);
    std::fesetround(FE_TOWARDZERO);
    volatile double input = value;
    volatile float rounded = static_cast<float>(input);
    std::fesetround(FE_TONEAREST);
    const float expected = rounded;
    if (std::fabs(value) > std::numeric_limits<float>::max()) continue;
    EXPECT_EQ(float_to_bits(round_toward_zero(value)), float_to_bits(expected)) << value;
  }
}

}  // namespace
}  // namespace attnjit::emulator

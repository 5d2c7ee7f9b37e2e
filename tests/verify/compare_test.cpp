// SPDX-License-Identifier: Apache-2.0
// The pass rule: each clause fails on its own.
#include "verify/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    AttentionSpec spec;
    spec.num_q_heads = 2;
    spec.qk_depth = 64;
    spec.return_lse = true;
    ProblemRequest request;
    request.q_lens = {5};
    request.kv_lens = {9};
    problem_ = make_problem(spec, request).value();
    reference_ = compute_reference(problem_, 1).value();
    o_ = make_tensor(Dtype::kF32, problem_.o_shape());
    lse_ = make_tensor(Dtype::kF32, problem_.lse_shape());
    for (std::int64_t i = 0; i < o_.elements(); ++i) {
      o_.as<float>()[i] = static_cast<float>(reference_.o[i]);
    }
    for (std::int64_t i = 0; i < lse_.elements(); ++i) {
      lse_.as<float>()[i] = static_cast<float>(reference_.lse[i]);
    }
  }
  Comparison judge() { return compare(problem_, reference_, o_, &lse_, 1e-2); }

  Problem problem_;
  Reference reference_;
  Tensor o_, lse_;
};

TEST_F(Compare, EqualPasses) {
  const Comparison result = judge();
  EXPECT_TRUE(result.passed) << result.reason;
  EXPECT_LT(result.rel_err, 1e-6);
  EXPECT_LT(result.max_row_err, 1e-6);
  EXPECT_LT(*result.lse_max_abs_err, 1e-5);
}

// Rows of a sequence whose tables are wrong may hold anything; those of the others may not.
TEST(CompareStray, RowsOfStraySequencesDoNotCount) {
  AttentionSpec spec;
  spec.num_q_heads = 2;
  spec.qk_depth = 64;
  spec.return_lse = true;
  spec.page_size = 16;
  ProblemRequest request;
  request.q_lens = {3};
  request.kv_lens = {9, 40};
  request.input = InputKind::kStray;
  const Problem problem = make_problem(spec, request).value();
  ASSERT_EQ(problem.stray, (std::vector<bool>{false, true}));
  const Reference reference = compute_reference(problem, 1).value();
  for (const int wrong : {0, 1}) {
    Tensor o = make_tensor(Dtype::kF32, problem.o_shape());
    Tensor lse = make_tensor(Dtype::kF32, problem.lse_shape());
    for (std::int64_t i = 0; i < o.elements(); ++i)
      o.as<float>()[i] = static_cast<float>(reference.o[i]);
    for (std::int64_t i = 0; i < lse.elements(); ++i)
      lse.as<float>()[i] = static_cast<float>(reference.lse[i]);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    o.as<float>()[problem.first_q_row(wrong) * 2 * 64] = nan;
    EXPECT_EQ(compare(problem, reference, o, &lse, 1e-2).passed, wrong == 1);
    o.as<float>()[problem.first_q_row(wrong) * 2 * 64] =
        static_cast<float>(reference.o[problem.first_q_row(wrong) * 2 * 64]);
    lse.as<float>()[problem.lse_index(wrong, 0, 0)] = nan;
    EXPECT_EQ(compare(problem, reference, o, &lse, 1e-2).passed, wrong == 1);
  }
}

// An LSE of 6e7 in f32 has units of 4; one of 10 has none that count.
TEST_F(Compare, FarLogarithmsMayBeOffByUnitsOfTheirLastPlace) {
  reference_.lse[0] = 6e7;
  lse_.as<float>()[0] = 6e7F + 24;
  EXPECT_TRUE(judge().passed) << judge().reason;
  lse_.as<float>()[0] = 6e7F + 64;
  EXPECT_FALSE(judge().passed);
  reference_.lse[0] = 10;
  lse_.as<float>()[0] = 10.0102F;
  EXPECT_FALSE(judge().passed);
}

TEST_F(Compare, MeasuresAreWhatTheyAreCalled) {
  for (std::int64_t i = 0; i < o_.elements(); ++i) o_.as<float>()[i] *= 1.005F;
  const Comparison result = judge();
  EXPECT_TRUE(result.passed) << result.reason;
  EXPECT_NEAR(result.rel_err, 0.005, 1e-5);
  EXPECT_NEAR(result.max_row_err, 0.005, 1e-5);
  double largest = 0;
  for (const double value : reference_.o) largest = std::max(largest, std::fabs(value));
  EXPECT_NEAR(result.max_abs_err, 0.005 * largest, 1e-5);
}

TEST_F(Compare, RelativeErrorFails) {
  for (std::int64_t i = 0; i < o_.elements(); ++i) o_.as<float>()[i] *= 1.011F;
  const Comparison result = judge();
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.reason.find("rel_err"), std::string::npos) << result.reason;
}

TEST_F(Compare, OneBadRowFails) {
  // One row of a hundred times smaller norm than the others: the whole hardly moves.
  for (int d = 0; d < 64; ++d) {
    reference_.o[3 * 64 + d] *= 1e-2;
    o_.as<float>()[3 * 64 + d] = static_cast<float>(reference_.o[3 * 64 + d] * 1.05);
  }
  const Comparison result = judge();
  EXPECT_LT(result.rel_err, 1e-2);
  EXPECT_NEAR(result.max_row_err, 0.05, 1e-4);
  EXPECT_FALSE(result.passed);
  EXPECT_NE(result.reason.find("row 1, head 1"), std::string::npos) << result.reason;
}

TEST_F(Compare, RoundingOfSubnormalOutputsIsNoFinding) {
  // A row that fp16 can only round coarsely, as a sink above every score makes it; and the same row
  // lost.
  Tensor half = make_tensor(Dtype::kFp16, problem_.o_shape());
  for (int d = 0; d < 64; ++d) reference_.o[3 * 64 + d] = (d % 2 == 0 ? 1 : -1) * 1.4e-7;
  for (std::int64_t i = 0; i < half.elements(); ++i)
    store_float(half, i, static_cast<float>(reference_.o[i]));
  EXPECT_TRUE(compare(problem_, reference_, half, &lse_, 2e-3).passed);
  for (int d = 0; d < 64; ++d) reference_.o[3 * 64 + d] = 1e-6;
  for (int d = 0; d < 64; ++d) store_float(half, 3 * 64 + d, 0.0F);
  EXPECT_FALSE(compare(problem_, reference_, half, &lse_, 2e-3).passed);
}

// A sink so far above every score that the weights leave f32: outputs of 2.6e-37 that a kernel
// flushed to 0. The bound is what 9 keys can lose, 2^-118 of each |v|.
TEST_F(Compare, WeightsThatVanishInF32AreNoFinding) {
  const auto row_of_weight = [&](double weight) {
    for (int d = 0; d < 64; ++d) {
      double value = 0;
      for (int key = 0; key < 9; ++key) {
        value += double{load_float(problem_.at("v"), (std::int64_t{key} * 2 + 1) * 64 + d)};
      }
      reference_.o[3 * 64 + d] = weight * value;
      o_.as<float>()[3 * 64 + d] = 0;
    }
  };
  row_of_weight(std::ldexp(1.0, -126));
  EXPECT_GT(std::fabs(reference_.o[3 * 64]), 1e-39);
  EXPECT_TRUE(judge().passed) << judge().reason;
  row_of_weight(std::ldexp(1.0, -118));
  EXPECT_TRUE(judge().passed) << judge().reason;
  // A weight that f32 holds is lost: of a row, and of every row.
  row_of_weight(std::ldexp(1.0, -112));
  EXPECT_FALSE(judge().passed);
  row_of_weight(std::ldexp(1.0, -100));
  EXPECT_FALSE(judge().passed);
  for (std::int64_t i = 0; i < o_.elements(); ++i) {
    reference_.o[i] = std::ldexp(1.0, -104);
    o_.as<float>()[i] = static_cast<float>(1.02 * reference_.o[i]);
  }
  EXPECT_FALSE(judge().passed);
}

TEST_F(Compare, NanAndInfinityFail) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const float saved = o_.as<float>()[17];
    o_.as<float>()[17] = bad;
    EXPECT_FALSE(judge().passed);
    o_.as<float>()[17] = saved;
  }
  EXPECT_TRUE(judge().passed);
}

TEST_F(Compare, ZeroMustBeZero) {
  for (int d = 0; d < 64; ++d) reference_.o[d] = o_.as<float>()[d] = 0;
  EXPECT_TRUE(judge().passed);
  o_.as<float>()[5] = 1e-30F;
  EXPECT_FALSE(judge().passed);
}

TEST_F(Compare, LogarithmFails) {
  lse_.as<float>()[4] += 0.011F;
  EXPECT_FALSE(judge().passed);
  lse_.as<float>()[4] = std::nanf("");
  EXPECT_FALSE(judge().passed);
}

TEST_F(Compare, WhatSumsMoveTheLogarithmIsAllowed) {
  lse_.as<float>()[4] += 0.15F;
  reference_.lse_moved.assign(reference_.lse.size(), 0.0);
  reference_.lse_moved[4] = 0.141;
  EXPECT_TRUE(judge().passed) << judge().reason;
  reference_.lse_moved[4] = 0.139;
  EXPECT_FALSE(judge().passed);
  reference_.lse_moved[4] = 0.141;
  lse_.as<float>()[5] += 0.011F;  // another row's
  EXPECT_FALSE(judge().passed);
}

TEST_F(Compare, MinusInfinityIsExact) {
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  reference_.lse[2] = kMinusInfinity;
  EXPECT_FALSE(judge().passed);
  lse_.as<float>()[2] = static_cast<float>(kMinusInfinity);
  EXPECT_TRUE(judge().passed);
  lse_.as<float>()[2] = -1e30F;
  EXPECT_FALSE(judge().passed);
  lse_.as<float>()[2] = static_cast<float>(kMinusInfinity);
  lse_.as<float>()[3] = static_cast<float>(kMinusInfinity);
  EXPECT_FALSE(judge().passed);
}

TEST(Tolerance, IsTheDesigns) {
  AttentionSpec spec;
  EXPECT_EQ(tolerance_of(spec), 1e-2);
  spec.qkv_dtype = Dtype::kFp16;
  EXPECT_EQ(tolerance_of(spec), 2e-3);
  spec.output_dtype = Dtype::kF32;
  EXPECT_EQ(tolerance_of(spec), 2e-3);
  spec.output_dtype = Dtype::kBf16;
  EXPECT_EQ(tolerance_of(spec), 1e-2);
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_EQ(tolerance_of(spec), 5e-2);
  spec.qkv_dtype = Dtype::kBf16;
  spec.output_dtype = Dtype::kE4m3;
  EXPECT_EQ(tolerance_of(spec), 5e-2);
}

}  // namespace
}  // namespace attnjit::verify

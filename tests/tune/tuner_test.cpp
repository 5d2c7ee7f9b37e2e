// SPDX-License-Identifier: Apache-2.0
// The tuner chooses the fastest variant that is right, and leaves the plan alone where none gains.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tune_fixture.h"

namespace attnjit::tune {
namespace {

class Tuner : public TuneFixture {};

/// What `attnjit tune` may choose of a plan.
auto choices(const Sm90Plan& plan) {
  return std::tuple(plan.BN, plan.num_stages, plan.num_q_stages, plan.num_consumers, plan.ping_pong,
                    plan.pair_tiles);
}

double base(std::int64_t q_len) { return 1e-3 * static_cast<double>(q_len); }

TEST_F(Tuner, TheFastestIsChosenThoughTheClockFalls) {
  request_.max_variants = 256;
  behaviour_.drift = 0.0005;  // from the first block to the last, many times the gain
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    return base(q_len) * (plan.BN == kFast ? 0.96 : 1) *
           (plan.ping_pong == kUntuned.ping_pong ? 1 : 0.99) *
           (plan.num_consumers == kUntuned.num_consumers ? 1 : 1.3);
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  const Measured& winner = result->variants[result->winner];
  EXPECT_EQ(plan_of(winner).BN, kFast);
  EXPECT_NE(plan_of(winner).ping_pong, kUntuned.ping_pong);
  EXPECT_EQ(plan_of(winner).num_consumers, kUntuned.num_consumers);
  EXPECT_EQ(winner.fate, Fate::kChosen);
  EXPECT_NEAR(winner.ratio, 0.96 * 0.99, 0.02);
  ASSERT_EQ(winner.ratios.size(), 2U);
  EXPECT_EQ(result->device.name, "Test GPU");
  EXPECT_EQ(result->nvrtc_version, "13.0.88");
  int chosen = 0, screened = 0;
  for (const Measured& measured : result->variants) {
    chosen += measured.fate == Fate::kChosen ? 1 : 0;
    screened += measured.fate == Fate::kScreenedOut ? 1 : 0;
    if (plan_of(measured).num_consumers != kUntuned.num_consumers) {
      EXPECT_EQ(measured.fate, Fate::kScreenedOut);
    }
    EXPECT_EQ(measured.key.size(), 64U);
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_GT(screened, 0);
}

TEST_F(Tuner, AWrongKernelIsNeverChosen) {
  for (const verify::InputKind input : verify::kInputKinds) {
    behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
      return base(q_len) * (plan.BN == kFast ? 0.5 : plan.BN == kOther ? 0.9 : 1);
    };
    behaviour_.wrong = [&](const Sm90Plan& plan, verify::InputKind now) {
      return plan.BN == kFast && now == input;
    };
    const Result<TuneResult> result = run();
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_EQ(plan_of(result->variants[result->winner]).BN, kOther);
    for (const Measured& measured : result->variants) {
      if (plan_of(measured).BN != kFast) continue;
      EXPECT_EQ(measured.fate, Fate::kWrong);
      EXPECT_NE(measured.reason.find("err"), std::string::npos) << measured.reason;
      EXPECT_TRUE(measured.ms.empty()) << "a wrong kernel was timed";
    }
  }
}

// A model's time of a wrong kernel does no harm, and verifying in the emulator is what takes long.
TEST_F(Tuner, OfAModelOnlyFinalistsAreVerified) {
  behaviour_.model_version = 1;
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    return base(q_len) * (plan.BN == kFast                               ? 0.5
                          : plan.BN == kOther                            ? 0.52
                          : plan.num_consumers == kUntuned.num_consumers ? 1
                                                                         : 2);
  };
  int verified = 0;
  behaviour_.wrong = [&](const Sm90Plan& plan, verify::InputKind) {
    ++verified;
    EXPECT_TRUE(plan.BN == kFast || plan.BN == kOther || choices(plan) == choices(kUntuned));
    return plan.BN == kFast;
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_GT(verified, 0);
  EXPECT_EQ(plan_of(result->variants[result->winner]).BN, kOther);
  for (const Measured& measured : result->variants) {
    if (plan_of(measured).BN != kFast) continue;
    EXPECT_EQ(measured.fate, Fate::kWrong);
  }
}

// Where a variant takes a model a minute, a stage that told of its end alone would seem to hang.
TEST_F(Tuner, StagesAreToldFromTheirBeginAndEachVariant) {
  request_.max_variants = 3;
  std::map<std::string, std::vector<std::size_t>> told;
  const auto listen = [&](std::string_view stage, std::size_t done, std::size_t) {
    told[std::string(stage)].push_back(done);
  };
  ASSERT_TRUE(run(listen).ok());
  for (const char* const stage : {"compiled", "verified", "screened", "timed"}) {
    const std::vector<std::size_t>& steps = told[stage];
    ASSERT_GT(steps.size(), 3U) << stage;
    for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], i) << stage;
  }
  EXPECT_EQ(told["screened"].back(), 3 * request_.shapes.size());
}

TEST_F(Tuner, AGainWithinTheNoiseIsNone) {
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    return base(q_len) * (plan.BN == kFast ? 0.995 : 1);
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->winner, 0U);
  EXPECT_EQ(result->variants.front().fate, Fate::kChosen);
  EXPECT_NEAR(result->control, 1, 1e-9);
}

TEST_F(Tuner, ALossAtOneShapeIsNotBoughtWithAnother) {
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    const double fast = q_len > 100 ? 0.8 : 1.03;
    return base(q_len) * (plan.BN == kFast ? fast : plan.BN == kOther ? 0.97 : 1);
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(plan_of(result->variants[result->winner]).BN, kOther);
}

// A loss that the first blocks did not show is seen in the last ones.
TEST_F(Tuner, ALossThatShowsLateCountsToo) {
  request_.max_variants = 8;  // all of them are finalists
  request_.shapes = {{1, 64, 64}, {1, 256, 256}};
  int calls = 0;
  behaviour_.ms = [&calls](const Sm90Plan& plan, std::int64_t q_len) {
    const bool late = ++calls > 2 * (2 * 9 + 4 * 9);  // two shapes: warm-up, two pairs of nine
    const double gain = q_len > 100 ? 0.8 : (late ? 1.05 : 1.0);
    return base(q_len) * (choices(plan) == choices(kUntuned) ? 1 : gain);
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->winner, 0U);
}

TEST_F(Tuner, WhatDoesNotCompileIsLeftOut) {
  compiler_->refuses = [](const std::string& source) {
    return source.find(fmt::format("kTileN = {};", kFast)) != std::string::npos;
  };
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    return base(q_len) * (plan.BN == kFast ? 0.5 : 1);
  };
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->winner, 0U);
  int refused = 0;
  for (const Measured& measured : result->variants) {
    if (plan_of(measured).BN != kFast) continue;
    ++refused;
    EXPECT_EQ(measured.fate, Fate::kNotCompiled);
    EXPECT_NE(measured.reason.find("does not compile"), std::string::npos);
  }
  EXPECT_GT(refused, 0);
}

TEST_F(Tuner, WithoutARightUntunedKernelThereIsNothingToCompareWith) {
  behaviour_.wrong = [](const Sm90Plan& plan, verify::InputKind) { return plan.BN == kUntuned.BN; };
  Result<TuneResult> result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInternal);
  behaviour_.wrong = {};
  compiler_->refuses = [](const std::string&) { return true; };
  result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCompileFailed);
}

TEST_F(Tuner, AnErrorOfTheGpuEndsItAndNamesTheVariant) {
  behaviour_.fails = [](const Sm90Plan& plan) -> Status {
    if (plan.BN != kFast) return {};
    return make_error(ErrorCode::kDriver, "CUDA_ERROR_ILLEGAL_ADDRESS");
  };
  const Result<TuneResult> result = run();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDriver);
  EXPECT_NE(result.error().message.find(fmt::format("BN {}", kFast)), std::string::npos)
      << result.error().message;
}

TEST_F(Tuner, InputIsCheckedBeforeTheGpuIsLookedFor) {
  request_.shapes = {{1, 0, 64}};
  EXPECT_EQ(run().error().code, ErrorCode::kInvalid);
  request_.shapes = {{-1, 64, 64}};
  EXPECT_EQ(run().error().code, ErrorCode::kInvalid);
  request_.shapes.clear();
  EXPECT_EQ(run().error().code, ErrorCode::kInvalid);
  EXPECT_EQ(compiler_->compiles, 0);
  request_.shapes = {{1, 64, 64}};
  const Result<TuneResult> result = tune(
      request_, [this](auto tuning) { return service(std::move(tuning)); },
      []() -> Result<std::unique_ptr<TuningRig>> {
        return make_error(ErrorCode::kEnvironment, "no GPU");
      });
  EXPECT_EQ(result.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(compiler_->compiles, 0) << "minutes of compiles before a GPU is missed";
}

TEST_F(Tuner, BlocksAreInterleavedAndTurnRound) {
  request_.max_variants = 3;
  request_.shapes = {{1, 64, 64}};
  const Result<TuneResult> result = run();
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->variants.size(), 3U);
  const std::vector<std::string> warm{"0", "0", "1", "1", "2", "2", "0", "0"};
  const std::vector<std::string> forth{"0", "1", "2", "0"}, back{"0", "2", "1", "0"};
  std::vector<std::string> expected = warm;
  const auto add = [&](const std::vector<std::string>& more) {
    expected.insert(expected.end(), more.begin(), more.end());
  };
  for (int pair = 0; pair < 2 + request_.pairs; ++pair) {
    if (pair == 2) add(warm);
    add(forth);
    add(back);
  }
  EXPECT_EQ(behaviour_.log, expected);
}

}  // namespace
}  // namespace attnjit::tune

// SPDX-License-Identifier: Apache-2.0
// What was measured becomes a row that plans everywhere come to the same key with.
#include "tune/table.h"

#include <nlohmann/json.hpp>

#include "tune_fixture.h"

namespace attnjit::tune {
namespace {

class Table : public TuneFixture {
 protected:
  Table() {
    behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
      return 1e-3 * static_cast<double>(q_len) * (plan.BN == kFast ? 0.9 : 1);
    };
  }
  std::string table(std::string_view existing) {
    const Result<TuneResult> result = run();
    EXPECT_TRUE(result.ok()) << result.error().to_string();
    last_key_ = result->variants[result->winner].key;
    Result<std::string> text = table_with(existing, request_, *result, "2026-11-21 05:00 UTC");
    EXPECT_TRUE(text.ok()) << text.error().to_string();
    return text ? *text : "";
  }
  std::string key_with(const std::string& text, const AttentionSpec& spec) {
    auto tuning = tuning_from_json(text);
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    auto made = service(std::make_shared<const Tuning>(*tuning)).value();
    return made->prepare(spec).value().key().hex;
  }
  std::string last_key_;
};

TEST_F(Table, AServerWithTheTableAsksForTheMeasuredKernel) {
  const std::string text = table({});
  EXPECT_EQ(key_with(text, request_.spec), last_key_);
  AttentionSpec more_heads = request_.spec;
  more_heads.num_q_heads = 64;
  EXPECT_EQ(key_with(text, more_heads), last_key_);
  AttentionSpec other = request_.spec;
  other.qkv_dtype = Dtype::kFp16;
  EXPECT_EQ(key_with(text, other), key_with(R"({"rows": []})", other));
  const auto json = nlohmann::json::parse(text);
  const auto& measured = json.at("rows").at(0).at("measured");
  EXPECT_EQ(measured.at("device"), "Test GPU");
  EXPECT_EQ(measured.at("date"), "2026-11-21 05:00 UTC");
  EXPECT_EQ(measured.at("key"), last_key_);
  EXPECT_NEAR(measured.at("ratio").get<double>(), 0.9, 1e-9);
  EXPECT_EQ(measured.at("shapes").size(), 2U);
}

TEST_F(Table, OtherRowsAreKeptAndTheSameSpecsIsReplaced) {
  const std::string existing = R"({"name": "mine", "rows": [
      {"match": {"arch": "sm_100a"}, "choose": {"BN": 64}, "source": "by hand"}]})";
  const std::string once = table(existing);
  request_.spec.qkv_dtype = Dtype::kFp16;
  const std::string twice = table(once);
  const std::string fp16 = last_key_;
  behaviour_.ms = [](const Sm90Plan& plan, std::int64_t q_len) {
    return 1e-3 * static_cast<double>(q_len) * (plan.BN == kOther ? 0.9 : 1);
  };
  request_.spec.qkv_dtype = Dtype::kBf16;
  const std::string again = table(twice);
  const auto json = nlohmann::json::parse(again);
  EXPECT_EQ(json.at("name"), "mine");
  ASSERT_EQ(json.at("rows").size(), 3U);
  EXPECT_EQ(json.at("rows")[0].at("source"), "by hand");
  EXPECT_EQ(json.at("rows")[1].at("choose").at("BN"), kOther);
  EXPECT_EQ(json.at("rows")[2].at("choose").at("BN"), kFast);
  EXPECT_EQ(key_with(again, request_.spec), last_key_);
  request_.spec.qkv_dtype = Dtype::kFp16;
  EXPECT_EQ(key_with(again, request_.spec), fp16);
}

// A plan that stood is written too: a broader row would override it otherwise.
TEST_F(Table, AnUntunedWinnerIsPinned) {
  behaviour_.ms = [](const Sm90Plan&, std::int64_t q_len) { return 1e-3 * double(q_len); };
  const std::string text =
      table(R"({"rows": [{"match": {"arch": "sm_90a"}, "choose": {"BN": 64}}]})");
  EXPECT_EQ(key_with(text, request_.spec), last_key_);
  EXPECT_EQ(last_key_, key_with(R"({"rows": []})", request_.spec));
}

// What a model says is no measurement: its rows say so, and never take the place of one.
TEST_F(Table, ModelledRowsSaySoAndReplaceNoMeasuredOne) {
  behaviour_.model_version = 7;
  const std::string modelled = table({});
  const auto row = nlohmann::json::parse(modelled).at("rows").at(0);
  EXPECT_FALSE(row.contains("measured"));
  EXPECT_EQ(row.at("modelled").at("model_version"), 7);
  EXPECT_EQ(row.at("modelled").at("key"), last_key_);
  EXPECT_EQ(key_with(modelled, request_.spec), last_key_);
  behaviour_.model_version = 8;
  EXPECT_EQ(nlohmann::json::parse(table(modelled)).at("rows")[0].at("modelled").at("model_version"),
            8);
  behaviour_.model_version = 0;
  const std::string measured = table(modelled);
  ASSERT_EQ(nlohmann::json::parse(measured).at("rows").size(), 1U);
  EXPECT_FALSE(nlohmann::json::parse(measured).at("rows")[0].contains("modelled"));
  behaviour_.model_version = 7;
  const Result<std::string> refused = table_with(measured, request_, run().value(), "");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
}

TEST_F(Table, WhatIsNoTableIsRefused) {
  const TuneResult result = run().value();
  for (const char* text : {"{", "[]", R"({"rows": 3})", R"({"rows": [{"match": {}}]})"}) {
    const Result<std::string> refused = table_with(text, request_, result, "");
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace attnjit::tune

// SPDX-License-Identifier: Apache-2.0
// Every vector of data/config_vectors.json against the JSON that `attnjit plan --json` prints.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "printed_plan.h"
#include "source_dir.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;

const Json& vectors() {
  static const Json json = [] {
    std::ifstream file(std::string(ATTNJIT_SOURCE_DIR) + "/tests/plan/data/config_vectors.json");
    return Json::parse(file);
  }();
  return json;
}

// Of a spec without its arch.
Json sm100_plan_of(const Json& spec, ConfigKind kind, const LaunchQuery& query = {}) {
  Json with_arch = spec;
  with_arch["arch"] = "sm_100a";
  return plan_of(with_arch.dump(), kind, query);
}

// `expected` holds nothing that `actual` does not hold with the same value; objects recursively.
void expect_within(const Json& expected, const Json& actual, const std::string& where) {
  for (const auto& [name, value] : expected.items()) {
    ASSERT_TRUE(actual.contains(name)) << where << "." << name << " is missing";
    if (value.is_object()) {
      expect_within(value, actual[name], where + "." + name);
    } else {
      EXPECT_EQ(actual[name], value) << where << "." << name;
    }
  }
}

TEST(Golden, HasTheVectorsThatItShould) {
  EXPECT_EQ(vectors()["fa4"].size(), 153U);
  EXPECT_EQ(vectors()["depth512"].size(), 8U);
  EXPECT_EQ(vectors()["launch"].size(), 8U);
}

TEST(Golden, Fa4) {
  for (const Json& vector : vectors()["fa4"]) {
    const std::string name = vector["name"];
    const Json& spec = vector["spec"];
    const Json plan = sm100_plan_of(spec, ConfigKind::kFa4);
    expect_within(vector["expect"], plan, name);
    EXPECT_EQ(plan["config"], "fa4") << name;
    // num_qo is given, so auto is fa4.
    EXPECT_EQ(sm100_plan_of(spec, ConfigKind::kAuto), plan) << name;
    EXPECT_EQ(plan["reason"].get<std::string>().empty(), plan["supported"].get<bool>()) << name;
  }
}

TEST(Golden, MlaVectorsHoldForMlaConfigToo) {
  int count = 0;
  for (const Json& vector : vectors()["fa4"]) {
    if (vector["spec"]["mla"] == "none") continue;
    ++count;
    expect_within(vector["expect"], sm100_plan_of(vector["spec"], ConfigKind::kMla),
                  vector["name"]);
  }
  EXPECT_GT(count, 5);
}

TEST(Golden, Depth512) {
  for (const Json& vector : vectors()["depth512"]) {
    const std::string name = vector["name"];
    const Json plan = sm100_plan_of(vector["spec"], ConfigKind::kDepth512);
    expect_within(vector["expect"], plan, name);
    EXPECT_EQ(sm100_plan_of(vector["spec"], ConfigKind::kAuto), plan) << name;
  }
}

TEST(Golden, Launch) {
  for (const Json& vector : vectors()["launch"]) {
    const std::string name = vector["name"];
    for (ConfigKind kind : {ConfigKind::kFa4, ConfigKind::kMla}) {
      if (kind == ConfigKind::kMla && vector["spec"]["mla"] == "none") continue;
      Json expect = vector["expect"];
      const Json questions = expect["prefer_1q"];
      expect.erase("prefer_1q");
      const Json unasked = sm100_plan_of(vector["spec"], kind);
      expect_within(expect, unasked, name);
      EXPECT_FALSE(unasked.contains("prefer_1q")) << name;
      for (const Json& question : questions) {
        Json spec = vector["spec"];
        spec["num_partitions"] = question["num_partitions"];
        LaunchQuery query;
        query.max_prompt_len = question["max_prompt_len"].get<std::int64_t>();
        query.batch = question["batch_size"].get<std::int64_t>();
        query.sm_count = question["sm_count"].get<std::int64_t>();
        const Json plan = sm100_plan_of(spec, kind, query);
        ASSERT_TRUE(plan.contains("prefer_1q")) << name;
        EXPECT_EQ(plan["prefer_1q"], question["prefer_1q"]) << name << question.dump();
      }
    }
  }
}

}  // namespace
}  // namespace attnjit

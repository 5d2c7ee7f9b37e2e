// SPDX-License-Identifier: Apache-2.0
// Tuning tables: which row is taken, what it may choose, and what is no table.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/tables.h"
#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

using I = std::int64_t;

Tuning tuning_of(const std::string& choose, const std::string& match = R"({"qk_depth": 64})") {
  const auto result =
      tuning_from_json(R"({"rows": [{"match": )" + match + R"(, "choose": )" + choose + "}]}");
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    return {};
  }
  return *result;
}

std::string constants_of(const KernelPlan& plan) {
  std::string text;
  for (const ConfigConstant& one : plan.main().constants) text += one.name + one.value + "\n";
  return text;
}

// A mask that walks a map.
MaskSpec documents() {
  MaskSpec mask;
  mask.kind = MaskSpec::Kind::kCustom;
  mask.custom.name = "documents";
  mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
  mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  return mask;
}

TEST(Tuning, AMatchingRowIsTaken) {
  const Tuning tuning = tuning_of(R"({"BN": 160, "exp2_fma_pairs": 8, "softmax_registers": 184})");
  const KernelPlan result = plan_of(dense(64), {}, &tuning);
  EXPECT_EQ(result.sm100->variants.front().BN, 160);
  EXPECT_EQ(result.sm100->variants.front().pv_keys, (std::vector<I>{80, 80}));
  EXPECT_EQ(result.sm100->exp2_fma_pairs, 8);
  EXPECT_EQ(result.sm100->roles.front().registers, 184);
  ASSERT_NE(deviation(result, "BN"), nullptr);
  EXPECT_EQ(deviation(result, "BN")->reason, "tuned");
  check_plan(result, "tuned");
  EXPECT_EQ(plan_of(dense(128), {}, &tuning).sm100->variants.front().num_kv_stages, 2);
}

TEST(Tuning, StagesAndRings) {
  const Tuning tuning = tuning_of(R"({"num_kv_stages": 4, "use_fused_kv": true})", "{}");
  const KernelPlan result = plan_of(dense(128), {}, &tuning);
  EXPECT_EQ(result.sm100->variants.front().num_kv_stages, 4);
  EXPECT_TRUE(result.sm100->variants.front().use_fused_kv);
  check_plan(result, "tuned");
}

// How much of a tile's P the first part of P V waits for, and in how many parts P is handed over.
TEST(Tuning, PartsOfP) {
  using Keys = std::vector<I>;
  const auto keys = [](const AttentionSpec& spec, const std::string& choose) {
    const Tuning tuning = tuning_of(choose, "{}");
    const KernelPlan result = plan_of(spec, {}, &tuning);
    check_plan(result, "tuned");
    const Sm100Variant& body = result.sm100->variants.front();
    EXPECT_EQ(body.num_pv_stages(), static_cast<I>(body.pv_keys.size()));
    const auto parts = std::count_if(
        body.barriers.all().begin(), body.barriers.all().end(), [](const BarrierPlan& barrier) {
          return barrier.name.starts_with("S") && barrier.name.find("_cons[") == 2;
        });
    EXPECT_EQ(parts, 2 * body.num_pv_stages());
    return body.pv_keys;
  };
  EXPECT_EQ(keys(dense(128), R"({"pv_first_quarters": 4})"), (Keys{128}));
  EXPECT_EQ(keys(dense(128), R"({"pv_first_quarters": 2})"), (Keys{64, 64}));
  EXPECT_EQ(keys(dense(128), R"({"pv_first_quarters": 1})"), (Keys{32, 32, 32, 32}));
  EXPECT_EQ(keys(dense(128), R"({"pv_first_quarters": 1, "num_pv_stages": 2})"), (Keys{32, 96}));
  EXPECT_EQ(keys(dense(128), R"({"pv_first_quarters": 2, "num_pv_stages": 3})"),
            (Keys{64, 32, 32}));
  EXPECT_EQ(keys(dense(64), R"({"pv_first_quarters": 1, "BN": 160})"), (Keys{80, 80}));
  EXPECT_EQ(keys(dense(64, Dtype::kE4m3), R"({"pv_first_quarters": 1})"), (Keys{32, 32, 32, 32}));
  EXPECT_EQ(keys(dense(256), R"({"pv_first_quarters": 1, "pair_cta": 0})"), (Keys{16, 16, 16, 16}));
  EXPECT_EQ(keys(dense(256), R"({"pv_first_quarters": 4})"), (Keys{128}));
  // What a plan says is what it has: a tile whose steps have no quarters has halves.
  const auto first_quarters = [](const AttentionSpec& spec, const std::string& choose) {
    const Tuning tuning = tuning_of(choose, "{}");
    return plan_of(spec, {}, &tuning).sm100->pv_first_quarters;
  };
  EXPECT_EQ(plan_of(dense(128)).sm100->pv_first_quarters, 3);
  EXPECT_EQ(first_quarters(dense(128), R"({"BN": 96})"), 2);
  EXPECT_EQ(first_quarters(dense(64), R"({"BN": 160})"), 2);
  EXPECT_EQ(first_quarters(dense(64), R"({"BN": 160, "pv_first_quarters": 1})"), 2);
  EXPECT_EQ(first_quarters(dense(64), R"({"BN": 160, "pv_first_quarters": 4})"), 4);
  // What a plan has unasked.
  const Tuning unasked = tuning_of(R"({"pv_first_quarters": 3, "num_pv_stages": 2})", "{}");
  EXPECT_EQ(constants_of(plan_of(dense(128), {}, &unasked)), constants_of(plan_of(dense(128))));
  EXPECT_EQ(plan_of(dense(128)).sm100->variants.front().pv_keys, (Keys{96, 32}));
  for (const char* choose :
       {R"({"pv_first_quarters": 0})", R"({"pv_first_quarters": 5})", R"({"num_pv_stages": 0})",
        R"({"num_pv_stages": 5})", R"({"pv_first_quarters": 4, "num_pv_stages": 2})",
        R"({"pv_first_quarters": 3, "num_pv_stages": 1})", R"({"num_pv_stages": 4})"}) {
    const Tuning tuning = tuning_of(choose, "{}");
    const Result<KernelPlan> refused = plan(dense(128), {}, &tuning);
    ASSERT_FALSE(refused) << choose;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(refused.error().field.find("tuning."), 0U) << refused.error().to_string();
  }
}

// A CTA for each tile, of which one that runs steals those that have not started.
TEST(Tuning, ACtaMayStealTiles) {
  const Tuning tuning = tuning_of(R"({"persistent": 2})", "{}");
  AttentionSpec causal = dense(128);
  causal.mask.kind = MaskSpec::Kind::kCausal;
  const KernelPlan result = plan_of(causal, {}, &tuning);
  check_plan(result, "tuned");
  EXPECT_TRUE(result.sm100->published);
  EXPECT_EQ(result.sm100->variants.front().barriers.all().back().name, "answer_prod");
  EXPECT_EQ(launch_of(result, 2, 1024, 1024, 132).grid[0], 256U);
  const Tuning alone = tuning_of(R"({"persistent": 2, "pair_cta": 0})", "{}");
  check_plan(plan_of(dense(256), {}, &alone), "tuned");
  // Refused by name: pairs, lists of a map, warps that upcast, sequences that differ in length.
  AttentionSpec paged = causal, upcast = causal, block_mask = causal;
  paged.page_size = 64;
  upcast.kv_dtype = Dtype::kE4m3;
  block_mask.mask = documents();
  for (const AttentionSpec& spec : {dense(256), paged, upcast, block_mask}) {
    const Result<KernelPlan> refused = plan(spec, {}, &tuning);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().field, "tuning.persistent");
  }
}

// A row may choose the query tiles of a CTA where the caller does not.
TEST(Tuning, QueryTilesOfACta) {
  const Tuning one = tuning_of(R"({"num_qo": 1})", "{}");
  PlanOptions asked;
  asked.num_qo = 1;
  const KernelPlan result = plan_of(dense(128), {}, &one);
  EXPECT_EQ(result.sm100->variants.front().num_qo, 1);
  EXPECT_FALSE(result.sm100->can_switch_to_1q);
  EXPECT_EQ(constants_of(result), constants_of(plan_of(dense(128), asked)));
  AttentionSpec causal = dense(128);
  causal.mask.kind = MaskSpec::Kind::kCausal;
  EXPECT_EQ(launch_of(plan_of(causal), 1, 1024, 1024, 132).grid[0], 128U);
  EXPECT_EQ(launch_of(plan_of(causal, {}, &one), 1, 1024, 1024, 132).grid[0], 256U);
  const Tuning two = tuning_of(R"({"num_qo": 2})", "{}");
  EXPECT_EQ(constants_of(plan_of(dense(128), {}, &two)), constants_of(plan_of(dense(128))));
  // The caller's goes first.
  EXPECT_EQ(plan_of(dense(128), asked, &two).sm100->variants.front().num_qo, 1);
  // Refused by name: a query tile for each warpgroup, pairs, and a single accumulator.
  AttentionSpec split = dense(128);
  split.partition_keys = 512;
  const Tuning in_pairs = tuning_of(R"({"num_qo": 1, "pair_cta": 1})", "{}");
  for (const Result<KernelPlan>& refused :
       {plan(split, {}, &one), plan(dense(128), {}, &in_pairs), plan(dense(256), {}, &one)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().field, "tuning.num_qo") << refused.error().to_string();
  }
  // Two, where they leave no room for K and V: such an O has one without a row.
  AttentionSpec wide = dense(192);
  wide.output_dtype = Dtype::kF32;
  EXPECT_EQ(plan_of(wide).sm100->variants.front().num_qo, 1);
  const Result<KernelPlan> full = plan(wide, {}, &two);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().field, "tuning.num_qo") << full.error().to_string();
}

// A CTA per SM walks the tiles, also of uneven work; where it has one tile there is no choice.
TEST(Tuning, UnevenWorkMayPersist) {
  const Tuning tuning = tuning_of(R"({"persistent": 1})", "{}");
  AttentionSpec causal = dense(128);
  causal.mask.kind = MaskSpec::Kind::kCausal;
  EXPECT_EQ(launch_of(plan_of(causal), 2, 1024, 1024, 132).grid[0], 256U);
  EXPECT_EQ(launch_of(plan_of(causal, {}, &tuning), 2, 1024, 1024, 132).grid[0], 132U);
  EXPECT_EQ(launch_of(plan_of(dense(128)), 2, 1024, 1024, 132).grid[0], 132U);
  const Tuning one = tuning_of(R"({"persistent": 0})", "{}");
  EXPECT_EQ(launch_of(plan_of(dense(128), {}, &one), 2, 1024, 1024, 132).grid[0], 256U);
  causal.page_size = 64;
  const Result<KernelPlan> paged = plan(causal, {}, &tuning);
  ASSERT_FALSE(paged);
  EXPECT_EQ(paged.error().field, "tuning.persistent");
}

// A row may say whether two CTAs multiply together, where the caller does not and both can.
TEST(Tuning, PairsOrCtasAlone) {
  const Tuning pairs = tuning_of(R"({"pair_cta": 1})", "{}");
  const Tuning alone = tuning_of(R"({"pair_cta": 0})", "{}");
  const auto cluster = [](const AttentionSpec& spec, const Tuning* tuning) {
    return plan_of(spec, {}, tuning).sm100->cluster;
  };
  EXPECT_EQ(cluster(dense(128), nullptr), 1);
  EXPECT_EQ(cluster(dense(128), &pairs), 2);
  EXPECT_EQ(cluster(dense(256), nullptr), 2);
  EXPECT_EQ(cluster(dense(256), &alone), 1);
  PlanOptions asked;
  asked.pair_cta = true;
  EXPECT_EQ(constants_of(plan_of(dense(128), {}, &pairs)),
            constants_of(plan_of(dense(128), asked)));
  // What no row can match decides without it: options, and masks that walk a map.
  EXPECT_EQ(plan_of(dense(128), asked, &alone).sm100->cluster, 2);
  EXPECT_EQ(plan_of(dense(128), asked, &pairs).sm100->cluster, 2);
  asked.pair_cta = false;
  EXPECT_EQ(plan_of(dense(256), asked, &pairs).sm100->cluster, 1);
  AttentionSpec block_mask = dense(128);
  block_mask.mask = documents();
  EXPECT_EQ(cluster(block_mask, &pairs), 1);
  // A row reaches no kernel that the option does not.
  AttentionSpec deep = dense(224);
  deep.ov_depth = 128;
  deep.qkv_dtype = Dtype::kE4m3;
  EXPECT_FALSE(plan(deep, {}, &pairs));
  AttentionSpec paged = dense(256);
  paged.page_size = 64;
  for (const AttentionSpec& spec : {dense(64), paged}) {
    const Result<KernelPlan> refused = plan(spec, {}, &pairs);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().field, "tuning.pair_cta");
  }
}

AttentionSpec causal_of(int depth, int group) {
  AttentionSpec spec = dense(depth);
  spec.group = group;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

// No row is there that a GPU measured, or whose model nobody knows; each gains enough, and is what
// a plan of its spec takes, and says.
TEST(Tuning, TheLibraryCarriesRowsThatModelsMade) {
  const Result<Tuning> tuning = tuning_from_json(kModelledTuning);
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  const nlohmann::json rows = nlohmann::json::parse(modelled_table()).at("rows");
  ASSERT_EQ(rows.size(), tuning->rows.size());
  EXPECT_FALSE(rows.empty());
  for (const nlohmann::json& row : rows) {
    SCOPED_TRACE(row.dump());
    const nlohmann::json& modelled = row.at("modelled");
    EXPECT_FALSE(row.contains("measured"));
    EXPECT_GE(modelled.at("model_version").get<int>(), 3);
    EXPECT_LE(modelled.at("ratio").get<double>(), 0.98);
    EXPECT_NE(row.at("match").at("arch"), "sm_90a");
    nlohmann::json text = row.at("match");
    text["num_q_heads"] = 4 * text.at("group").get<int>();
    const Result<ResolvedSpec> spec = ResolvedSpec::from_json(text.dump());
    ASSERT_TRUE(spec) << spec.error().to_string();
    const Result<KernelPlan> tuned = plan(*spec, &*tuning);
    ASSERT_TRUE(tuned) << tuned.error().to_string();
    EXPECT_TRUE(tuned->supported) << tuned->reason;
    ASSERT_NE(tuned->tuned_by, nullptr);
    EXPECT_EQ(tuned->tuned_by->model_version, modelled.at("model_version"));
    EXPECT_EQ(nlohmann::json(tuned->tuned_by->choose), row.at("choose"));
    for (const TuningKnob& knob : tuning_knobs(*tuned)) {
      if (row.at("choose").contains(knob.name)) {
        EXPECT_EQ(knob.chosen, row.at("choose").at(knob.name).get<I>()) << knob.name;
      }
    }
    EXPECT_EQ(plan(*spec)->tuned_by, nullptr);
  }
}

// What a model made goes last, however much it says of the spec.
TEST(Tuning, ModelledRowsGoLast) {
  const auto chosen = [](const std::string& table, const AttentionSpec& spec) {
    const Result<Tuning> tuning = tuning_from_json(table);
    EXPECT_TRUE(tuning) << tuning.error().to_string();
    return plan_of(spec, {}, &*tuning);
  };
  const KernelPlan mine = chosen(R"({"else": "modelled", "rows": [
      {"match": {"qk_depth": 128}, "choose": {"exp2_fma_pairs": 3}, "measured": {}}]})",
                                 causal_of(128, 8));
  EXPECT_EQ(mine.tuned_by->model_version, 0);
  EXPECT_EQ(mine.sm100->exp2_fma_pairs, 3);
  EXPECT_EQ(mine.sm100->persistent, 0);
  const char* others = R"({"else": "modelled", "rows": [
      {"match": {"qk_depth": 64}, "choose": {"exp2_fma_pairs": 3}}]})";
  EXPECT_GT(chosen(others, causal_of(128, 8)).tuned_by->model_version, 0);
  EXPECT_GT(chosen(others, causal_of(128, 8)).sm100->persistent, 0);
  EXPECT_EQ(chosen(R"({"rows": []})", causal_of(128, 8)).tuned_by, nullptr);
  const char* both = R"({"rows": [
      {"match": {"qk_depth": 64, "mask": "causal"}, "choose": {"exp2_fma_pairs": 1},
       "modelled": {"model_version": 2}},
      {"match": {"qk_depth": 64}, "choose": {"exp2_fma_pairs": 2}}]})";
  EXPECT_EQ(chosen(both, causal_of(64, 8)).sm100->exp2_fma_pairs, 2);
}

TEST(Tuning, TheMostSpecificRowWins) {
  const auto tuning = tuning_from_json(R"({"name": "t", "rows": [
      {"choose": {"exp2_fma_pairs": 1}},
      {"match": {"qk_depth": 128, "qkv_dtype": "bf16"}, "choose": {"exp2_fma_pairs": 2}},
      {"match": {"qk_depth": 128}, "choose": {"exp2_fma_pairs": 3}},
      {"match": {"arch": "sm_103a", "mask": "causal", "sink": true},
       "choose": {"exp2_fma_pairs": 4}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  EXPECT_EQ(plan_of(dense(64), {}, &*tuning).sm100->exp2_fma_pairs, 1);
  EXPECT_EQ(plan_of(dense(128), {}, &*tuning).sm100->exp2_fma_pairs, 2);
  EXPECT_EQ(plan_of(dense(128, Dtype::kFp16), {}, &*tuning).sm100->exp2_fma_pairs, 3);
  AttentionSpec spec = dense(128);
  spec.arch = Arch::kSm103a;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  spec.sink = true;
  EXPECT_EQ(plan_of(spec, {}, &*tuning).sm100->exp2_fma_pairs, 4);
}

TEST(Tuning, IllegalChoicesAreErrors) {
  for (const char* choose :
       {R"({"BN": 192})", R"({"BN": 100})", R"({"BN": 0})", R"({"num_kv_stages": 40})",
        R"({"num_kv_stages": 1})", R"({"use_fused_kv": 2})", R"({"num_qk_stages": 7})",
        R"({"softmax_registers": 200})", R"({"softmax_registers": 190})",
        R"({"other_registers": 16})", R"({"exp2_fma_pairs": 65})", R"({"exp2_fma_pairs": -1})",
        R"({"bn": 128})", R"({"num_stages": 2})"}) {
    const Tuning tuning = tuning_of(choose);
    const Result<KernelPlan> result = plan(dense(64), {}, &tuning);
    ASSERT_FALSE(result) << choose;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalid) << choose;
    EXPECT_EQ(result.error().field.rfind("tuning.", 0), 0U) << result.error().to_string();
    // A spec that the row does not match is not concerned.
    EXPECT_TRUE(plan(dense(128), {}, &tuning)) << choose;
  }
  AttentionSpec split = dense(64);
  split.partition_keys = 128;
  const Tuning tuning = tuning_of(R"({"BN": 96})");
  EXPECT_FALSE(plan(split, {}, &tuning));
  split.partition_keys = 192;
  EXPECT_TRUE(plan(split, {}, &tuning));
}

// The kernel with a single accumulator: 168 registers for each of 384 threads are what its roles
// share.
TEST(Tuning, SingleAccumulator) {
  const auto plan_with = [](const char* choose) {
    const Tuning tuning = tuning_of(choose, R"({"qk_depth": 256})");
    PlanOptions alone;
    alone.pair_cta = false;
    return plan(dense(256), alone, &tuning);
  };
  const Result<KernelPlan> tuned =
      plan_with(R"({"num_kv_stages": 4, "softmax_registers": 192, "other_registers": 152})");
  ASSERT_TRUE(tuned) << tuned.error().to_string();
  EXPECT_EQ(tuned->sm100->variants.front().num_kv_stages, 4);
  EXPECT_EQ(tuned->sm100->roles.front().registers, 192);
  check_plan(*tuned, "tuned");
  for (const char* choose : {R"({"softmax_registers": 192})", R"({"num_kv_stages": 6})",
                             R"({"BN": 96})", R"({"exp2_fma_pairs": 33})"}) {
    const Result<KernelPlan> refused = plan_with(choose);
    ASSERT_FALSE(refused) << choose;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid) << choose;
  }
}

TEST(Tuning, MalformedTablesAreErrors) {
  for (const char* text : {"",
                           "{",
                           "[]",
                           "{}",
                           R"({"rows": 1})",
                           R"({"rows": [1]})",
                           R"({"rows": [{}]})",
                           R"({"rows": [{"choose": {}}]})",
                           R"({"rows": [{"choose": {"BN": "x"}}]})",
                           R"({"rows": [{"choose": {"BN": 1.5}}]})",
                           R"({"rows": [{"choose": {"BN": 18446744073709551615}}]})",
                           R"({"rows": [{"match": {"depth": 64}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": "64"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": 0}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": 1e3}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"arch": "sm_80"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"mask": "diagonal"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qkv_dtype": "f32"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"num_qo": 2}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": 3, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"choice": {"BN": 128}}]})",
                           R"({"rows": [], "other": 1})",
                           R"({"rows": [], "else": "measured"})",
                           R"({"rows": [], "else": {"rows": []}})",
                           R"({"else": "modelled"})",
                           R"({"rows": [{"choose": {"BN": 128}, "modelled": {}}]})",
                           R"({"rows": [{"choose": {"BN": 128}, "modelled": 3}]})",
                           R"({"rows": [{"choose": {"BN": 128},
                                         "modelled": {"model_version": 0}}]})",
                           R"({"rows": [[[[[[[[[[[[]]]]]]]]]]]]})"}) {
    const Result<Tuning> result = tuning_from_json(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalid) << text;
  }
  const Result<Tuning> two =
      tuning_from_json(R"({"rows": [{"match": {"depth": 1}, "choose": {"BN": "x"}}]})");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().others.size(), 1U);
}

}  // namespace
}  // namespace attnjit

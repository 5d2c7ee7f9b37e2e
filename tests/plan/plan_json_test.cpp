// SPDX-License-Identifier: Apache-2.0
// What `attnjit plan --json` says beyond the vectors: the choice of the configuration, the kernel's
// side, bad queries, and known flaws of the reference that stay visible.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "printed_plan.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;

// Each field of the kernel that is not its reference's has a deviation that names what it is.
// Returns the number of such fields.
int expect_deviations_are_recorded(const Json& plan) {
  const Json& kernel = plan["kernel"];
  std::map<std::string, std::string> recorded;
  for (const Json& entry : kernel["deviations"]) recorded[entry["name"]] = entry["actual"];
  Json actual = kernel["variants"][0];
  actual["smem_used"] = actual["smem_bytes"];
  int differences = 0;
  for (const auto& [name, value] : actual.items()) {
    if (!plan.contains(name) || plan[name] == value) continue;
    ++differences;
    EXPECT_EQ(recorded[name], value.dump()) << name << " is " << value << ", not " << plan[name];
  }
  return differences;
}

TEST(PlanJson, AutoChoosesTheConfiguration) {
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 128})")["config"], "fa4");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 256})")["config"], "depth512");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 512, "arch": "sm_103a"})")["config"],
            "depth512");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 256, "num_qo": 2})")["config"], "fa4");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 192, "mla": "prefill"})")["config"], "mla");
  EXPECT_EQ(
      plan_of(R"({"num_q_heads": 8, "qk_depth": 192, "mla": "prefill", "num_qo": 1})")["config"],
      "fa4");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 576, "mla": "decode"})")["config"], "mla");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 128, "arch": "sm_90a"})")["config"], "sm90");
  EXPECT_EQ(plan_of(R"({"num_q_heads": 8, "qk_depth": 128, "arch": "sm_90a"})",
                    ConfigKind::kFa4)["config"],
            "fa4");
}

TEST(PlanJson, NamesOfKindsRoundTrip) {
  for (const char* name : {"auto", "fa4", "mla", "depth512", "sm90"}) {
    const auto kind = config_kind_from_string(name);
    ASSERT_TRUE(kind);
    EXPECT_EQ(to_string(*kind), name);
  }
  EXPECT_FALSE(config_kind_from_string("FA4"));
}

TEST(PlanJson, UnsupportedIsPrintedWithItsReason) {
  const Json deep = plan_of(R"({"num_q_heads": 8, "qk_depth": 256, "num_qo": 2})");
  EXPECT_EQ(deep["supported"], false);
  EXPECT_EQ(deep["BN"], 0);
  EXPECT_NE(deep["reason"].get<std::string>().find("BN = 0"), std::string::npos);
  const Json decode = plan_of(R"({"num_q_heads": 8, "qk_depth": 576, "mla": "decode"})");
  EXPECT_EQ(decode["supported"], false);
  EXPECT_NE(decode["reason"], "");
  EXPECT_EQ(decode["kernel"]["supported"], false);
  const Json served =
      plan_of(R"({"num_q_heads": 16, "group": 16, "qk_depth": 576, "mla": "decode"})");
  EXPECT_EQ(served["supported"], false);  // the reference configuration
  EXPECT_EQ(served["kernel"]["supported"], true);
  EXPECT_EQ(served["kernel"]["tmem_used"], 448);
  EXPECT_EQ(served["kernel"]["roles"].size(), 4U);
  const Json other = plan_of(R"({"num_q_heads": 8, "qk_depth": 128})", ConfigKind::kSm90);
  EXPECT_EQ(other["supported"], false);
  EXPECT_NE(other["reason"].get<std::string>().find("sm_100a"), std::string::npos);
  for (const char* config : {"mla", "depth512"}) {
    const Json plan =
        plan_of(R"({"num_q_heads": 8, "qk_depth": 128})", *config_kind_from_string(config));
    EXPECT_EQ(plan["config"], config);
    EXPECT_EQ(plan["supported"], false) << config;
    EXPECT_NE(plan["reason"], "") << config;
  }
}

TEST(PlanJson, TheReferenceKeepsItsUncountedRopePartAndTheKernelCountsIt) {
  const char* unset = R"({"num_q_heads": 32, "qk_depth": 192, "ov_depth": 128})";
  const Json plan = plan_of(unset);
  EXPECT_EQ(plan["rope_dtype_size"], 0);
  EXPECT_EQ(plan["rope_depth"], 64);
  // Q is counted whole, K without its 64 columns: 2 stages of 128 x 128 x 2 each, staged in 3.
  EXPECT_EQ(plan["num_kv_stages"], 2);
  EXPECT_EQ(plan["num_qk_stages"], 3);
  EXPECT_EQ(plan["use_fused_kv"], false);
  EXPECT_EQ(plan["smem_used"],
            4 + 8 * (8 + 4 + 3) + 256 * 192 * 2 + 1024 + 4 * (128 * 128 * 2 + 16) + 2 * 2 * 16);
  EXPECT_EQ(plan["TMAConsumerPipeline"]["K"]["full_kv_bytes"], 128 * 128 * 2);
  bool recorded = false;
  for (const Json& entry : plan["kernel"]["deviations"]) {
    recorded = recorded || (entry["reason"].get<std::string>().find("rope") != std::string::npos);
  }
  EXPECT_TRUE(recorded);
  const Json set =
      plan_of(R"({"num_q_heads": 32, "qk_depth": 192, "ov_depth": 128, "rope_dtype": "bf16"})");
  EXPECT_EQ(set["smem_used"], 230572);
  EXPECT_EQ(set["kernel"]["smem_bytes"], plan["kernel"]["smem_bytes"]);
  EXPECT_EQ(set["kernel"]["constants"], plan["kernel"]["constants"]);
}

TEST(PlanJson, TheReferenceKeepsItsBarriersAboveSixtyFour) {
  const Json plan = plan_of(
      R"({"num_q_heads": 32, "group": 8, "qk_depth": 64, "qkv_dtype": "e4m3", "page_size": 128})");
  EXPECT_EQ(plan["num_mbarriers"], 65);
  EXPECT_EQ(plan["supported"], true);
  EXPECT_LE(plan["kernel"]["num_mbarriers"], 64);
}

TEST(PlanJson, DefaultsOfThePlanOptions) {
  const Json half = plan_of(R"({"num_q_heads": 8, "qk_depth": 128})");
  EXPECT_EQ(half["swizzle_mode"], 128);
  EXPECT_EQ(half["num_qo"], 2);
  EXPECT_EQ(half["pair_cta"], false);
  const Json fp8 = plan_of(R"({"num_q_heads": 8, "qk_depth": 128, "qkv_dtype": "e4m3"})");
  EXPECT_EQ(fp8["swizzle_mode"], 64);
  const Json mla = plan_of(R"({"num_q_heads": 8, "qk_depth": 192, "mla": "prefill"})");
  EXPECT_EQ(mla["ov_depth"], 128);
  EXPECT_EQ(mla["rope_mma_dtype"], "bf16");
  EXPECT_EQ(mla["fa4_config"]["BN"], mla["BN"]);
  EXPECT_EQ(mla["smem_used"], 230556);
}

TEST(PlanJson, KernelHasEverythingThatIsFixedAtCompileTime) {
  const Json plan = plan_of(R"({"num_q_heads": 8, "qk_depth": 128})");
  const Json& kernel = plan["kernel"];
  for (const char* name :
       {"supported", "reason", "entry", "kernel_header", "threads", "cluster", "smem_bytes",
        "deviations", "roles", "tensor_maps", "variants", "smem_map", "tmem_map", "barriers",
        "constants", "parameters", "exp2_fma_pairs", "rescale_threshold"}) {
    EXPECT_TRUE(kernel.contains(name)) << name;
  }
  EXPECT_EQ(kernel["variants"].size(), 2U);
  EXPECT_EQ(kernel["constants"]["kTileN"], 128);
  EXPECT_EQ(kernel["constants"]["kRescaleThreshold"], "0x1p+3f");
}

TEST(PlanJson, SaysWhichTilesOfAnExpressionAreWalked) {
  const auto kernel_of = [](const std::string& code) {
    return plan_of(R"({"num_q_heads": 8, "qk_depth": 128, "mask": {"kind": "custom", "name": "m",
                       "code": ")" +
                   code + "\"}}")["kernel"];
  };
  const Json window = kernel_of("kv_idx <= q_idx && q_idx - kv_idx < 512");
  EXPECT_EQ(window["skips_tiles"], true);
  EXPECT_EQ(window["many_gaps"], false);
  EXPECT_EQ(kernel_of("kv_idx / 128 % 5 == 1")["many_gaps"], true);
}

TEST(PlanJson, Sm90PlanIsAtTopLevel) {
  const Json plan = plan_of(R"({"num_q_heads": 8, "qk_depth": 128, "arch": "sm_90a"})");
  EXPECT_EQ(plan["BM"], plan["kernel"]["BM"]);
  EXPECT_EQ(plan["smem_bytes"], plan["kernel"]["smem_bytes"]);
  EXPECT_EQ(plan["supported"], plan["kernel"]["supported"]);
}

TEST(PlanJson, TheQueryDefaultsToOneSequenceOnTheFullChip) {
  LaunchQuery query;
  query.max_prompt_len = 1024;  // 4 tiles of 256
  // 18 heads: 72 CTAs of 148 / 2; 19 heads: 76.
  EXPECT_EQ(plan_of(R"({"num_q_heads": 18, "qk_depth": 128})", {}, query)["prefer_1q"], true);
  EXPECT_EQ(plan_of(R"({"num_q_heads": 19, "qk_depth": 128})", {}, query)["prefer_1q"], false);
  // The grid is as many times larger; a count that is chosen at launch is not known.
  EXPECT_EQ(plan_of(R"({"num_q_heads": 18, "qk_depth": 128, "num_partitions": 2})", {},
                    query)["prefer_1q"],
            false);
  EXPECT_EQ(plan_of(R"({"num_q_heads": 18, "qk_depth": 128, "num_partitions": 0})", {},
                    query)["prefer_1q"],
            true);
  query.sm_count = 152;
  EXPECT_EQ(plan_of(R"({"num_q_heads": 19, "qk_depth": 128})", {}, query)["prefer_1q"], true);
  query.batch = 2;
  EXPECT_EQ(plan_of(R"({"num_q_heads": 19, "qk_depth": 128})", {}, query)["prefer_1q"], false);
}

TEST(PlanJson, QueriesOutOfRangeAreRefusedByName) {
  AttentionSpec spec;
  spec.num_q_heads = 8;
  spec.qk_depth = 128;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{1} << 31, INT64_MIN, INT64_MAX}) {
    LaunchQuery query;
    query.max_prompt_len = bad;
    const Result<PlanDocument> prompt = document_of(spec, {}, ConfigKind::kAuto, query);
    ASSERT_FALSE(prompt);
    EXPECT_EQ(prompt.error().field, "max_prompt_len");
    EXPECT_EQ(prompt.error().code, ErrorCode::kInvalid);
    query.max_prompt_len = 1;
    query.batch = bad;
    EXPECT_EQ(document_of(spec, {}, ConfigKind::kAuto, query).error().field, "batch");
    query.batch = 1;
    query.sm_count = bad;
    EXPECT_EQ(document_of(spec, {}, ConfigKind::kAuto, query).error().field, "sm_count");
  }
}

TEST(PlanJson, InvalidSpecsAreErrors) {
  const Result<PlanDocument> result = document_of(AttentionSpec{});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalid);
  EXPECT_FALSE(result.error().others.empty());
}

TEST(PlanJson, WhereTheKernelDiffersADeviationSaysWhy) {
  std::mt19937 rng(21);
  auto pick = [&](std::initializer_list<int> values) {
    return values.begin()[rng() % values.size()];
  };
  int compared = 0;
  int differences = 0;
  for (int i = 0; i < 250; ++i) {
    AttentionSpec spec;
    spec.group = pick({1, 3, 4, 8, 128, 256});
    spec.num_q_heads = spec.group;
    spec.qk_depth = pick({64, 80, 128, 144, 160, 192, 256, 512});
    if (rng() % 4 == 0) spec.ov_depth = pick({64, 128});
    spec.qkv_dtype = rng() % 2 ? Dtype::kE4m3 : Dtype::kBf16;
    if (spec.qk_depth == 192 && rng() % 2) {
      spec.mla = Mla::kPrefill;
      spec.ov_depth = 128;
    }
    spec.page_size = pick({0, 0, 16, 64, 128});
    PlanOptions options;
    if (rng() % 3 == 0) options.num_qo = pick({1, 2});
    if (rng() % 3 == 0) options.swizzle_bytes = pick({32, 64, 128});
    if (rng() % 4 == 0 && spec.mla == Mla::kNone) options.pair_cta = true;
    const Result<PlanDocument> document = document_of(spec, options);
    ASSERT_TRUE(document) << document.error().to_string();
    const Json plan = Json::parse(plan_to_json(*document));
    if (!plan["kernel"].contains("variants")) continue;
    ++compared;
    SCOPED_TRACE(spec_to_json(spec, options));
    differences += expect_deviations_are_recorded(plan);
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(differences, 100);
}

// The reference is what it is without a row: what a row chose is a deviation, too.
TEST(PlanJson, WhatARowChoosesIsADeviation) {
  const auto planned = [](const char* spec, TuningValues choose) -> std::optional<Json> {
    Tuning tuning;
    tuning.rows.push_back({{}, std::move(choose)});
    const Result<ResolvedSpec> resolved = ResolvedSpec::from_json(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.error().to_string();
    const Result<PlanDocument> document = plan_document(*resolved, ConfigKind::kAuto, {}, &tuning);
    if (!document) return std::nullopt;  // the kernel has no such choice
    return Json::parse(plan_to_json(*document));
  };
  const auto recorded = [](const Json& plan, std::string_view name) {
    for (const Json& entry : plan["kernel"]["deviations"]) {
      if (entry["name"] != name) continue;
      return fmt::format("{} to {}: {}", entry["reference"].get<std::string>(),
                         entry["actual"].get<std::string>(), entry["reason"].get<std::string>());
    }
    return std::string();
  };
  const char* dense = R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 128})";
  const Json one_tile = planned(dense, {{"num_qo", 1}}).value();
  EXPECT_EQ(one_tile["num_qo"], 2);
  EXPECT_EQ(recorded(one_tile, "num_qo"), "2 to 1: tuned");
  EXPECT_EQ(recorded(one_tile, "BM"), "256 to 128: tuned");
  EXPECT_EQ(recorded(one_tile, "BM_eff"), "256 to 128: tuned");
  const Json quarters = planned(dense, {{"pv_first_quarters", 1}}).value();
  EXPECT_EQ(recorded(quarters, "num_pv_stages"), "2 to 4: tuned");
  EXPECT_EQ(recorded(quarters, "switch_1q_num_pv_stages"), "2 to 4: tuned");
  const char* deep = R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 256})";
  EXPECT_EQ(recorded(planned(deep, {{"pair_cta", 0}}).value(), "MMA_M"), "256 to 128: tuned");

  int compared = 0;
  for (const char* spec :
       {dense, deep, R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 64, "group": 8})",
        R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 192})",
        R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 320})",
        R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 128, "qkv_dtype": "e4m3"})",
        R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 192, "mla": "prefill"})"}) {
    for (const TuningValues& choose : {TuningValues{{"num_qo", 1}},
                                       {{"pv_first_quarters", 1}},
                                       {{"pv_first_quarters", 4}},
                                       {{"pair_cta", 0}},
                                       {{"pair_cta", 1}},
                                       {{"BN", 96}},
                                       {{"use_fused_kv", 1}},
                                       {{"num_kv_stages", 2}},
                                       {{"num_qk_stages", 1}}}) {
      const std::optional<Json> plan = planned(spec, choose);
      if (!plan || !(*plan)["kernel"].contains("variants")) continue;
      ++compared;
      SCOPED_TRACE(fmt::format("{} {}", spec, choose.begin()->first));
      expect_deviations_are_recorded(*plan);
    }
  }
  EXPECT_GT(compared, 40);
}

TEST(PlanJson, EachKnobThatIsShownCanBeChosen) {
  for (const char* arch : {"sm_90a", "sm_100a"}) {
    const Result<ResolvedSpec> spec = ResolvedSpec::from_json(
        fmt::format(R"({{"arch": "{}", "num_q_heads": 8, "qk_depth": 128}})", arch));
    ASSERT_TRUE(spec.ok());
    const PlanDocument untuned = plan_document(*spec).value();
    const Json kernel = Json::parse(plan_to_json(untuned))["kernel"];
    EXPECT_GE(kernel["knobs"].size(), 6U) << arch;
    int tried = 0;
    for (const auto& [name, knob] : kernel["knobs"].items()) {
      tried += knob["values"].empty() ? 0 : 1;
      Tuning tuning;
      tuning.rows.push_back({{}, {{name, knob["chosen"].get<std::int64_t>()}}});
      const Result<PlanDocument> pinned = plan_document(*spec, ConfigKind::kAuto, {}, &tuning);
      ASSERT_TRUE(pinned.ok()) << pinned.error().to_string();
      EXPECT_EQ(Json::parse(plan_to_json(*pinned))["kernel"]["constants"], kernel["constants"])
          << name << " on " << arch;
    }
    EXPECT_GE(tried, 4) << arch;
  }
}

TEST(PlanJson, NoArchitectureIsGuessed) {
  for (const char* arch : {"", R"(, "arch": "native")"}) {
    const Result<ResolvedSpec> spec =
        ResolvedSpec::from_json(fmt::format(R"({{"num_q_heads": 8, "qk_depth": 128{}}})", arch));
    ASSERT_TRUE(spec.ok());
    const Result<KernelPlan> planned = plan(*spec);
    ASSERT_FALSE(planned.ok());
    EXPECT_EQ(planned.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(planned.error().field, "arch");
  }
}

// Who chose is never left out: nobody, a table, or a model that no GPU has confirmed.
TEST(PlanJson, SaysWhichRowItIsBy) {
  const Result<ResolvedSpec> spec = ResolvedSpec::from_json(
      R"({"arch": "sm_100a", "num_q_heads": 8, "qk_depth": 128, "mask": "causal"})");
  ASSERT_TRUE(spec.ok());
  const auto document = [&](const std::string& more) {
    const Result<Tuning> tuning = tuning_from_json(
        R"({"rows": [{"match": {"qk_depth": 128}, "choose": {"persistent": 1})" + more + "}]}");
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    return plan_document(*spec, ConfigKind::kAuto, {}, &*tuning).value();
  };
  const auto tuned_by = [](const PlanDocument& plan) {
    return Json::parse(plan_to_json(plan))["kernel"].at("tuned_by");
  };
  const PlanDocument untuned = plan_document(*spec).value();
  EXPECT_EQ(tuned_by(untuned), nullptr);
  EXPECT_EQ(plan_to_text(untuned).find("tuned:"), std::string::npos);

  const PlanDocument by_table = document("");
  EXPECT_EQ(tuned_by(by_table), Json::parse(R"({"match": {"qk_depth": 128},
      "choose": {"persistent": 1}, "model_version": null})"));
  EXPECT_NE(plan_to_text(by_table).find("tuned: persistent 1, by a row of a tuning table\n"),
            std::string::npos);

  const PlanDocument by_model = document(R"(, "modelled": {"model_version": 3})");
  EXPECT_EQ(tuned_by(by_model).at("model_version"), 3);
  EXPECT_NE(plan_to_text(by_model).find("by a row that model 3 of the clock made; no GPU has"),
            std::string::npos);
}

TEST(PlanJson, EveryValidSpecPrints) {
  std::mt19937 rng(9);
  auto pick = [&](std::initializer_list<int> values) {
    return values.begin()[rng() % values.size()];
  };
  int printed = 0;
  for (int i = 0; i < 250; ++i) {
    AttentionSpec spec;
    spec.arch = static_cast<Arch>(rng() % 3);
    spec.group = pick({1, 3, 8, 16384});
    spec.num_q_heads = spec.group;
    spec.qk_depth = pick({1, 7, 8, 63, 64, 100, 128, 192, 250, 256, 512, 576, 16384});
    spec.ov_depth = pick({0, 0, 0, 1, 64, 128, 16384});
    spec.qkv_dtype = pick({0, 1}) != 0 ? Dtype::kE4m3 : Dtype::kBf16;
    spec.mla = static_cast<Mla>(rng() % 3);
    spec.page_size = pick({0, 1, 17, 64, 1 << 20});
    spec.num_partitions = pick({0, 1, 65535});
    PlanOptions options;
    if (rng() % 2) options.swizzle_bytes = pick({32, 64, 128});
    if (rng() % 2) options.num_qo = pick({1, 2});
    if (rng() % 2) options.pair_cta = rng() % 2;
    if (!validate(spec, options).empty()) continue;
    for (const ConfigKind kind : {ConfigKind::kAuto, ConfigKind::kFa4, ConfigKind::kMla,
                                  ConfigKind::kDepth512, ConfigKind::kSm90}) {
      LaunchQuery query;
      query.max_prompt_len = 2147483647;
      query.batch = 2147483647;
      const Result<PlanDocument> document = document_of(spec, options, kind, query);
      ASSERT_TRUE(document) << document.error().to_string();
      const std::string text = plan_to_json(*document);
      const Json plan = Json::parse(text);
      EXPECT_EQ(plan["supported"], plan["reason"] == "") << text;
      ++printed;
    }
  }
  EXPECT_GT(printed, 300);
}

}  // namespace
}  // namespace attnjit

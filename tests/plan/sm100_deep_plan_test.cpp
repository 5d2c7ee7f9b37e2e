// SPDX-License-Identifier: Apache-2.0
// Plans of head_dim above 256 on sm_100a: what is served, budgets, deviations, launches.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "../one_launch.h"
#include "attnjit/tuning.h"
#include "plan/sm100_mla/sm100_mla_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

AttentionSpec sm100_deep_spec(int heads, int group, int qk_depth = 512, int ov_depth = 0) {
  AttentionSpec spec;
  spec.arch = Arch::kSm100a;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

AttentionSpec sm100_deep_decode(int heads, int group, int max_q_len) {
  AttentionSpec spec = sm100_deep_spec(heads, group);
  spec.page_size = 64;
  spec.max_q_len = max_q_len;
  spec.num_partitions = 0;
  return spec;
}

TEST(Sm100DeepPlan, FitsTheSmForEveryDepth) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    for (int depth = 320; depth <= 512; depth += 64) {
      for (const int page_size : {0, 64, 16, 3}) {
        SCOPED_TRACE(depth);
        AttentionSpec spec = sm100_deep_spec(16, 8, depth);
        spec.arch = arch;
        spec.page_size = page_size;
        const KernelPlan plan = plan_of(spec);
        ASSERT_TRUE(plan.supported) << plan.reason;
        EXPECT_EQ(plan.sm100_mla->tiles.num_stages, depth == 320 ? 2 : 1);
        EXPECT_LE(plan.main().smem_bytes, 232448);
        expect_without_gaps(plan.main().smem_map, plan.main().smem_bytes);
        expect_without_gaps(plan.main().tmem_map, plan.sm100_mla->tmem_used());
        EXPECT_LE(plan.sm100_mla->tmem_allocated(), 512);
        EXPECT_TRUE(plan.waivers.empty());
      }
    }
  }
}

// The budget of docs/mla.md.
TEST(Sm100DeepPlan, BudgetOfDepth512) {
  const KernelPlan plan = plan_of(sm100_deep_spec(16, 8));
  EXPECT_EQ(plan.main().smem_bytes, 197072);
  EXPECT_EQ(plan.main().barriers.size(), 51U);
  EXPECT_EQ(plan.sm100_mla->tmem_used(), 448);
  EXPECT_EQ(plan.main().smem_map[1].name, "K 0");
  EXPECT_EQ(plan.main().smem_map[2].name, "V 0");
  EXPECT_EQ(plan.main().entry, "attnjit_deep_forward");
  ASSERT_EQ(plan.main().roles.size(), 5U);
  EXPECT_EQ(plan.main().roles[1].name, "load V");
  EXPECT_EQ(plan.main().roles[1].first_warp, 2);
}

// Depth 512 is that of a reference configuration, a pair of CTAs; the depths below it are none's.
TEST(Sm100DeepPlan, RecordsWhereItLeavesTheReference) {
  std::map<std::string, std::pair<std::string, std::string>> found;
  for (const Deviation& one : plan_of(sm100_deep_spec(16, 8)).deviations) {
    EXPECT_TRUE(found.emplace(one.name, std::pair{one.reference, one.actual}).second) << one.name;
    EXPECT_NE(one.reference, one.actual) << one.name;
    EXPECT_FALSE(one.reason.empty()) << one.name;
  }
  for (const auto& [name, reference, actual] : {std::tuple{"MMA_M", "128", "64"},
                                                {"BN", "256", "64"},
                                                {"num_kv_stages", "4", "1"},
                                                {"tmem_used", "512", "448"},
                                                {"smem_used", "229780", "197072"},
                                                {"p_buffer_bytes", "32768", "0"},
                                                {"num_mbarriers", "18", "51"}}) {
    EXPECT_EQ(found[name], (std::pair<std::string, std::string>{reference, actual})) << name;
  }
  EXPECT_FALSE(found.contains("BM"));       // 64 rows per CTA
  EXPECT_FALSE(found.contains("cluster"));  // of 2, which load K and V for each other
  EXPECT_FALSE(found.contains("fuse_gqa"));
  EXPECT_TRUE(plan_of(sm100_deep_spec(16, 8, 448)).deviations.empty());
}

TEST(Sm100DeepPlan, SaysWhatItDoesNotServe) {
  const auto reason_of = [](const AttentionSpec& spec, const PlanOptions& options = {}) {
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_FALSE(plan.supported);
    EXPECT_EQ(plan.sm100_mla, nullptr);
    return plan.reason;
  };
  for (const auto& [qk, ov] : {std::pair{576, 576}, {264, 264}, {512, 256}, {576, 512}}) {
    EXPECT_NE(reason_of(sm100_deep_spec(16, 8, qk, ov)).find("same multiple of 64 up to 512"),
              std::string::npos)
        << qk;
  }
  AttentionSpec spec = sm100_deep_spec(16, 8);
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("e4m3"), std::string::npos);
  spec = sm100_deep_spec(16, 8);
  spec.kv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("kv_dtype"), std::string::npos);
  spec = sm100_deep_spec(16, 8);
  spec.output_dtype = Dtype::kF32;
  EXPECT_NE(reason_of(spec).find("output_dtype"), std::string::npos);
  spec = sm100_deep_spec(16, 8);
  spec.partition_keys = 96;
  EXPECT_NE(reason_of(spec).find("multiples of 64"), std::string::npos);
  PlanOptions options;
  options.num_qo = 2;
  EXPECT_NE(reason_of(sm100_deep_spec(16, 8), options).find("num_qo"), std::string::npos);
  options = {};
  options.pair_cta = true;
  EXPECT_NE(reason_of(sm100_deep_spec(16, 8), options).find("head_dim above 256"),
            std::string::npos);
}

// Waits may be bounded: registers are left.
TEST(Sm100DeepPlan, BoundsItsWaits) {
  PlanOptions options;
  options.debug_waits = true;
  EXPECT_TRUE(plan_of(sm100_deep_spec(16, 8), options).supported);
}

// Under a causal mask a CTA takes long tiles with short ones.
TEST(Sm100DeepPlan, PairsTiles) {
  EXPECT_TRUE(plan_of(sm100_deep_spec(16, 8)).sm100_mla->tiles.pair_tiles);
  AttentionSpec null = sm100_deep_spec(16, 8);
  null.mask.kind = MaskSpec::Kind::kNull;
  EXPECT_FALSE(plan_of(null).sm100_mla->tiles.pair_tiles);
  EXPECT_FALSE(plan_of(sm100_deep_decode(16, 8, 1)).sm100_mla->tiles.pair_tiles);
}

// A tile of each 64 rows of the heads of each group; with few of them, the keys are split.
TEST(Sm100DeepPlan, Launches) {
  DeviceShape device;
  device.sm_count = 148;
  LaunchShapes shapes;
  shapes.batch = 2;
  shapes.q_len = 100;
  shapes.kv_len = 1000;
  const Result<LaunchRecipe> dense =
      one_launch(plan_of(sm100_deep_spec(16, 8)), shapes, LaunchScalars(), {}, device);
  ASSERT_TRUE(dense.ok()) << dense.error().to_string();
  EXPECT_EQ(dense->grid[0], 56U);  // of 800 rows 14 tiles, of 2 sequences and 2 groups
  EXPECT_EQ(dense->tensor_maps.size(), 3U);
  shapes.q_len = 1;
  shapes.kv_len = 8192;
  shapes.max_pages = 128;
  shapes.num_pages = 256;
  const Result<LaunchRecipe> decode =
      one_launch(plan_of(sm100_deep_decode(16, 8, 1)), shapes, LaunchScalars(), {}, device);
  ASSERT_TRUE(decode.ok()) << decode.error().to_string();
  EXPECT_GT(decode->grid[0], 64U);
}

TEST(Sm100DeepPlan, TakesStagesFromATable) {
  const auto planned = [&](const char* choose) {
    const Result<Tuning> tuning = tuning_from_json(
        std::string(R"({"name": "t", "rows": [{"match": {}, "choose": {)") + choose + "}}]}");
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    return plan(*ResolvedSpec::make(sm100_deep_spec(16, 8, 320)), &*tuning);
  };
  const Result<KernelPlan> fewer = planned(R"("num_stages": 1)");
  ASSERT_TRUE(fewer.ok()) << fewer.error().to_string();
  EXPECT_EQ(fewer->sm100_mla->tiles.num_stages, 1);
  for (const char* wrong : {R"("num_stages": 3)", R"("num_stages": 0)", R"("cluster": 3)"}) {
    EXPECT_FALSE(planned(wrong).ok()) << wrong;
  }
}

// The CTAs of prompts load K and V for each other, those of others where a row says so, and none
// where rows are copied, or waits are bounded.
TEST(Sm100DeepPlan, ClustersArePrompts) {
  const auto cluster_of = [](const AttentionSpec& spec, const PlanOptions& options = {}) {
    return plan_of(spec, options).main().cluster;
  };
  AttentionSpec spec = sm100_deep_spec(16, 8);
  EXPECT_EQ(cluster_of(spec), 2);
  EXPECT_EQ(cluster_of(sm100_deep_decode(16, 8, 1)), 1);
  PlanOptions bounded;
  bounded.debug_waits = true;
  EXPECT_EQ(cluster_of(spec, bounded), 1);
  spec.num_partitions = 0;
  EXPECT_EQ(cluster_of(spec), 1);
  spec = sm100_deep_spec(16, 8);
  spec.page_size = 16;
  EXPECT_EQ(cluster_of(spec), 1);
  const Result<Tuning> two = tuning_from_json(R"({"rows": [{"choose": {"cluster": 2}}]})");
  ASSERT_TRUE(two.ok()) << two.error().to_string();
  const Result<KernelPlan> pages = plan(*ResolvedSpec::make(spec), &*two);
  ASSERT_TRUE(pages.ok()) << pages.error().to_string();
  EXPECT_EQ(pages->main().cluster, 2);
  // One barrier of the last tiles would serve two stages.
  spec.qk_depth = spec.ov_depth = 320;
  const Result<KernelPlan> stages = plan(*ResolvedSpec::make(spec), &*two);
  ASSERT_FALSE(stages.ok());
  EXPECT_NE(stages.error().to_string().find("num_stages 1"), std::string::npos);
  const Result<Tuning> one =
      tuning_from_json(R"({"rows": [{"choose": {"cluster": 2, "num_stages": 1}}]})");
  EXPECT_TRUE(plan(*ResolvedSpec::make(spec), &*one).ok());
  spec.page_size = 3;
  EXPECT_FALSE(plan(*ResolvedSpec::make(spec), &*one).ok());
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans of head_dim above 256 on sm_90a: what is served, budgets, launches.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "../one_launch.h"
#include "attnjit/tuning.h"
#include "plan/mla/mla_tiles.h"
#include "plan/sm90_mla/sm90_mla_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

AttentionSpec sm90_deep_spec(int heads, int group, int qk_depth = 512, int ov_depth = 0) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

AttentionSpec sm90_deep_decode(int heads, int group, int max_q_len) {
  AttentionSpec spec = sm90_deep_spec(heads, group);
  spec.page_size = 64;
  spec.max_q_len = max_q_len;
  spec.num_partitions = 0;
  return spec;
}

TEST(Sm90DeepPlan, FitsTheSmForEveryDepth) {
  for (int depth = 320; depth <= 512; depth += 64) {
    for (const int page_size : {0, 64, 16, 3}) {
      SCOPED_TRACE(depth);
      AttentionSpec spec = sm90_deep_spec(16, 8, depth);
      spec.page_size = page_size;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      EXPECT_EQ(plan.sm90_mla->tiles.num_stages, depth == 320 ? 2 : 1);
      EXPECT_TRUE(plan.sm90_mla->tiles.separate_v());
      expect_fits_sm90(plan);
    }
  }
}

// The budget of docs/mla.md.
TEST(Sm90DeepPlan, BudgetOfDepth512) {
  const KernelPlan plan = plan_of(sm90_deep_spec(16, 8));
  EXPECT_EQ(plan.main().smem_bytes, 207880);
  EXPECT_EQ(plan.main().barriers.size(), 75U);
  EXPECT_EQ(plan.main().smem_map[0].name, "Q 0");
  EXPECT_EQ(plan.main().smem_map[1].name, "K 0");
  EXPECT_EQ(plan.main().smem_map[2].name, "V 0");
  EXPECT_EQ(plan.main().entry, "attnjit_deep_forward");
}

TEST(Sm90DeepPlan, SaysWhatItDoesNotServe) {
  const auto reason_of = [](const AttentionSpec& spec, const PlanOptions& options = {}) {
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_FALSE(plan.supported);
    return plan.reason;
  };
  for (const auto& [qk, ov] : {std::pair{576, 576}, {264, 264}, {512, 256}, {576, 512}}) {
    EXPECT_NE(reason_of(sm90_deep_spec(16, 8, qk, ov)).find("same multiple of 64 up to 512"),
              std::string::npos)
        << qk;
  }
  AttentionSpec spec = sm90_deep_spec(16, 8);
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("e4m3"), std::string::npos);
  spec = sm90_deep_spec(16, 8);
  spec.kv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("kv_dtype"), std::string::npos);
  spec = sm90_deep_spec(16, 8);
  spec.output_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("output_dtype"), std::string::npos);
  spec = sm90_deep_spec(16, 8);
  spec.partition_keys = 96;
  EXPECT_NE(reason_of(spec).find("multiples of 64"), std::string::npos);
  PlanOptions options;
  options.num_qo = 2;
  EXPECT_NE(reason_of(sm90_deep_spec(16, 8), options).find("num_qo"), std::string::npos);
  options = {};
  options.debug_waits = true;
  EXPECT_NE(reason_of(sm90_deep_spec(16, 8), options).find("head_dim above 256"),
            std::string::npos);
}

bool packs_group(const AttentionSpec& spec) {
  return mla_packed_heads(plan_of(spec).spec) == spec.group;
}

// Rows are of all the heads of a group where that wastes none, and in decodes.
TEST(Sm90DeepPlan, PacksGroups) {
  EXPECT_TRUE(packs_group(sm90_deep_spec(16, 8)));
  EXPECT_TRUE(packs_group(sm90_deep_spec(256, 128)));
  EXPECT_FALSE(packs_group(sm90_deep_spec(6, 3)));
  EXPECT_FALSE(packs_group(sm90_deep_spec(512, 256)));
  EXPECT_TRUE(packs_group(sm90_deep_decode(6, 3, 16)));
  EXPECT_FALSE(packs_group(sm90_deep_decode(6, 3, 17)));
}

// Under a causal mask a CTA takes long tiles with short ones.
TEST(Sm90DeepPlan, PairsTiles) {
  EXPECT_TRUE(plan_of(sm90_deep_spec(16, 8)).sm90_mla->tiles.pair_tiles);
  AttentionSpec null = sm90_deep_spec(16, 8);
  null.mask.kind = MaskSpec::Kind::kNull;
  EXPECT_FALSE(plan_of(null).sm90_mla->tiles.pair_tiles);
  EXPECT_FALSE(plan_of(sm90_deep_decode(16, 8, 1)).sm90_mla->tiles.pair_tiles);
}

// A tile of each 64 rows of the heads of each group; with few of them, the keys are split.
TEST(Sm90DeepPlan, Launches) {
  DeviceShape device;
  device.sm_count = 132;
  LaunchShapes shapes;
  shapes.batch = 2;
  shapes.q_len = 100;
  shapes.kv_len = 1000;
  const Result<LaunchRecipe> dense =
      one_launch(plan_of(sm90_deep_spec(16, 8)), shapes, LaunchScalars(), {}, device);
  ASSERT_TRUE(dense.ok()) << dense.error().to_string();
  EXPECT_EQ(dense->grid[0], 52U);  // of 800 rows 13 tiles, of 2 sequences and 2 groups
  shapes.q_len = 1;
  shapes.kv_len = 8192;
  shapes.max_pages = 128;
  shapes.num_pages = 256;
  const Result<LaunchRecipe> decode =
      one_launch(plan_of(sm90_deep_decode(16, 8, 1)), shapes, LaunchScalars(), {}, device);
  ASSERT_TRUE(decode.ok()) << decode.error().to_string();
  EXPECT_GT(decode->grid[0], 64U);
}

TEST(Sm90DeepPlan, TakesStagesFromATable) {
  const auto planned = [&](const char* choose) {
    const Result<Tuning> tuning = tuning_from_json(
        std::string(R"({"name": "t", "rows": [{"match": {}, "choose": {)") + choose + "}}]}");
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    return plan(*ResolvedSpec::make(sm90_deep_spec(16, 8, 320)), &*tuning);
  };
  const Result<KernelPlan> fewer = planned(R"("num_stages": 1)");
  ASSERT_TRUE(fewer.ok()) << fewer.error().to_string();
  EXPECT_EQ(fewer->sm90_mla->tiles.num_stages, 1);
  for (const char* wrong : {R"("num_stages": 4)", R"("BN": 128)", R"("cluster": 2)"}) {
    EXPECT_FALSE(planned(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Plans of absorbed MLA on sm_100a: what is served, budgets, launches.
#include "plan/sm100_mla/sm100_mla_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "attnjit/tuning.h"
#include "plan/launch/family_launch.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

AttentionSpec sm100_mla_spec(int heads = 128, int qk_depth = 576, int ov_depth = 512) {
  AttentionSpec spec;
  spec.arch = Arch::kSm100a;
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = heads;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  spec.page_size = 64;
  spec.num_partitions = 0;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

TEST(Sm100MlaPlan, FitsTheSmForEveryDepth) {
  for (int latent = 64; latent <= 512; latent += 64) {
    for (const int rope : {0, 64}) {
      if (latent + rope <= 64) continue;  // a spec with mla has more than a rope part
      SCOPED_TRACE(latent + rope);
      const KernelPlan plan = plan_of(sm100_mla_spec(16, latent + rope, latent));
      ASSERT_TRUE(plan.supported) << plan.reason;
      EXPECT_EQ(plan.main().threads, 384);
      EXPECT_LE(plan.main().smem_bytes, 232448);
      expect_without_gaps(plan.main().smem_map, plan.main().smem_bytes);
      expect_without_gaps(plan.main().tmem_map, plan.sm100_mla->tmem_used());
      EXPECT_LE(plan.sm100_mla->tmem_used(), plan.sm100_mla->tmem_allocated());
      EXPECT_LE(plan.sm100_mla->tmem_allocated(), 512);
      EXPECT_TRUE(plan.waivers.empty());
    }
  }
}

// The budgets of docs/mla.md.
TEST(Sm100MlaPlan, BudgetsOfTheModels) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    AttentionSpec spec = sm100_mla_spec();
    spec.arch = arch;
    const KernelPlan deepseek = plan_of(spec);
    EXPECT_EQ(deepseek.sm100_mla->tiles.num_stages, 2);
    EXPECT_EQ(deepseek.main().smem_bytes, 221760);
    EXPECT_EQ(deepseek.main().barriers.size(), 57U);
    EXPECT_EQ(deepseek.sm100_mla->tmem_used(), 448);
    EXPECT_EQ(deepseek.main().smem_map[2].name, "K and V 1");
    EXPECT_EQ(deepseek.kernels.back().entry, "attnjit_merge");
  }
  const KernelPlan mistral = plan_of(sm100_mla_spec(32, 320, 256));
  EXPECT_EQ(mistral.sm100_mla->tiles.num_stages, 4);
  EXPECT_EQ(mistral.main().smem_bytes, 205376);
  EXPECT_EQ(mistral.sm100_mla->tmem_used(), 320);
}

TEST(Sm100MlaPlan, SaysWhatItDoesNotServe) {
  const auto reason_of = [](const AttentionSpec& spec, const PlanOptions& options = {}) {
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_FALSE(plan.supported);
    EXPECT_EQ(plan.sm100_mla, nullptr);
    return plan.reason;
  };
  AttentionSpec spec = sm100_mla_spec();
  spec.group = 64;
  EXPECT_NE(reason_of(spec).find("one key-value head"), std::string::npos);
  EXPECT_NE(reason_of(sm100_mla_spec(129)).find("up to 128 heads"), std::string::npos);
  for (const auto& [qk, ov] : {std::pair{640, 576}, {576, 480}, {576, 448}, {160, 96}}) {
    EXPECT_NE(reason_of(sm100_mla_spec(16, qk, ov)).find("latent part"), std::string::npos) << qk;
  }
  spec = sm100_mla_spec();
  spec.num_partitions = 1;
  spec.partition_keys = 96;
  EXPECT_NE(reason_of(spec).find("multiples of 64"), std::string::npos);
  spec = sm100_mla_spec();
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("e4m3"), std::string::npos);
  PlanOptions options;
  options.num_qo = 2;
  EXPECT_NE(reason_of(sm100_mla_spec(), options).find("num_qo"), std::string::npos);
  options = {};
  options.pair_cta = true;
  EXPECT_NE(reason_of(sm100_mla_spec(), options).find("pair_cta"), std::string::npos);
  options = {};
  options.swizzle_bytes = 64;
  EXPECT_NE(reason_of(sm100_mla_spec(), options).find("swizzle_bytes"), std::string::npos);
}

TEST(Sm100MlaPlan, TakesStagesFromATable) {
  const auto planned = [&](const char* choose) {
    const Result<Tuning> tuning = tuning_from_json(
        std::string(R"({"name": "t", "rows": [{"match": {"mla": "decode"}, "choose": {)") + choose +
        "}}]}");
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    return plan(*ResolvedSpec::make(sm100_mla_spec(32, 320, 256)), &*tuning);
  };
  const Result<KernelPlan> fewer = planned(R"("num_stages": 3)");
  ASSERT_TRUE(fewer.ok()) << fewer.error().to_string();
  EXPECT_EQ(fewer->sm100_mla->tiles.num_stages, 3);
  ASSERT_EQ(tuning_knobs(*fewer).size(), 2U);
  EXPECT_EQ(tuning_knobs(*fewer).front().chosen, 3);
  for (const char* wrong : {R"("num_stages": 1)", R"("num_stages": 5)", R"("cluster": 2)"}) {
    const Result<KernelPlan> refused = planned(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(refused.error().field.starts_with("tuning.")) << refused.error().to_string();
  }
}

// 128 heads are two work tiles of 64 rows over the same keys; a CTA per SM at most.
TEST(Sm100MlaPlan, LaunchesACtaPerTileOrSm) {
  AttentionSpec spec = sm100_mla_spec();
  spec.num_partitions = 1;
  DeviceShape device;
  device.sm_count = 148;
  for (const auto& [batch, q_len, ctas] : {std::tuple{1, 1, 2U}, {16, 2, 64U}, {64, 2, 148U}}) {
    const Result<LaunchSequence> sequence =
        plan_launch(plan_of(spec), paged_shapes_of(batch, q_len, 4096), {}, {}, device);
    ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
    EXPECT_EQ(sequence->launches.front().grid[0], ctas);
    EXPECT_EQ(sequence->launches.front().tensor_maps.size(), 2U);  // of Q and of K
  }
}

// Launches of few query tiles split the keys, so that the SMs have work; a full one does not.
TEST(Sm100MlaPlan, SplitsFewTiles) {
  const KernelPlan plan = plan_of(sm100_mla_spec());
  const auto parts = [&](int batch, int q_len, int kv_len) {
    return partitions_of(plan, paged_shapes_of(batch, q_len, kv_len), {}).uniform_splits;
  };
  EXPECT_GT(parts(1, 1, 32768), 40);
  EXPECT_LE(parts(1, 1, 32768), 64);
  EXPECT_GT(parts(1, 1, 1024), 4);
  EXPECT_EQ(parts(128, 2, 8192), 1);
  EXPECT_EQ(parts(1, 1, 0), 1);
}

}  // namespace
}  // namespace attnjit

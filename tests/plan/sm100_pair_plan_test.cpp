// SPDX-License-Identifier: Apache-2.0
// Sm100Plan of pairs of CTAs, and of the CTAs with a single accumulator that prompts of their
// depths take alone.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

TEST(Sm100Plan, PairDoublesTheSoftmaxArrivals) {
  PlanOptions options;
  options.pair_cta = true;
  const KernelPlan result = plan_of(dense(128), options);
  EXPECT_EQ(result.main().cluster, 2);
  EXPECT_EQ(result.main().barriers[0].arrivals, 16);
  EXPECT_EQ(result.main().barriers[1].arrivals, 8);
  EXPECT_FALSE(result.sm100->can_switch_to_1q);
}

// Two CTAs compute the prompts of a single accumulator: tiles of 128 keys, whose two S leave Q no
// tensor memory.
TEST(Sm100Plan, PairsOfCtasWithSingleAccumulators) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kE4m3}) {
    for (const auto& [qk_depth, ov_depth] :
         {std::pair{256, 256}, {256, 128}, {208, 208}, {224, 208}}) {
      AttentionSpec spec = dense(qk_depth, dtype);
      spec.ov_depth = ov_depth;
      SCOPED_TRACE(spec_to_json(spec));
      const KernelPlan result = plan_of(spec);
      ASSERT_TRUE(result.supported) << result.reason;
      EXPECT_EQ(result.main().cluster, 2);
      const Sm100Variant& body = result.sm100->variants.front();
      EXPECT_EQ(body.BN, 128);
      EXPECT_EQ(body.MMA_M, 256);
      EXPECT_EQ(body.BM, 128);
      EXPECT_EQ(body.tmem.size(), 3U);
      EXPECT_GE(body.num_kv_stages, 2);
      check_plan(result, "a pair");
    }
  }
  // A block of 128 columns of e4m3 has no halves.
  AttentionSpec narrow = dense(256, Dtype::kE4m3);
  narrow.ov_depth = 128;
  PlanOptions wide;
  wide.swizzle_bytes = 128;
  EXPECT_TRUE(plan_of(narrow, wide).supported) << plan_of(narrow, wide).reason;
  EXPECT_EQ(plan_of(narrow, wide).main().cluster, 1);
  const auto alone = [](const char* what, const AttentionSpec& spec) {
    const KernelPlan result = plan_of(spec);
    EXPECT_TRUE(result.supported) << what << ": " << result.reason;
    EXPECT_EQ(result.main().cluster, 1) << what;
  };
  AttentionSpec spec = dense(256);
  spec.max_q_len = 4;
  alone("few rows", spec);
  spec = dense(256);
  spec.page_size = 64;
  alone("pages", spec);
  spec = dense(256);
  spec.ragged = true;
  alone("a ragged batch", spec);
  spec = dense(256);
  spec.num_partitions = 0;
  alone("partitions", spec);
  spec = dense(256);
  spec.kv_dtype = Dtype::kE4m3;
  alone("upcast", spec);
  for (const int ov_depth : {64, 160}) {
    spec = dense(256);
    spec.ov_depth = ov_depth;
    alone("V of an odd number of blocks", spec);
  }
}

// What pairs do not serve they refuse by name.
TEST(Sm100Plan, PairsOfCtasWhereTheCallerSays) {
  PlanOptions pair;
  pair.pair_cta = true;
  for (const int depth : {72, 128, 256}) {
    AttentionSpec spec = dense(depth);
    spec.page_size = 16;
    spec.ragged = true;
    EXPECT_TRUE(plan_of(spec, pair).supported) << plan_of(spec, pair).reason;
    EXPECT_EQ(plan_of(spec, pair).main().cluster, 2);
    EXPECT_EQ(plan_of(spec).main().cluster, 1);
    spec.num_partitions = 0;
    EXPECT_FALSE(plan_of(spec, pair).supported);
  }
  AttentionSpec deep = dense(192);
  deep.ov_depth = 128;
  EXPECT_TRUE(plan_of(deep, pair).supported) << plan_of(deep, pair).reason;
  // Two O of K's depths above have no pairs, for all that half of K and V leaves two stages room.
  for (const int depth : {200, 224, 248}) {
    deep = dense(depth);
    deep.ov_depth = 96;
    EXPECT_TRUE(plan_of(deep, pair).supported) << plan_of(deep, pair).reason;
    EXPECT_EQ(plan_of(deep, pair).sm100->softmax_warpgroups, 1);
  }
  const auto refused = [&](const AttentionSpec& spec, const char* reason) {
    const KernelPlan result = plan_of(spec, pair);
    EXPECT_FALSE(result.supported);
    EXPECT_NE(result.reason.find(reason), std::string::npos) << result.reason;
    EXPECT_NE(result.reason.find("pair_cta"), std::string::npos) << result.reason;
  };
  refused(dense(192), "no whole blocks of 64");
  refused(dense(64), "qk_depth above 64; it is 64");
  AttentionSpec spec = dense(128);
  spec.page_size = 3;
  refused(spec, "pages of 3 rows");
  spec = dense(128);
  spec.num_partitions = 2;
  refused(spec, "partitions");
  spec = dense(128);
  spec.kv_dtype = Dtype::kE4m3;
  refused(spec, "upcast");
}

// A launch has two CTAs for each pair of 512 rows, and where pairs persist one for each two SMs.
TEST(Sm100Plan, LaunchesOfPairs) {
  PlanOptions pair;
  pair.pair_cta = true;
  AttentionSpec spec = dense(128);
  spec.mask.kind = MaskSpec::Kind::kCausal;
  const auto ctas = [&](const AttentionSpec& of, int q_len) {
    const LaunchRecipe recipe = launch_of(plan_of(of, pair), 2, q_len, 300);
    EXPECT_EQ(recipe.cluster[0], 2U);
    return recipe.grid[0];
  };
  const auto heads = static_cast<std::uint32_t>(spec.num_q_heads);
  EXPECT_EQ(ctas(spec, 513), 2U * 2 * 2 * heads);
  EXPECT_EQ(ctas(spec, 1), 2U * 2 * heads);
  EXPECT_EQ(ctas(dense(128), 100000), 148U);
}

// One O of up to 256 columns: two buffers of S, and Q behind it.
TEST(Sm100Plan, SingleAccumulator) {
  for (const auto& [qk_depth, ov_depth, num_qo] : {std::tuple{256, 256, 0},
                                                   {256, 128, 0},
                                                   {200, 200, 0},
                                                   {248, 208, 1},
                                                   {256, 256, 1},
                                                   {200, 128, 0},
                                                   {248, 8, 1}}) {
    AttentionSpec spec = dense(qk_depth);
    spec.ov_depth = ov_depth;
    PlanOptions options;
    options.pair_cta = false;
    if (num_qo > 0) options.num_qo = num_qo;
    const KernelPlan result = plan_of(spec, options);
    SCOPED_TRACE(spec_to_json(spec));
    EXPECT_TRUE(result.supported) << result.reason;
    ASSERT_NE(result.sm100, nullptr);
    const Sm100Plan& plan = *result.sm100;
    EXPECT_EQ(plan.reference,
              qk_depth == 256 && num_qo == 0 ? ConfigKind::kDepth512 : ConfigKind::kFa4);
    EXPECT_EQ(plan.softmax_warpgroups, 1);
    EXPECT_EQ(result.main().threads, 384);
    EXPECT_EQ(result.main().cluster, 1);
    EXPECT_FALSE(plan.can_switch_to_1q);
    const Sm100Variant& body = plan.variants.front();
    EXPECT_EQ(body.num_qo, 1);
    EXPECT_EQ(body.BN, 64);
    EXPECT_GE(body.num_kv_stages, 3);
    ASSERT_EQ(body.tmem.size(), 4U);
    EXPECT_EQ(body.tmem[2].region, Region::kO);
    EXPECT_EQ(body.tmem[2].size, body.padded_ov_depth);
    EXPECT_EQ(body.tmem[3].region, Region::kQ);
    EXPECT_EQ(body.tmem[3].size, body.qk_mma_depth / 2);
    check_plan(result, "a single accumulator");
  }
  AttentionSpec fixed = dense(256);
  fixed.partition_keys = 192;
  EXPECT_TRUE(plan_of(fixed).supported) << plan_of(fixed).reason;
  EXPECT_EQ(plan_of(fixed).sm100->partition_tiles, 3);
  PlanOptions two;
  two.num_qo = 2;
  EXPECT_NE(plan_of(dense(256), two).reason.find("num_qo is 2"), std::string::npos);
  AttentionSpec narrow = dense(200);
  narrow.ov_depth = 128;
  EXPECT_NE(plan_of(narrow, two).reason.find("no room for two stages"), std::string::npos);
}

}  // namespace
}  // namespace attnjit

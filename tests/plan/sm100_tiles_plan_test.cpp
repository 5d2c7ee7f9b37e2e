// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: how many keys and rows a tile has, by depth, pages and groups.

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

using I = std::int64_t;

TEST(Sm100Plan, Depth64IsLoweredFrom192Keys) {
  const KernelPlan result = plan_of(dense(64));
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->reference, "192");
  EXPECT_EQ(bn->actual, "128");
  EXPECT_NE(bn->reason.find("spill"), std::string::npos);
  EXPECT_EQ(result.sm100->variants.front().pv_keys, (std::vector<I>{96, 32}));
}

// They have the tiles of depth 64.
TEST(Sm100Plan, DepthsBelow64) {
  for (const int depth : {8, 40, 56}) {
    const KernelPlan result = plan_of(dense(depth));
    SCOPED_TRACE(depth);
    EXPECT_TRUE(result.supported) << result.reason;
    ASSERT_NE(result.sm100, nullptr);
    const Sm100Variant& body = result.sm100->variants.front();
    const KernelPlan of_64 = plan_of(dense(64));
    const Sm100Variant& usual = of_64.sm100->variants.front();
    EXPECT_EQ(body.BN, usual.BN);
    EXPECT_EQ(body.num_kv_stages, usual.num_kv_stages);
    EXPECT_EQ(body.smem_bytes(), usual.smem_bytes());
    EXPECT_EQ(body.qk_mma_depth, (depth + 15) / 16 * 16);
    check_plan(result, "below 64");
  }
}

TEST(Sm100Plan, ColumnsComeInBatchesOf32) {
  AttentionSpec spec = dense(112);
  PlanOptions options;
  options.swizzle_bytes = 32;  // padded to 112: the reference has 144 keys
  const KernelPlan result = plan_of(spec, options);
  ASSERT_NE(deviation(result, "BN"), nullptr);
  EXPECT_EQ(deviation(result, "BN")->reference, "144");
  EXPECT_EQ(deviation(result, "BN")->actual, "128");
}

TEST(Sm100Plan, ALoweredTileFitsThePages) {
  for (const auto& [page, keys] :
       {std::pair{192, 96}, {96, 96}, {48, 96}, {64, 128}, {256, 128}, {32, 128}, {384, 128}}) {
    AttentionSpec spec = dense(64);
    spec.page_size = page;
    const KernelPlan result = plan_of(spec);
    ASSERT_NE(result.sm100, nullptr) << page << ": " << result.reason;
    EXPECT_EQ(result.sm100->variants.front().BN, keys) << page;
  }
}

// The largest box of one page where a tile is no whole pages; none where that is not whole periods
// of the swizzle.
TEST(Sm100Plan, PagesOfAnyNumberOfRows) {
  for (const auto& [page, keys, box] : {std::tuple{8, 128, 8},
                                        {24, 96, 24},
                                        {40, 128, 8},
                                        {80, 128, 16},
                                        {1, 128, 0},
                                        {20, 128, 0}}) {
    AttentionSpec spec = dense(64);
    spec.page_size = page;
    const KernelPlan result = plan_of(spec);
    ASSERT_TRUE(result.supported) << page << ": " << result.reason;
    EXPECT_EQ(result.sm100->variants.front().BN, keys) << page;
    EXPECT_EQ(constants_of(result).at("kBoxRows"), std::to_string(box)) << page;
    EXPECT_EQ(result.sm100->row_copies(), box == 0) << page;
    for (const BarrierPlan& barrier : result.main().barriers) {
      // "K_prod[0]", "V_prod[0]" or, in one ring, "KV_prod[0]".
      if ((barrier.name[0] == 'K' || barrier.name[0] == 'V') &&
          barrier.name.find("_prod") != std::string::npos) {
        EXPECT_EQ(barrier.arrivals, box == 0 ? 32 : 1);
      }
      EXPECT_TRUE(barrier.name != "tail_prod" || box > 0) << page;
    }
  }
}

TEST(Sm100Plan, PagesThatTheReferenceSplitsGetWholeTiles) {
  AttentionSpec spec = dense(128);
  spec.page_size = 48;  // the reference takes 128 keys: two pages and two thirds
  const KernelPlan result = plan_of(spec);
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->actual, "96");
  EXPECT_EQ(bn->reason, "96 keys fit pages of 48, 128 do not");
}

TEST(Sm100Plan, FewRowsOfAnyGroupShareATile) {
  for (const auto& [group, max_q_len, positions] :
       {std::tuple{6, 4, 21}, {12, 10, 10}, {71, 1, 1}, {10, 8, 12}, {8, 16, 16}}) {
    AttentionSpec spec = dense(128);
    spec.num_q_heads = 2 * group;
    spec.group = group;
    spec.max_q_len = max_q_len;
    const KernelPlan result = plan_of(spec);
    ASSERT_TRUE(result.supported) << result.reason;
    for (const Sm100Variant& body : result.sm100->variants) {
      EXPECT_TRUE(body.fuse_gqa) << group;
      EXPECT_EQ(body.BM_eff, body.num_qo * positions) << group;
    }
    const Sm100TensorMap& q = result.sm100->tensor_maps.at(0);
    EXPECT_EQ(q.box, (std::vector<I>{64, group, 1, positions, 1}));
    EXPECT_EQ(launch_of(result, 3, max_q_len, 1000).grid[0], 3U * 2);
    check_plan(result, spec_to_json(spec));
  }
  // One row more is no decode.
  AttentionSpec spec = dense(128);
  spec.num_q_heads = spec.group = 6;
  spec.max_q_len = 22;
  EXPECT_FALSE(plan_of(spec).sm100->variants.front().fuse_gqa);
}

// The reference's tile has 192 keys beside a V of 64 columns, and one stage of those fits; of the
// kernel's 128 keys two do.
TEST(Sm100Plan, StagesAreOfTheKernelsKeys) {
  for (const auto& [qk_depth, ov_depth] : {std::pair{192, 64}, {136, 8}, {160, 40}}) {
    AttentionSpec spec = dense(qk_depth);
    spec.ov_depth = ov_depth;
    SCOPED_TRACE(spec_to_json(spec));
    const KernelPlan result = plan_of(spec);
    EXPECT_TRUE(result.supported) << result.reason;
    ASSERT_NE(result.sm100, nullptr);
    const Sm100Variant& body = result.sm100->variants.front();
    EXPECT_EQ(body.num_qo, 2);
    EXPECT_EQ(body.BN, 128);
    EXPECT_EQ(body.num_kv_stages, 2);
    EXPECT_TRUE(result.sm100->can_switch_to_1q);
    check_plan(result, "fewer keys than the reference's");
  }
}

}  // namespace
}  // namespace attnjit

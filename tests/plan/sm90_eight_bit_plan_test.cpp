// SPDX-License-Identifier: Apache-2.0
// Sm90Plan of e4m3, of K and V of e4m3 beside 16-bit Q, and of their scales.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

// V of e4m3 comes in rows and is transposed to columns; O of bf16 is longer than its Q.
TEST(Sm90Plan, E4m3HasMemoryForVAsItComes) {
  for (const int depth : {16, 64, 96, 128, 192, 256}) {
    for (const MaskSpec::Kind mask : {MaskSpec::Kind::kNull, MaskSpec::Kind::kCausal}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.qkv_dtype = Dtype::kE4m3;
      spec.mask.kind = mask;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      const int columns = (depth + 31) / 32 * 32;
      EXPECT_EQ(sm90.v_bytes, std::int64_t{sm90.BN} * columns);
      EXPECT_EQ(sm90.v_raw_stage_bytes, std::int64_t{sm90.BN} * (depth > 128 ? 256 : 128));
      EXPECT_EQ(sm90.k_raw_stage_bytes, 0);
      EXPECT_EQ(sm90.BN % 32, 0);
      EXPECT_GE(sm90.num_raw_stages, 1);
      EXPECT_LE(sm90.smem_bytes, 232448);
      // Staged O does not fit Q's memory where it has more blocks of 128 bytes in a row.
      const bool fits_q = 2 * depth <= (depth + 127) / 128 * 128;
      EXPECT_TRUE(fits_q || sm90.o_blocks >= 1) << depth;
      int rows = 0, keys = 0;
      for (const PlacedRegion& range : sm90.smem) {
        rows += range.region == Region::kRawV;
        keys += range.region == Region::kRawWords;
        EXPECT_TRUE(range.region != Region::kRawV || range.begin % 1024 == 0);
      }
      EXPECT_EQ(rows, sm90.num_raw_stages);
      EXPECT_EQ(keys, 1);
      EXPECT_EQ(sm90.p_bias, 8);
      // What P may come to: less than e4m3's greatest number.
      EXPECT_LT(std::exp2(sm90.p_bias + sm90.rescale_threshold), 448);
    }
  }
  EXPECT_EQ(plan_of(sm90_spec(128)).sm90->num_raw_stages, 0);
}

// The tensor cores sum the rows of P where nothing but O is divided by the sums: not between depths
// 128 and 192. Above 96 three consumers have the registers for that which the producer has less of.
TEST(Sm90Plan, E4m3SumsRowsByProduct) {
  for (const int depth : {16, 64, 96, 128, 160, 192, 208, 256}) {
    AttentionSpec spec = sm90_spec(depth);
    spec.qkv_dtype = Dtype::kE4m3;
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(sm90.sums_by_product, depth <= 128 || depth > 192) << depth;
    if (depth < 256) {
      EXPECT_EQ(sm90.consumer_registers, depth <= 96 ? 152 : depth <= 128 ? 160 : 224) << depth;
      EXPECT_EQ(sm90.producer_registers, depth > 96 && depth <= 128 ? 32 : 56) << depth;
    }
    EXPECT_EQ(sm90.smem.begin_of(Region::kOnes) > 0, depth <= 128 || depth > 192) << depth;
    // Who has 32 registers keeps the tile list elsewhere.
    EXPECT_EQ(sm90.smem.begin_of(Region::kCursors) > 0, depth > 96 && depth <= 128) << depth;

    spec.return_lse = true;
    const KernelPlan with_lse = plan_of(spec);
    EXPECT_FALSE(with_lse.sm90->sums_by_product) << depth;
    EXPECT_EQ(with_lse.sm90->consumer_registers, depth <= 128 ? 152 : 224) << depth;
  }
}

// Consumers of e4m3 at depth 256 hold three steps of Q in registers, which the producer has less
// of, where the mask and the modification leave them: not of other depths and types.
TEST(Sm90Plan, ConsumersOfE4m3HoldQ) {
  AttentionSpec e4m3 = sm90_spec(256);
  e4m3.qkv_dtype = Dtype::kE4m3;
  const auto steps_of = [&](void (*change)(AttentionSpec&)) {
    AttentionSpec spec = e4m3;
    change(spec);
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(constants_of(plan).at("kQRegisterSteps"), std::to_string(sm90.q_register_steps));
    if (spec.qkv_dtype == Dtype::kE4m3 && sm90.num_consumers == 2) {
      EXPECT_EQ(sm90.consumer_registers, sm90.q_register_steps > 0 ? 232 : 224);
      EXPECT_EQ(sm90.producer_registers, sm90.q_register_steps > 0 ? 40 : 56);
    }
    return sm90.q_register_steps;
  };
  const auto softcap = [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kSoftcap; };
  const auto alibi = [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; };
  EXPECT_EQ(steps_of([](AttentionSpec&) {}), 3);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kCausal; }), 3);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.page_size = 64; }), 3);
  EXPECT_EQ(steps_of(softcap), 3);
  EXPECT_EQ(steps_of(alibi), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kSlidingWindow; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.return_lse = true; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 240; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 128; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qkv_dtype = Dtype::kBf16; }), 0);
}

TEST(Sm90Plan, KeysWithScalesHaveBuffersForThem) {
  for (const int depth : {16, 64, 128, 192, 256}) {
    for (const int max_q_len : {0, 1}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.qkv_dtype = Dtype::kE4m3;
      spec.page_size = 16;
      spec.max_q_len = max_q_len;
      spec.scales = Scales::kHead;
      EXPECT_EQ(constants_of(plan_of(spec)).at("kKeyScalesOffset"), "0");
      spec.scales = Scales::kToken;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      EXPECT_LE(sm90.smem_bytes, sm90.ctas_per_sm == 2 ? 115712 : 232448) << depth;
      EXPECT_FALSE(sm90.sums_by_product);
      const auto range =
          std::find_if(plan.main().smem_map.begin(), plan.main().smem_map.end(),
                       [](const MemoryRange& one) { return one.name == "scales of keys"; });
      ASSERT_NE(range, plan.main().smem_map.end());
      EXPECT_EQ(range->size, (sm90.num_v_stages + 1) * 3 * 4 * sm90.BN + 16 * sm90.num_raw_stages);
      EXPECT_EQ(constants_of(plan).at("kKeyScalesOffset"), std::to_string(range->begin));
      // A table names pages, of which the launch has so many.
      EXPECT_TRUE(std::any_of(plan.main().parameters.begin(), plan.main().parameters.end(),
                              [](const KernelParameter& one) { return one.name == "num_pages"; }));
    }
  }
}

// Tiles of K and V come as e4m3 and are upcast to 16 bits: every choice has room for both.
TEST(Sm90Plan, UpcastKvHasMemoryForBothForms) {
  for (const int depth : {16, 64, 80, 128, 192, 256}) {
    for (const int max_q_len : {0, 1}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.kv_dtype = Dtype::kE4m3;
      spec.max_q_len = max_q_len;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      EXPECT_TRUE(sm90.spec->upcasts_kv);
      EXPECT_EQ(sm90_kv_row_bytes(*sm90.spec), depth % 128 == 0 ? 128 : 64);
      EXPECT_EQ(sm90.k_bytes, std::int64_t{sm90.BN} * ((depth + 63) / 64 * 128));
      EXPECT_EQ(sm90.k_raw_stage_bytes, sm90.k_bytes / 2);
      EXPECT_EQ(sm90.v_raw_stage_bytes, sm90.v_bytes / 2);
      EXPECT_EQ(sm90.BN % 32, 0);
      EXPECT_GE(sm90.num_raw_stages, 1);
      // What P may come to: less than fp16's greatest number.
      EXPECT_LT(std::exp2(sm90.p_bias + sm90.rescale_threshold), 65504);
      EXPECT_LE(sm90.smem_bytes, sm90.ctas_per_sm == 2 ? 115712 : 232448) << depth;
      EXPECT_EQ(sm90.ctas_per_sm, max_q_len == 1 && depth <= 128 ? 2 : 1);
    }
  }
  EXPECT_FALSE(plan_of(sm90_spec(128)).sm90->spec->upcasts_kv);
}

// Beside warps that upcast K and V who deals out work tiles has few registers, and keeps its place
// in shared memory where sequences are of one length.
TEST(Sm90Plan, ListsOfWorkAreStashedBesideWhoUpcasts) {
  const auto stashes = [](auto change) {
    AttentionSpec spec = sm90_spec(128);
    spec.kv_dtype = Dtype::kE4m3;
    spec.scales = Scales::kToken;
    change(spec);
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(sm90.producer_registers, sm90.cuts ? 48 : 40);
    EXPECT_EQ(2 * sm90.producer_registers + sm90.num_consumers * sm90.consumer_registers,
              (2 + sm90.num_consumers) * plan.main().launch_registers);
    EXPECT_EQ(constants_of(plan).at("kCursorsOffset") != "0", sm90.stashes_cursor || sm90.cuts);
    EXPECT_EQ(constants_of(plan).at("kRematerializes"), "true");
    return sm90.stashes_cursor && sm90.smem.begin_of(Region::kCursors) > 0;
  };
  EXPECT_TRUE(stashes([](AttentionSpec&) {}));
  EXPECT_TRUE(stashes([](AttentionSpec& s) { s.mask = mask_of(MaskSpec::Kind::kCausal); }));
  EXPECT_TRUE(stashes([](AttentionSpec& s) { s.qk_depth = 64; }));
  EXPECT_TRUE(stashes([](AttentionSpec& s) { s.scales = Scales::kHead; }));
  EXPECT_FALSE(stashes([](AttentionSpec& s) { s.ragged = true; }));
  EXPECT_FALSE(stashes([](AttentionSpec& s) { s.page_size = 16; }));
}

// NOTE: warps that no role names are missing from a report of the clock. The kernel is told of as
// many.
TEST(Sm90Plan, EachWarpThatRewritesTilesHasARole) {
  const auto roles = [](auto change) {
    AttentionSpec spec = sm90_spec(128);
    change(spec);
    const KernelPlan plan = plan_of(spec);
    std::vector<std::string> lines;
    for (const PlannedKernel::Role& role : plan.kernels.front().roles) {
      lines.push_back(role.name + " " + std::to_string(role.first_warp) + " " +
                      std::to_string(role.num_warps));
    }
    lines.resize(4);
    const auto constants = constants_of(plan);
    for (const char* const name : {"kFirstVRewriter", "kVRewriters", "kKRewriters"}) {
      lines.push_back(constants.at(name));
    }
    return lines;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(roles([](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; }),
            (Lines{"load 0 1", "upcast V 1 3", "upcast K 4 4", "consumer 0 8 4", "1", "3", "4"}));
  EXPECT_EQ(
      roles([](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; }),
      (Lines{"load 0 1", "transpose 1 3", "consumer 0 4 4", "consumer 1 8 4", "1", "3", "0"}));
  // Of pages that hold no box one warp copies rows where others rewrite them.
  const auto of_rows = [](Dtype dtype) {
    return [dtype](AttentionSpec& s) {
      s.qkv_dtype = dtype;
      s.page_size = 3;
    };
  };
  EXPECT_EQ(roles(of_rows(Dtype::kE4m3)).front(), "load 0 1");
  EXPECT_EQ(roles(of_rows(Dtype::kBf16)).front(), "load 0 4");
  EXPECT_EQ(roles([](AttentionSpec&) {}), (Lines{"load 0 1", "consumer 0 4 4", "consumer 1 8 4",
                                                 "consumer 2 12 4", "1", "0", "0"}));
}

}  // namespace
}  // namespace attnjit

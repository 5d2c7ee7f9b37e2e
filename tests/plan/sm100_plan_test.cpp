// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: what is chosen for a spec, and each known deviation from the reference.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

using I = std::int64_t;

TEST(Sm100Plan, IsTheReferenceButForOsBuffers) {
  const KernelPlan result = plan_of(dense(128));
  const Sm100Variant& v = result.sm100->variants.front();
  EXPECT_EQ(v.BN, 128);
  EXPECT_EQ(v.num_kv_stages, 2);
  EXPECT_FALSE(v.use_fused_kv);
  EXPECT_EQ(v.num_qk_stages, 1);  // K comes whole
  EXPECT_EQ(v.num_o_buffers, 2);
  EXPECT_EQ(v.tmem_used(), 512);
  // 256 x 128 x 2 of Q, 2 stages of 128 x 128 x 2 of K and of V, 2 blocks of 128 rows of 128 bytes
  // of O, 512 floats, one address, 28 barriers.
  EXPECT_EQ(v.smem_bytes(), 65536 + 4 * 32768 + 2 * 16384 + 2048 + 8 + 28 * 8);
  EXPECT_EQ(deviation(result, "BN"), nullptr);
  ASSERT_NE(deviation(result, "num_kv_stages"), nullptr);
  EXPECT_NE(deviation(result, "num_kv_stages")->reason.find("O has buffers"), std::string::npos);
  EXPECT_TRUE(result.sm100->can_switch_to_1q);
  EXPECT_EQ(result.main().threads, 512);
  EXPECT_EQ(result.main().launch_registers, 128);
}

TEST(Sm100Plan, BarriersHaveTheReferencesOrderAndOneArrivalAWarp) {
  const KernelPlan result = plan_of(dense(128));
  std::vector<std::pair<std::string, int>> expected{
      {"S0_cons[0]", 8}, {"S0_cons[1]", 4}, {"S1_cons[0]", 8}, {"S1_cons[1]", 4}, {"C0_prod", 4},
      {"C0_cons", 4},    {"C1_prod", 4},    {"C1_cons", 4},    {"S0_prod", 1},    {"S1_prod", 1},
      {"Q0_prod", 1},    {"Q1_prod", 1},    {"Q0_cons", 1},    {"Q1_cons", 1}};
  for (const char* ring : {"K", "V"}) {
    for (const char* side : {"prod", "cons"}) {
      for (int i = 0; i < 2; ++i) {
        expected.emplace_back(std::string(ring) + "_" + side + "[" + std::to_string(i) + "]", 1);
      }
    }
  }
  for (const auto& [name, arrivals] : {std::pair{"O0_prod", 1},
                                       {"O1_prod", 1},
                                       {"O_staged[0]", 4},
                                       {"O_staged[1]", 4},
                                       {"O_cons[0]", 1},
                                       {"O_cons[1]", 1}}) {
    expected.emplace_back(name, arrivals);
  }
  ASSERT_EQ(result.main().barriers.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.main().barriers[i].name, expected[i].first);
    EXPECT_EQ(result.main().barriers[i].arrivals, expected[i].second) << expected[i].first;
  }
}

// With one work tile per CTA nobody hands a query tile's memory on, nor a buffer of O that no
// second block takes.
TEST(Sm100Plan, OneWorkTileHasNoBarriersForTheNext) {
  const auto has = [](const KernelPlan& plan, const std::string& name) {
    const auto& barriers = plan.main().barriers;
    return std::any_of(barriers.begin(), barriers.end(),
                       [&](const auto& barrier) { return barrier.name == name; });
  };
  const auto takes = [](const KernelPlan& plan, const std::string& name) {
    const auto& parameters = plan.main().parameters;
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const auto& parameter) { return parameter.name == name; });
  };
  Tuning walks;
  walks.rows.push_back({{}, {{"persistent", 1}}});
  const auto causal = [](int depth) {
    AttentionSpec spec = dense(depth);
    spec.mask.kind = MaskSpec::Kind::kCausal;
    return spec;
  };
  AttentionSpec pages = dense(256);
  pages.page_size = 16;
  AttentionSpec keys = dense(128);
  keys.ragged_kv = keys.ragged = true;
  struct {
    const char* what;
    KernelPlan plan;
    bool one, reuses_o;
  } const all[] = {{"no mask", plan_of(dense(128)), false, true},
                   {"causal", plan_of(causal(128)), true, true},
                   {"a block of O for each query tile", plan_of(causal(64)), true, false},
                   {"O over Q", plan_of(causal(192)), true, false},
                   {"a single accumulator", plan_of(pages), true, false},
                   {"tuned", plan_of(causal(64), {}, &walks), false, true},
                   {"published", plan_of(keys), false, true}};
  for (const auto& one : all) {
    SCOPED_TRACE(one.what);
    EXPECT_EQ(one.plan.sm100->one_work_tile(), one.one);
    EXPECT_EQ(has(one.plan, "Q0_cons"), !one.one);
    EXPECT_EQ(has(one.plan, "O_cons[0]"), one.reuses_o);
    EXPECT_EQ(takes(one.plan, "total_tiles"), !one.one && !one.plan.sm100->published);
  }
}

// The table of docs/sm100.md: more where the MUFU is the bound, fewer where the tensor cores are.
TEST(Sm100Plan, PolynomialsByWhatBoundsTheLoop) {
  const auto pairs = [](int qk_depth, int ov_depth, Arch arch = Arch::kSm100a) {
    AttentionSpec spec = dense(qk_depth);
    spec.ov_depth = ov_depth;
    spec.arch = arch;
    return plan_of(spec).sm100->exp2_fma_pairs;
  };
  EXPECT_EQ(pairs(64, 64), 12);
  EXPECT_EQ(pairs(96, 96), 12);
  EXPECT_EQ(pairs(112, 112), 8);
  EXPECT_EQ(pairs(128, 128), 8);
  EXPECT_EQ(pairs(192, 128), 4);
  EXPECT_EQ(pairs(192, 192), 2);  // of 32: a tile has 64 keys
  EXPECT_EQ(pairs(64, 64, Arch::kSm103a), 0);
}

TEST(Sm100Plan, CountsTheRopePartWithoutRopeDtype) {
  AttentionSpec spec = dense(192);
  spec.ov_depth = 128;
  const KernelPlan unset = plan_of(spec);
  const Deviation* stages = deviation(unset, "num_kv_stages");
  ASSERT_NE(stages, nullptr);
  EXPECT_NE(stages->reason.find("rope"), std::string::npos);
  // Q, ring and rope buffers: what is loaded.
  const Sm100Variant& v = unset.sm100->variants.front();
  I k_bytes = 0;
  for (const PlacedRegion& region : v.smem) {
    if (region.name == "KV ring" || region.name == "K rope") k_bytes += region.size;
    if (region.name == "K ring" || region.name == "V ring") k_bytes += region.size;
  }
  const I k_tile = 128 * 192 * 2;
  const I v_tile = 128 * 128 * 2;
  const I k_tiles = v.use_fused_kv ? (v.num_kv_stages + 1) / 2 : v.num_kv_stages;
  const I v_tiles = v.use_fused_kv ? v.num_kv_stages - k_tiles : v.num_kv_stages;
  EXPECT_EQ(k_bytes, k_tiles * k_tile + v_tiles * v_tile);
  // With the default written out it is the same kernel.
  spec.rope_dtype = Dtype::kBf16;
  const KernelPlan set = plan_of(spec);
  EXPECT_EQ(set.main().smem_bytes, unset.main().smem_bytes);
  ASSERT_EQ(set.main().constants.size(), unset.main().constants.size());
  for (std::size_t i = 0; i < set.main().constants.size(); ++i) {
    EXPECT_EQ(set.main().constants[i].value, unset.main().constants[i].value)
        << set.main().constants[i].name;
  }
}

TEST(Sm100Plan, CapsTheStagesAtSixtyFourBarriers) {
  AttentionSpec spec = dense(64, Dtype::kE4m3);
  spec.group = 8;
  spec.page_size = 128;
  EXPECT_EQ(deviation(plan_of(spec), "num_kv_stages")->actual, "11");  // what the memory holds
  spec.num_partitions = 0;
  const KernelPlan two = plan_of(spec);
  const Deviation* stages = deviation(two, "num_kv_stages");
  ASSERT_NE(stages, nullptr);
  EXPECT_EQ(stages->reference, "13");
  EXPECT_EQ(stages->actual, "9");
  EXPECT_NE(stages->reason.find("barriers"), std::string::npos);
  PlanOptions options;
  options.num_qo = 1;
  spec.num_partitions = 1;
  const KernelPlan one = plan_of(spec, options);
  ASSERT_NE(deviation(one, "num_kv_stages"), nullptr);
  EXPECT_EQ(deviation(one, "num_kv_stages")->actual, "12");  // of 13: K and V have a ring each
  EXPECT_LE(one.main().barriers.size(), 64U);
  options.num_qo = 2;
  options.pair_cta = true;
  options.swizzle_bytes = 64;
  spec = dense(128, Dtype::kE4m3);
  const KernelPlan pair = plan_of(spec, options);
  EXPECT_LE(pair.main().barriers.size(), 64U);
  EXPECT_EQ(pair.sm100->variants.front().num_qk_stages, 1);
}

// O has buffers beside Q where they leave K and V four tiles.
TEST(Sm100Plan, OHasBuffersWhereThereIsRoom) {
  const auto body = [](AttentionSpec spec) { return plan_of(spec).sm100->variants.front(); };
  for (const int depth : {8, 64, 80, 128}) {
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3}) {
      if (dtype == Dtype::kE4m3 && depth == 8) continue;
      const Sm100Variant v = body(dense(depth, dtype));
      EXPECT_EQ(v.num_o_buffers, 2) << depth;
      EXPECT_TRUE(v.smem_overlays.empty()) << depth;
      EXPECT_GE(v.num_kv_stages, 2) << depth;
      check_plan(plan_of(dense(depth, dtype)), "buffers of O");
    }
  }
  AttentionSpec wide = dense(128);
  wide.output_dtype = Dtype::kF32;  // four blocks
  EXPECT_EQ(body(wide).num_o_buffers, 0);
  AttentionSpec rope = dense(192);
  rope.ov_depth = 128;
  EXPECT_EQ(body(rope).num_o_buffers, 0);
  EXPECT_EQ(body(dense(192)).num_o_buffers, 0);
  EXPECT_EQ(body(dense(256)).num_o_buffers, 0);
  AttentionSpec upcast = dense(64);
  upcast.kv_dtype = Dtype::kE4m3;
  EXPECT_EQ(body(upcast).num_o_buffers, 2);
  upcast.qk_depth = upcast.ov_depth = 128;  // three stages of each
  EXPECT_EQ(body(upcast).num_o_buffers, 0);
}

TEST(Sm100Plan, ElsewhereOLiesOverItsQueryTileWhichHoldsTheLarger) {
  PlanOptions one;
  one.num_qo = 1;
  EXPECT_EQ(plan_of(dense(128), one).sm100->variants.front().num_o_buffers, 0);
  const KernelPlan half = plan_of(dense(192));
  EXPECT_EQ(half.sm100->variants.front().smem_overlays[1].begin, 49152);
  EXPECT_EQ(half.sm100->variants.front().smem_overlays[1].size, 49152);
  EXPECT_EQ(half.main().smem_map[0].size, 98304);
  const KernelPlan fp8 = plan_of(dense(192, Dtype::kE4m3));
  const Sm100Variant& v = fp8.sm100->variants.front();
  EXPECT_EQ(v.smem[0].size, 98304);  // Q is half of it
  EXPECT_EQ(v.smem_overlays[1].begin, 49152);
  EXPECT_EQ(v.smem_overlays[1].size, 49152);
}

// One warp asks an expression which tiles it hides: before the roles of a CTA with one work tile
// begin, or as it publishes work tiles.
TEST(Sm100Plan, OneWarpAsksWhatAnExpressionHides) {
  struct {
    const char* code;
    int depth;
    bool pair, persistent, published, skips_tiles;
  } const all[] = {{"q_idx / 512 == kv_idx / 512", 128, false, true, true, true},
                   {"kv_idx <= q_idx && q_idx - kv_idx < p.n", 128, false, true, true, true},
                   {"kv_idx < kv_len + p.n", 128, false, true, true, true},
                   {"sin(float(kv_idx)) < 0.5f", 128, false, true, false, false},
                   {"p.doc[q_idx] == p.doc[kv_idx]", 128, false, true, false, false},
                   {"q_idx / 512 == kv_idx / 512", 128, true, true, false, false},
                   {"q_idx / 512 == kv_idx / 512", 256, false, false, false, true}};
  for (const auto& one : all) {
    SCOPED_TRACE(one.code);
    SCOPED_TRACE(one.depth);
    AttentionSpec spec = dense(one.depth);
    spec.mask.kind = MaskSpec::Kind::kCustom;
    spec.mask.custom.name = "m";
    spec.mask.custom.code = one.code;
    const std::string code = one.code;
    if (code.find("p.n") != std::string::npos) {
      spec.mask.custom.params = {{"n", ParamSpec::Type::kI32}};
    } else if (code.find("p.doc") != std::string::npos) {
      spec.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
    }
    PlanOptions options;
    if (one.pair) options.pair_cta = true;
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_EQ(plan.sm100->persistent, one.persistent ? 1 : 0);
    EXPECT_EQ(plan.sm100->published, one.published);
    EXPECT_EQ(plan.sm100->skips_tiles, one.skips_tiles);
    EXPECT_FALSE(plan.main().overlaps && !plan.sm100->block_mask);
    spec.page_size = 16;
    EXPECT_EQ(plan_of(spec, options).sm100->skips_tiles,
              !plan.sm100->block_mask && one.code[0] != 's');
  }
}

// More than one gap is left out where an expression may hide tiles again and again: that costs
// each tile that is walked a branch. What asks nothing of tiles leaves none out.
TEST(Sm100Plan, ManyGapsWhereAnExpressionHidesAgain) {
  struct {
    const char* code;
    int depth;
    bool pair, many;
  } const all[] = {
      {"kv_idx / 128 % 5 == 1", 128, false, true},
      {"(kv_idx >> 7 & 3) == 0", 128, false, true},
      {"kv_idx <= q_idx && (q_idx - kv_idx < 512 || kv_idx / 128 % 4 == 0)", 256, false, true},
      {"kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 512)", 128, false, false},
      {"q_idx / 512 == kv_idx / 512", 128, false, false},
      {"kv_idx / 128 % 5 == 1", 128, true, false},
      {"sin(float(kv_idx % 5)) < 0.5f", 128, false, false}};
  for (const auto& one : all) {
    SCOPED_TRACE(one.code);
    AttentionSpec spec = dense(one.depth);
    spec.mask.kind = MaskSpec::Kind::kCustom;
    spec.mask.custom.name = "m";
    spec.mask.custom.code = one.code;
    PlanOptions options;
    if (one.pair) options.pair_cta = true;
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_EQ(plan.sm100->many_gaps, one.many);
    EXPECT_EQ(constants_of(plan).at("kManyGaps"), one.many ? "true" : "false");
  }
}
TEST(Sm100Plan, OneBudgetAWarpgroup) {
  const KernelPlan result = plan_of(dense(128));
  const Deviation* scheduler = deviation(result, "registers of the scheduler warps");
  ASSERT_NE(scheduler, nullptr);
  EXPECT_EQ(scheduler->reference, "24");
  EXPECT_EQ(scheduler->actual, "48");
  AttentionSpec mla = dense(192);
  mla.ov_depth = 128;
  mla.mla = Mla::kPrefill;
  EXPECT_EQ(plan_of(mla).sm100->roles.front().registers, 192);
}

TEST(Sm100Plan, Sm103NeedsNoExp2Emulation) {
  AttentionSpec spec = dense(128);
  EXPECT_EQ(plan_of(spec).sm100->exp2_fma_pairs, 8);
  spec.arch = Arch::kSm103a;
  const KernelPlan result = plan_of(spec);
  EXPECT_EQ(result.sm100->exp2_fma_pairs, 0);
  EXPECT_TRUE(result.supported) << result.reason;
}

TEST(Sm100Plan, SaysWhyItServesASpecNot) {
  struct Case {
    AttentionSpec spec;
    std::string part;
  };
  std::vector<Case> cases;
  cases.push_back({dense(65), "16 bytes"});
  cases.push_back({dense(72, Dtype::kE4m3), "16 bytes"});
  cases.push_back({dense(264), "same multiple of 64 up to 512"});
  cases.push_back({dense(1024), "same multiple of 64 up to 512"});
  AttentionSpec decode = dense(576);
  decode.ov_depth = 512;
  decode.mla = Mla::kDecode;
  cases.push_back({decode, "decode"});
  AttentionSpec inverse = dense(64);
  inverse.ov_depth = 128;
  cases.push_back({inverse, "ov_depth 128"});
  for (const Case& c : cases) {
    const KernelPlan result = plan_of(c.spec);
    EXPECT_FALSE(result.supported);
    EXPECT_EQ(result.sm100, nullptr) << c.part;
    EXPECT_NE(result.reason.find(c.part), std::string::npos) << result.reason;
  }
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: what is chosen for a spec, and each known deviation from the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/signature.h"
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
  EXPECT_EQ(v.tmem_used, 512);
  // 256 x 128 x 2 of Q, 2 stages of 128 x 128 x 2 of K and of V, 2 blocks of 128 rows of 128 bytes
  // of O, 512 floats, one address, 28 barriers.
  EXPECT_EQ(v.smem_bytes, 65536 + 4 * 32768 + 2 * 16384 + 2048 + 8 + 28 * 8);
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
                   {"one O", plan_of(pages), true, false},
                   {"tuned", plan_of(causal(64), {}, &walks), false, true},
                   {"announced", plan_of(keys), false, true}};
  for (const auto& one : all) {
    SCOPED_TRACE(one.what);
    EXPECT_EQ(one.plan.sm100->one_work_tile(), one.one);
    EXPECT_EQ(has(one.plan, "Q0_cons"), !one.one);
    EXPECT_EQ(has(one.plan, "O_cons[0]"), one.reuses_o);
    EXPECT_EQ(takes(one.plan, "total_tiles"), !one.one && !one.plan.sm100->announced);
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

// Who widens K and V takes registers, and a caller's code for each score takes more.
TEST(Sm100Plan, FewPolynomialsBesideWideningAndACallersCode) {
  AttentionSpec spec = dense(64);
  spec.kv_dtype = Dtype::kE4m3;
  EXPECT_EQ(plan_of(spec).sm100->exp2_fma_pairs, 9);  // of 48
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom.name = "doubled";
  spec.score_mod.custom.code = "score + score";
  EXPECT_EQ(plan_of(spec).sm100->exp2_fma_pairs, 3);
  spec.kv_dtype.reset();
  EXPECT_EQ(plan_of(spec).sm100->exp2_fma_pairs, 12);
}

TEST(Sm100Plan, Depth64IsLoweredFrom192Keys) {
  const KernelPlan result = plan_of(dense(64));
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->reference, "192");
  EXPECT_EQ(bn->actual, "128");
  EXPECT_NE(bn->reason.find("spill"), std::string::npos);
  EXPECT_EQ(result.sm100->variants.front().pv_keys, (std::vector<I>{96, 32}));
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
  for (const Sm100SmemRegion& region : v.smem) {
    if (to_string(region.region) == "KV ring" || to_string(region.region) == "K rope")
      k_bytes += region.size;
    if (to_string(region.region) == "K ring" || to_string(region.region) == "V ring")
      k_bytes += region.size;
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
  AttentionSpec widened = dense(64);
  widened.kv_dtype = Dtype::kE4m3;
  EXPECT_EQ(body(widened).num_o_buffers, 2);
  widened.qk_depth = widened.ov_depth = 128;  // three stages of each
  EXPECT_EQ(body(widened).num_o_buffers, 0);
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

// 128 keys of depth 128 are 16 KiB: a row of 128 bytes is a row of one block.
TEST(Sm100Plan, E4m3HasHalfOfTheBytesAndTwiceTheStages) {
  const KernelPlan plan = plan_of(dense(128, Dtype::kE4m3));
  EXPECT_TRUE(plan.supported) << plan.reason;
  check_plan(plan, "e4m3");
  EXPECT_EQ(plan.sm100->swizzle_bytes, 128);
  ASSERT_NE(deviation(plan, "swizzle_bytes"), nullptr);
  EXPECT_EQ(deviation(plan, "swizzle_bytes")->reference, "64");
  const Sm100Variant& v = plan.sm100->variants.front();
  EXPECT_EQ(v.MMA_K, 32);
  EXPECT_EQ(v.k_stage_bytes, 16384);
  EXPECT_EQ(v.num_kv_stages, 5);
  EXPECT_EQ(v.pv_keys, (std::vector<I>{96, 32}));
  EXPECT_EQ(v.tmem_overlays[1].size, 32);  // P, four keys a column
  EXPECT_EQ(plan.sm100->p_bias, 8);
  // What a stale maximum lets P grow to is below e4m3's greatest number.
  EXPECT_LT(std::exp2(plan.sm100->p_bias + plan.sm100->rescale_threshold), 448);
  // Polynomials: the MUFU is the bound, and P takes few registers.
  EXPECT_EQ(plan.sm100->exp2_fma_pairs, 16);
  AttentionSpec parts = dense(128, Dtype::kE4m3);
  parts.num_partitions = 2;
  EXPECT_EQ(plan_of(parts).sm100->exp2_fma_pairs, 16);
  PlanOptions mapped;
  mapped.mask_map = true;
  EXPECT_EQ(plan_of(dense(128, Dtype::kE4m3), mapped).sm100->exp2_fma_pairs, 16);
  EXPECT_EQ(plan_of(parts, mapped).sm100->exp2_fma_pairs, 12);
  PlanOptions alone;
  alone.num_qo = 1;
  EXPECT_EQ(plan_of(dense(128, Dtype::kE4m3), alone).sm100->exp2_fma_pairs, 8);
  EXPECT_EQ(plan_of(dense(128)).sm100->p_bias, 0);
  EXPECT_EQ(plan_of(dense(128)).sm100->rescale_threshold, 8);
}

// One warp asks an expression which tiles it hides: before the roles of a CTA with one work tile
// begin, or as it announces work tiles.
TEST(Sm100Plan, OneWarpAsksWhatAnExpressionHides) {
  struct {
    const char* code;
    int depth;
    bool pair, persistent, announced, trims;
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
    EXPECT_EQ(plan.sm100->announced, one.announced);
    EXPECT_EQ(plan.sm100->trims, one.trims);
    EXPECT_FALSE(plan.main().overlaps && !plan.sm100->mapped);
    spec.page_size = 16;
    EXPECT_EQ(plan_of(spec, options).sm100->trims, !plan.sm100->mapped && one.code[0] != 's');
  }
}

// Depths that are no multiple of 128 have the reference's swizzle, which pads them less.
// The tables of docs/sm100.md. Who widens takes registers, and where K and V are wide, keys.
TEST(Sm100Plan, KAndVOfE4m3AreWidenedByAWarpgroup) {
  struct Row {
    int qk_depth, ov_depth, keys, stages, threads;
  };
  for (const auto& [qk_depth, ov_depth, keys, stages, threads] :
       {Row{64, 64, 96, 13, 640}, Row{128, 128, 96, 3, 640}, Row{192, 128, 64, 3, 640},
        Row{192, 192, 64, 5, 640}, Row{224, 64, 64, 4, 512}, Row{256, 256, 64, 5, 512}}) {
    AttentionSpec spec = dense(qk_depth);
    spec.ov_depth = ov_depth;
    spec.kv_dtype = Dtype::kE4m3;
    const KernelPlan plan = plan_of(spec);
    SCOPED_TRACE(spec_to_json(spec));
    ASSERT_TRUE(plan.supported) << plan.reason;
    check_plan(plan, "kv_dtype");
    EXPECT_EQ(plan.sm100->variants.front().BN, keys);
    EXPECT_EQ(plan.sm100->variants.front().num_kv_stages, stages);
    EXPECT_EQ(plan.main().threads, threads);
    EXPECT_EQ(plan.sm100->p_bias, 7);
    EXPECT_EQ(plan.main().roles.back().name, "widen");
    EXPECT_EQ(plan.main().roles.back().num_warps, kSm100WideningWarps);
    for (const Sm100TensorMap& map : plan.sm100->tensor_maps) {
      EXPECT_TRUE(map.id == TensorMapId::kQ || map.id == TensorMapId::kO)
          << to_string(map.axes.back());
    }
    const LaunchRecipe recipe = launch_of(plan, 2, 300, 300);
    EXPECT_FALSE(recipe.args.empty());
  }
  AttentionSpec two = dense(224);
  two.ov_depth = 64;
  two.kv_dtype = Dtype::kE4m3;
  PlanOptions options;
  options.num_qo = 2;
  EXPECT_NE(plan_of(two, options).reason.find("num_qo is 2"), std::string::npos);
}

TEST(Sm100Plan, E4m3TakesTheSwizzleThatPadsLess) {
  for (const auto& [depth, swizzle, padded] : {std::tuple{16, 64, 64},
                                               {64, 64, 64},
                                               {96, 64, 128},
                                               {128, 128, 128},
                                               {192, 64, 192},
                                               {208, 64, 256},
                                               {256, 128, 256}}) {
    const KernelPlan plan = plan_of(dense(depth, Dtype::kE4m3));
    SCOPED_TRACE(depth);
    EXPECT_TRUE(plan.supported) << plan.reason;
    check_plan(plan, "e4m3");
    EXPECT_EQ(plan.sm100->swizzle_bytes, swizzle);
    EXPECT_EQ(plan.sm100->variants.front().padded_ov_depth, padded);
    EXPECT_EQ(plan.sm100->tensor_maps.front().swizzle, swizzle);
    EXPECT_EQ(plan.sm100->tensor_maps.front().box[0], swizzle);
    EXPECT_EQ(plan.sm100->tensor_maps.back().box[0], 64);  // bf16 columns of O
    EXPECT_EQ(plan.sm100->tensor_maps.back().swizzle, 128);
  }
  PlanOptions options;
  options.swizzle_bytes = 128;
  const KernelPlan asked = plan_of(dense(64, Dtype::kE4m3), options);
  EXPECT_TRUE(asked.supported) << asked.reason;
  EXPECT_EQ(asked.sm100->swizzle_bytes, 128);
  EXPECT_EQ(asked.sm100->variants.front().padded_ov_depth, 128);
  options.swizzle_bytes = 64;
  EXPECT_TRUE(plan_of(dense(128, Dtype::kE4m3), options).supported);
  const KernelPlan bf16 = plan_of(dense(128), options);
  EXPECT_FALSE(bf16.supported);
  EXPECT_NE(bf16.reason.find("swizzle of 64 bytes"), std::string::npos) << bf16.reason;
  options.swizzle_bytes = 32;
  EXPECT_NE(plan_of(dense(128, Dtype::kE4m3), options).reason.find("swizzle of 32 bytes"),
            std::string::npos);
}

TEST(Sm100Plan, ScalesAreParametersOfTheKernel) {
  AttentionSpec spec = dense(128, Dtype::kE4m3);
  const auto parameters = [&](Scales scales) {
    spec.scales = scales;
    const KernelPlan plan = plan_of(spec);
    std::vector<std::string> names;
    for (const KernelParameter& parameter : plan.main().parameters) {
      if (parameter.name.ends_with("_scale")) names.push_back(parameter.name);
    }
    return names;
  };
  EXPECT_TRUE(parameters(Scales::kNone).empty());
  const std::vector<std::string> all{"q_scale", "k_scale", "v_scale"};
  EXPECT_EQ(parameters(Scales::kTensor), all);
  EXPECT_EQ(parameters(Scales::kHead), all);
  EXPECT_EQ(parameters(Scales::kToken), all);
  spec.scale_dtype = Dtype::kBf16;
  EXPECT_NE(plan_of(spec).reason.find("per-token scales of bf16"), std::string::npos);
  spec.scale_dtype = Dtype::kF32;
  EXPECT_TRUE(plan_of(spec).supported);
  spec.scales = Scales::kHead;
  EXPECT_NE(plan_of(spec).reason.find("it goes with `scales` token"), std::string::npos);
  spec.scale_dtype.reset();
  spec.v_layout = VLayout::kTransposed;
  EXPECT_NE(plan_of(spec).reason.find("V lies in rows (v_layout row)"), std::string::npos);
  spec.v_layout = VLayout::kRow;
  const std::vector<std::string> one{"output_scale"};
  spec.output_dtype = Dtype::kE4m3;
  EXPECT_EQ(parameters(Scales::kNone), one);
  spec.output_dtype = Dtype::kFp16;
  spec.scales = Scales::kHead;
  EXPECT_TRUE(plan_of(spec).supported);
  spec.arch = Arch::kSm90a;
  EXPECT_TRUE(plan_of(spec).supported);
  spec.scales = Scales::kToken;
  EXPECT_EQ(plan_of(spec).reason, "");
}

TEST(Sm100Plan, ScalesOfKeysHaveBuffersOfTheSoftmax) {
  for (const int depth : {64, 80, 128, 192, 256}) {
    AttentionSpec spec = dense(depth, Dtype::kE4m3);
    spec.scales = Scales::kToken;
    const KernelPlan plan = plan_of(spec);
    EXPECT_TRUE(plan.supported) << plan.reason;
    check_plan(plan, spec_to_json(spec));
    for (const Sm100Variant& variant : plan.sm100->variants) {
      const auto region =
          std::find_if(variant.smem.begin(), variant.smem.end(),
                       [](const auto& one) { return one.region == Sm100Region::kKeyScales; });
      ASSERT_NE(region, variant.smem.end());
      EXPECT_EQ(region->begin % 16, 0);
      EXPECT_EQ(variant.num_k_scale_bufs, depth == 256 ? 2 : 4);
      EXPECT_EQ(region->size, variant.num_k_scale_bufs * variant.BN * 12);
    }
  }
}

TEST(Sm100Plan, OutputsOfOtherSizesThanTheInputs) {
  for (const Dtype output : {Dtype::kE4m3, Dtype::kF32}) {
    for (const int depth : {64, 80, 128, 192, 256}) {
      AttentionSpec spec = dense(depth);
      spec.output_dtype = output;
      const KernelPlan plan = plan_of(spec);
      EXPECT_TRUE(plan.supported) << plan.reason;
      check_plan(plan, spec_to_json(spec));
      const bool large = output == Dtype::kF32 && depth == 192;  // two of them are 192 KiB
      EXPECT_EQ(plan.sm100->variants.front().num_qo, large || depth == 256 ? 1 : 2);
    }
    AttentionSpec spec = dense(128);
    spec.output_dtype = output;
    spec.num_partitions = 0;  // the merge writes O, and divides it
    const KernelPlan plan = plan_of(spec);
    const auto& parameters = plan.kernels.at(1).parameters;
    EXPECT_EQ(std::any_of(parameters.begin(), parameters.end(),
                          [](const auto& one) { return one.name == "output_scale"; }),
              output == Dtype::kE4m3);
    spec.num_partitions = 1;
    spec.return_lse = spec.accumulate = true;
    EXPECT_NE(plan_of(spec).reason.find("accumulates takes o of bf16 or fp16, not"),
              std::string::npos);
    spec = dense(128);
    spec.output_dtype = output;
    spec.arch = Arch::kSm90a;
    EXPECT_EQ(plan_of(spec).reason, "");
  }
  AttentionSpec spec = dense(72);
  spec.output_dtype = Dtype::kE4m3;
  EXPECT_NE(plan_of(spec).reason.find("depth 72 of e4m3 is no multiple of 16"), std::string::npos)
      << plan_of(spec).reason;
}

TEST(Sm100Plan, PairDoublesTheSoftmaxArrivals) {
  PlanOptions options;
  options.pair_cta = true;
  const KernelPlan result = plan_of(dense(128), options);
  EXPECT_EQ(result.main().cluster, 2);
  EXPECT_EQ(result.main().barriers[0].arrivals, 16);
  EXPECT_EQ(result.main().barriers[1].arrivals, 8);
  EXPECT_FALSE(result.sm100->can_switch_to_1q);
}

TEST(Sm100Plan, OneBudgetAWarpgroup) {
  const KernelPlan result = plan_of(dense(128));
  const Deviation* spare = deviation(result, "registers of the spare warps");
  ASSERT_NE(spare, nullptr);
  EXPECT_EQ(spare->reference, "24");
  EXPECT_EQ(spare->actual, "48");
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
    EXPECT_EQ(result.sm100->row_copies, box == 0) << page;
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

TEST(Sm100Plan, PagesThatTheReferenceSplitsGetWholeTiles) {
  AttentionSpec spec = dense(128);
  spec.page_size = 48;  // the reference takes 128 keys: two pages and two thirds
  const KernelPlan result = plan_of(spec);
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->actual, "96");
  EXPECT_EQ(bn->reason, "96 keys fit pages of 48, 128 do not");
}

AttentionSpec own_rope(Dtype rope = Dtype::kBf16) {
  AttentionSpec spec = dense(192, Dtype::kE4m3);
  spec.ov_depth = 128;
  spec.mla = Mla::kPrefill;
  spec.rope_dtype = rope;
  return spec;
}

// The rope part follows the rest of each query tile, and of each tile of K, or has buffers beside a
// ring that K shares with V.
TEST(Sm100Plan, ARopePartOfItsOwnTypeHasTensorsOfItsOwn) {
  for (const Dtype rope : {Dtype::kBf16, Dtype::kFp16}) {
    const KernelPlan result = plan_of(own_rope(rope));
    ASSERT_TRUE(result.supported) << result.reason;
    check_plan(result, "rope part");
    const Sm100Variant& body = result.sm100->variants.front();
    EXPECT_EQ(body.smem.front().size, 2 * 128 * (128 + 2 * 64));
    EXPECT_FALSE(body.use_fused_kv);
    EXPECT_EQ(body.num_kv_stages, 3);
    EXPECT_EQ(body.k_stage_bytes, 128 * (128 + 2 * 64));
    EXPECT_EQ(body.v_stage_bytes, 128 * 128);
    EXPECT_EQ(constants_of(result).at("kOwnRope"), "true");
    EXPECT_EQ(constants_of(result).at("kRopeBf16"), rope == Dtype::kBf16 ? "true" : "false");
    std::map<std::string, Sm100TensorMap> maps;
    for (const Sm100TensorMap& map : result.sm100->tensor_maps) {
      maps[std::string(name_of(map.id))] = map;
    }
    EXPECT_EQ(maps.at("q_map").swizzle, 64);
    EXPECT_EQ(maps.at("k_map").copies, 2);
    for (const char* name : {"q_rope_map", "k_rope_map"}) {
      EXPECT_EQ(maps.at(name).dtype, rope);
      EXPECT_EQ(maps.at(name).swizzle, 128);
      EXPECT_EQ(maps.at(name).copies, 1);
      EXPECT_EQ(maps.at(name).box.front(), 64);
    }
    EXPECT_EQ(result.main().parameters.at(4).name, "q_rope_map");
    EXPECT_EQ(result.main().parameters.at(5).name, "k_rope_map");
  }
  AttentionSpec wide = own_rope();
  wide.qk_depth = 160;
  wide.ov_depth = 96;
  wide.output_dtype = Dtype::kF32;
  const KernelPlan fused = plan_of(wide);
  check_plan(fused, "buffers of rope parts");
  const Sm100Variant& body = fused.sm100->variants.front();
  EXPECT_TRUE(body.use_fused_kv);
  EXPECT_EQ(body.num_kv_stages, 5);
  EXPECT_EQ(body.num_rope_buffers, 3);
  EXPECT_EQ(body.k_stage_bytes, 128 * 128);
  // Of one type it is a part of Q and K.
  EXPECT_EQ(constants_of(plan_of(own_rope(Dtype::kE4m3))).at("kOwnRope"), "false");
}

TEST(Sm100Plan, SaysWhichRopePartsItServesNot) {
  const auto refused = [](const AttentionSpec& spec, const char* part,
                          const PlanOptions& options = {}) {
    const KernelPlan result = plan_of(spec, options);
    EXPECT_FALSE(result.supported) << part;
    EXPECT_NE(result.reason.find(part), std::string::npos) << result.reason;
  };
  PlanOptions options;
  options.num_qo = 2;
  ASSERT_TRUE(plan_of(own_rope(), options).supported);
  options.pair_cta = true;
  refused(own_rope(), "pair_cta is to be false", options);
  options = {};
  options.num_qo = 2;
  options.swizzle_bytes = 128;
  refused(own_rope(), "(swizzle_bytes)", options);
  AttentionSpec spec = own_rope();
  spec.mla = Mla::kNone;
  refused(spec, "rope part of bf16 beside e4m3 (rope_dtype)");
  spec = own_rope(Dtype::kE4m3);
  spec.qkv_dtype = Dtype::kBf16;
  refused(spec, "rope part of e4m3 beside bf16 (rope_dtype)");
  spec.rope_dtype = Dtype::kFp16;
  refused(spec, "rope part of fp16 beside bf16 (rope_dtype)");
  spec = own_rope();
  spec.rope_gmem_dtype = Dtype::kE4m3;
  refused(spec, "(rope_gmem_dtype)");
  spec = own_rope();
  spec.page_size = 4;
  refused(spec, "in pages of 4 rows");
  spec = own_rope();
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = 16;
  spec.page_size = 16;
  refused(spec, "(rope_dtype)");
  // A deep head, which another kernel serves.
  spec = dense(512);
  spec.rope_dtype = Dtype::kFp16;
  refused(spec, "rope part of fp16 beside bf16 (rope_dtype)");
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
    EXPECT_EQ(body.smem_bytes, usual.smem_bytes);
    EXPECT_EQ(body.qk_mma_depth, (depth + 15) / 16 * 16);
    check_plan(result, "below 64");
  }
}

// Two CTAs compute the prompts of one O: tiles of 128 keys, whose two S leave Q no tensor memory.
TEST(Sm100Plan, PairsOfCtasWhereOneOIs) {
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
  alone("widened", spec);
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
  refused(spec, "widened");
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
TEST(Sm100Plan, OneO) {
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
    EXPECT_EQ(body.tmem[2].region, Sm100TmemRegion::kO);
    EXPECT_EQ(body.tmem[2].size, body.padded_ov_depth);
    EXPECT_EQ(body.tmem[3].region, Sm100TmemRegion::kQ);
    EXPECT_EQ(body.tmem[3].size, body.qk_mma_depth / 2);
    check_plan(result, "one O");
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

// SPDX-License-Identifier: Apache-2.0
// Sm100Plan where a type is e4m3: inputs, K and V that are upcast, rope parts, scales, O.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/kernel/signature.h"
#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

using I = std::int64_t;

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
  PlanOptions block_mask;
  block_mask.mask_map = true;
  EXPECT_EQ(plan_of(dense(128, Dtype::kE4m3), block_mask).sm100->exp2_fma_pairs, 16);
  EXPECT_EQ(plan_of(parts, block_mask).sm100->exp2_fma_pairs, 12);
  PlanOptions alone;
  alone.num_qo = 1;
  EXPECT_EQ(plan_of(dense(128, Dtype::kE4m3), alone).sm100->exp2_fma_pairs, 8);
  EXPECT_EQ(plan_of(dense(128)).sm100->p_bias, 0);
  EXPECT_EQ(plan_of(dense(128)).sm100->rescale_threshold, 8);
}

// Depths that are no multiple of 128 have the reference's swizzle, which pads them less.
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
  EXPECT_EQ(bf16.reason,
            "the sm_100a template has no swizzle of 64 bytes for bf16: swizzle_bytes is to be 128");
  options.swizzle_bytes = 32;
  EXPECT_EQ(
      plan_of(dense(128, Dtype::kE4m3), options).reason,
      "the sm_100a template has no swizzle of 32 bytes for e4m3: swizzle_bytes is to be 64 or "
      "128");
}

// The tables of docs/sm100.md. Who upcasts takes registers, and where K and V are wide, keys.
TEST(Sm100Plan, KAndVOfE4m3AreUpcastByAWarpgroup) {
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
    EXPECT_EQ(plan.main().roles.back().name, "upcast");
    EXPECT_EQ(plan.main().roles.back().num_warps, kSm100UpcastWarps);
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

// Who upcasts K and V takes registers, and a caller's code for each score takes more.
TEST(Sm100Plan, FewPolynomialsBesideUpcastingAndACallersCode) {
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
  EXPECT_EQ(plan_of(spec).reason, "per-token scales are f32; scale_dtype is bf16");
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
                       [](const auto& one) { return one.region == Region::kKeyScales; });
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

AttentionSpec separate_rope(Dtype rope = Dtype::kBf16) {
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
    const KernelPlan result = plan_of(separate_rope(rope));
    ASSERT_TRUE(result.supported) << result.reason;
    check_plan(result, "rope part");
    const Sm100Variant& body = result.sm100->variants.front();
    EXPECT_EQ(body.smem.front().size, 2 * 128 * (128 + 2 * 64));
    EXPECT_FALSE(body.use_fused_kv);
    EXPECT_EQ(body.num_kv_stages, 3);
    EXPECT_EQ(body.k_stage_bytes, 128 * (128 + 2 * 64));
    EXPECT_EQ(body.v_stage_bytes, 128 * 128);
    EXPECT_EQ(constants_of(result).at("kSeparateRope"), "true");
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
  AttentionSpec wide = separate_rope();
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
  EXPECT_EQ(constants_of(plan_of(separate_rope(Dtype::kE4m3))).at("kSeparateRope"), "false");
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
  ASSERT_TRUE(plan_of(separate_rope(), options).supported);
  options.pair_cta = true;
  refused(separate_rope(), "pair_cta is to be false", options);
  options = {};
  options.num_qo = 2;
  options.swizzle_bytes = 128;
  refused(separate_rope(), "(swizzle_bytes)", options);
  AttentionSpec spec = separate_rope();
  spec.mla = Mla::kNone;
  refused(spec, "rope part of bf16 beside e4m3 (rope_dtype)");
  spec = separate_rope(Dtype::kE4m3);
  spec.qkv_dtype = Dtype::kBf16;
  refused(spec, "rope part of e4m3 beside bf16 (rope_dtype)");
  spec.rope_dtype = Dtype::kFp16;
  refused(spec, "rope part of fp16 beside bf16 (rope_dtype)");
  spec = separate_rope();
  spec.rope_gmem_dtype = Dtype::kE4m3;
  refused(spec,
          "the rope part has one type in memory and in products: rope_gmem_dtype is to be bf16");
  spec = separate_rope();
  spec.page_size = 4;
  refused(spec, "in pages of 4 rows");
  spec = separate_rope();
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = 16;
  spec.page_size = 16;
  refused(spec, "(rope_dtype)");
  // head_dim above 256, which another kernel serves.
  spec = dense(512);
  spec.rope_dtype = Dtype::kFp16;
  refused(spec, "rope part of fp16 beside bf16 (rope_dtype)");
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// e4m3 Q, K and V on sm_100a and sm_103a: both swizzles, every kind of scales, every way in which
// keys come, and what P's bias and its saturation keep. Skipped without NVRTC.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../eight_bit_fixture.h"
#include "run_case.h"
#include "verify/numeric.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100EightBit : public EightBitTest<Arch::kSm100a, Dtype::kE4m3> {
 protected:
  static std::unique_ptr<ProofKernel> made(const ProofCase& one,
                                           const TemplateSet& templates = TemplateSet::embedded()) {
    Result<ProofKernel> kernel = make_kernel(one, templates);
    if (kernel) return std::make_unique<ProofKernel>(std::move(*kernel));
    ADD_FAILURE() << kernel.error().to_string();
    return nullptr;
  }

  static ProofCase dense(int depth, Scales scales = Scales::kNone) {
    ProofCase one;
    one.spec = spec_of(depth, scales, mask_of(Kind::kNull));
    one.spec.num_q_heads = 4;
    one.spec.group = 2;
    one.shape = {2, 20, 300, 1};
    return one;
  }

  // Why a kernel fails with an input; empty: it passes.
  static std::string failure(const ProofCase& one, const TemplateSet& templates,
                             InputKind input = InputKind::kNormal) {
    const auto kernel = made(one, templates);
    const Result<Problem> problem = sm100::problem_of(one, input, 5);
    EXPECT_TRUE(problem) << problem.error().to_string();
    if (!kernel || !problem) return {};
    return judge(one.shape, *kernel, *problem, 1).reason;
  }
};

TEST_F(Sm100EightBit, AScaleOfZero) {
  expect_a_scale_of_zero();
  ProofCase one = dense(64, Scales::kToken);
  one.spec.mask = mask_of(Kind::kCausal);
  const auto kernel = made(one);
  ASSERT_TRUE(kernel);
  for (const char* scale : {"q_scale", "k_scale"}) {  // v_scale is positive
    Result<Problem> problem = sm100::problem_of(one, InputKind::kNormal, 5);
    ASSERT_TRUE(problem) << problem.error().to_string();
    problem->tensors.at(scale).as<float>()[1] = 0;
    EXPECT_EQ(judge(one.shape, *kernel, *problem, 1).reason, "") << scale;
  }
}

TEST_F(Sm100EightBit, EveryDepthAndInput) {
  for (const int depth : some_of<int>({64, 256, 16, 80, 128, 192}, 2)) {
    ProofCase one;
    one.spec = spec_of(depth);
    one.spec.num_q_heads = 1;
    one.shape = {1, depth > 192 ? 70 : 141, 300, 1};
    const auto kernel = made(one);
    ASSERT_TRUE(kernel);
    for (const InputKind input : verify::kInputKinds) {
      if (depth != 64 && depth != 128 && input != InputKind::kRaised) continue;
      const Result<Problem> problem = sm100::problem_of(one, input, 3);
      ASSERT_TRUE(problem) << problem.error().to_string();
      const Judged judged = judge(one.shape, *kernel, *problem, 1);
      EXPECT_TRUE(judged.passed) << depth << ", " << verify::to_string(input) << ": "
                                 << judged.reason;
    }
  }
}

// The swizzle that is not the depth's own.
TEST_F(Sm100EightBit, TheOtherSwizzle) {
  for (const int depth : some_of<int>({128, 64})) {
    ProofCase one = dense(depth, Scales::kHead);
    one.options.swizzle_bytes = depth == 64 ? 128 : 64;
    EXPECT_EQ(failure(one, TemplateSet::embedded()), "");
  }
}

TEST_F(Sm100EightBit, ScalesOfTensorsAndHeads) {
  for (const Scales scales : {Scales::kNone, Scales::kTensor, Scales::kHead}) {
    AttentionSpec spec = with_group(spec_of(64, scales), 4, 2);
    if (in_proof() || scales == Scales::kHead) expect_passes(spec, {{{70, 70}, {300, 300}}});
    if (!in_proof() && scales != Scales::kTensor) continue;
    spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    spec.score_mod.cap = 30;
    spec.sink = true;
    expect_passes(spec, {{{20, 20}, {200, 200}}});
  }
}

TEST_F(Sm100EightBit, DamagesOfTheScalesAreSeen) {
  const ProofCase one = dense(64, Scales::kHead);
  ASSERT_EQ(failure(one, TemplateSet::embedded()), "");
  const std::vector<std::pair<const char*, const char*>> damages = {
      {"arguments.q_scale, work.batch, heads, head)", "arguments.q_scale, work.batch, heads, 0)"},
      {"arguments.q_scale, work.batch, heads, head)", "arguments.q_scale, 0, heads, head)"},
      {"work.batch, heads / Config::kGroup,", "work.batch, heads,"},
      {"return work.kv_head;", "return 0;"},
      {"arguments.v_scale, work.batch,", "arguments.v_scale, 0,"},
      {"float scale = arguments.scale", "float scale = 1.0f"},
  };
  for (const auto& [from, to] : some_of(damages)) {
    EXPECT_NE(failure(one, damaged("common/scales.cuh", from, to)), "") << "passes: " << to;
  }
  EXPECT_NE(failure(one, damaged("sm100/correction.cuh",
                                 "scale *= value_scale<Config>(work, arguments);", "")),
            "");
}

TEST_F(Sm100EightBit, PagesRaggedBatchesAndPartitions) {
  expect_sequences();
  // Pages of three rows, which threads copy.
  for (const int depth : some_of<int>({64, 128})) {
    expect_passes(of_sequences(with_group(spec_of(depth, Scales::kHead), 4, 2), 3, true),
                  {{{20, 0, 141}, {300, 40, 200}}});
  }
  if (!in_proof()) return;
  expect_passes(of_sequences(spec_of(256, Scales::kHead), 3, false), {{{20, 20}, {200, 70}}});
}

// Several heads in a tile whose rows they do not fill, and several tiles per CTA.
TEST_F(Sm100EightBit, DecodesOfGroupsThatDoNotDivideATile) {
  AttentionSpec spec = with_group(spec_of(64, Scales::kHead), 12, 6);
  spec.max_q_len = 4;
  expect_passes(spec, {{{3, 3, 3, 3}, {200, 200, 200, 200}}});
  spec.qk_depth = 128;
  expect_passes(spec, {{{4}, {500}}});
}

// Heads that do not divide a tile, of which each row finds its own scale, and partitions of fixed
// keys, whose warpgroups have a query tile each.
TEST_F(Sm100EightBit, ScalesOfFusedHeadsSpillNothing) {
  AttentionSpec spec = with_group(spec_of(128, Scales::kHead), 12, 6);
  spec.max_q_len = 4;
  spec.page_size = 16;
  spec.partition_keys = 256;
  spec.sink = true;
  expect_no_spills({spec});
}

TEST_F(Sm100EightBit, TheBiasKeepsWeightsOf2ToTheMinus17) {
  expect_bias_keeps_weights_of_2_to_the_minus_17({"sm100/softmax.cuh",
                                                  "fmaf(maximum, log2_scale, -Config::kPBias)",
                                                  "fmaf(maximum, log2_scale, -6.0f)"});
}

TEST_F(Sm100EightBit, AMaximumIsRenewedBeforePSaturates) {
  expect_maximum_renewed_before_p_saturates(
      {"sm100/online_row.cuh", "grown > Config::kRescaleThreshold", "grown > 2.0f"});
}

TEST_F(Sm100EightBit, OnSm103a) {
  AttentionSpec spec = spec_of(128, Scales::kTensor);
  spec.arch = Arch::kSm103a;
  spec.output_dtype = Dtype::kFp16;
  expect_passes(spec, {{{141}, {300}}});
}

}  // namespace
}  // namespace attnjit::sm100

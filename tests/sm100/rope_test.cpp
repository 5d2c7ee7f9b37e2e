// SPDX-License-Identifier: Apache-2.0
// MLA's prefill of e4m3 with a rope part of 16 bits (rope_dtype) on sm_100a and sm_103a: every way
// in which keys come, every kind of scales, and what is damaged of the rope part. Skipped without
// NVRTC.
#include <memory>
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "plan/sm100/sm100_plan.h"
#include "run_case.h"
#include "seen_damages.h"
#include "verify/numeric.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;
using verify::Tensor;

AttentionSpec rope_spec(const MaskSpec& mask = mask_of(Kind::kCausal), Dtype rope = Dtype::kBf16) {
  AttentionSpec spec = base_spec(Arch::kSm100a, 2, 1, 192, mask);
  spec.ov_depth = 128;
  spec.qkv_dtype = Dtype::kE4m3;
  spec.rope_dtype = rope;
  spec.mla = Mla::kPrefill;
  return spec;
}

class Sm100Rope : public KernelTest {
 protected:
  // Why a kernel fails with a problem that is made of its case; empty: it passes.
  static std::string failure(const ProofCase& one, InputKind input = InputKind::kNormal) {
    const Result<Problem> problem = sm100::problem_of(one, input, 5);
    EXPECT_TRUE(problem.ok()) << (problem.ok() ? "" : problem.error().to_string());
    return problem ? sm100::failure(one, *problem, seeds()) : "";
  }
};

TEST_F(Sm100Rope, EveryInput) {
  for (const Dtype rope : some_of<Dtype>({Dtype::kBf16, Dtype::kFp16})) {
    ProofCase one;
    one.spec = rope_spec(mask_of(Kind::kCausal), rope);
    one.shape = {1, 141, 300, 1};
    const Result<ProofKernel> kernel = make_kernel(one);
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    for (const InputKind input : verify::kInputKinds) {
      const Result<Problem> problem = sm100::problem_of(one, input, 3);
      ASSERT_TRUE(problem) << problem.error().to_string();
      EXPECT_EQ(judge(one.shape, *kernel, *problem, seeds()).reason, "")
          << to_string(rope) << ", " << verify::to_string(input);
    }
  }
}

// K has a ring of its own, with its rope part in each stage, or shares slots with V, beside buffers
// of rope parts.
TEST_F(Sm100Rope, EveryDepth) {
  bool fused = false, apart = false;
  for (const int depth : {192, 160, 80, 96, 128, 208, 224, 256}) {
    for (const Dtype output : {Dtype::kBf16, Dtype::kF32}) {
      ProofCase one;
      one.spec = rope_spec();
      one.spec.qk_depth = depth;
      one.spec.ov_depth = depth - 64;
      one.spec.output_dtype = output;
      one.shape = {1, depth % 3 == 0 ? 60 : 141, 430, 1};
      const Result<KernelPlan> planned = plan(one.spec);
      ASSERT_TRUE(planned && planned->supported) << depth;
      bool& seen = planned->sm100->variants.front().use_fused_kv ? fused : apart;
      if (seen && !in_proof()) continue;
      seen = true;
      EXPECT_EQ(failure(one), "") << depth << ", " << to_string(output);
    }
  }
  EXPECT_TRUE(fused);
  EXPECT_TRUE(apart);
}

// What is multiplied by scales is the whole product: a caller has divided the rope part by them.
TEST_F(Sm100Rope, ScalesAreOfTheWholeProduct) {
  for (const Scales scales : some_of<Scales>({Scales::kToken, Scales::kTensor, Scales::kHead})) {
    AttentionSpec spec = with_group(rope_spec(), 4, 2);
    spec.scales = scales;
    spec.sink = true;
    expect_passes(spec, {{{70, 70}, {300, 300}}});
  }
}

TEST_F(Sm100Rope, MasksAndModifications) {
  AttentionSpec spec = rope_spec(verify::custom_mask());
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = 30;
  expect_passes(spec, {{{141}, {300}}});
  if (!in_proof()) return;
  expect_passes(rope_spec(window_of(50)), {{{141}, {300}}, {{3}, {700}}});
  spec = rope_spec(mask_of(Kind::kNull));
  spec.output_dtype = Dtype::kE4m3;
  expect_passes(spec, {{{300, 300, 300}, {300, 300, 300}}, {{4}, {0}}});
}

TEST_F(Sm100Rope, PagesRaggedBatchesAndPartitions) {
  expect_passes(of_sequences(rope_spec(), 64, true), {{{20, 0, 141}, {300, 40, 200}}});
  AttentionSpec ragged = of_sequences(rope_spec(), 0, true);
  ragged.ragged_kv = true;
  expect_passes(ragged, {{{20, 0, 141}, {300, 40, 200}}});
  AttentionSpec parts = of_sequences(rope_spec(), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_passes(parts, {{{20, 0, 3}, {500, 40, 20}}});
  if (!in_proof()) return;
  for (const int page_size : {24, 48, 128, 1000}) {
    expect_passes(of_sequences(rope_spec(), page_size, false), {{{20, 20}, {200, 70}}});
  }
  parts = of_sequences(rope_spec(), 64, true);
  parts.partition_keys = 192;
  expect_passes(parts, {{{20, 141}, {400, 400}}});
}

TEST_F(Sm100Rope, WrongTablesDoNoHarm) {
  expect_no_harm(of_sequences(rope_spec(), 16, true), {{"page_table", {-1, 1 << 30, 7, -5}},
                                                       {"kv_lens", {1 << 30, -1, 64}},
                                                       {"q_offsets", {5, 1 << 30, -3, 194}}});
}

TEST_F(Sm100Rope, NothingSpills) {
  std::vector<AttentionSpec> specs;
  AttentionSpec spec = of_sequences(rope_spec(verify::custom_mask()), 48, true);
  spec.num_partitions = 0;
  spec.scales = Scales::kHead;
  spec.sink = true;
  specs.push_back(spec);
  if (in_proof()) {
    spec.scales = Scales::kToken;
    spec.page_size = 16;
    specs.push_back(spec);
    spec.arch = Arch::kSm103a;
    specs.push_back(spec);
    specs.push_back(rope_spec(mask_of(Kind::kNull)));
  }
  expect_no_spills(specs);
}

TEST_F(Sm100Rope, DamagesAreSeen) {
  ProofCase one;
  one.spec = of_sequences(rope_spec(mask_of(Kind::kNull)), 64, true);
  one.shape = {3, 150, 400, 1};
  const std::vector<Damage> damages = {
      {"sm100/layout.cuh", "Config::kRopeBf16 ? MmaOperand::kBf16",
       "!Config::kRopeBf16 ? MmaOperand::kBf16"},
      {"sm100/mma.cuh", "if (product) add_rope(s, k, tile);", ""},
      {"sm100/mma.cuh", "b.at(step * 32), kInstruction, 1)",
       "b.at(step * 32), kInstruction, step > 0)"},
      {"sm100/mma.cuh", "a.at(step * 32), b.at(step * 32)", "a.at(0), b.at(step * 32)"},
      {"sm100/mma.cuh", "opaque(smem.q_rope(tile))", "opaque(smem.q_rope(0))"},
      {"sm100/load.cuh", "0, smem.q_rope(tile), full)", "0, smem.q_rope(0), full)"},
      {"sm100/load.cuh",
       "i * Layout::kBoxRows * kBlockRowBytes),\n                      arguments.k_rope_map",
       "0 * Layout::kBoxRows * kBlockRowBytes),\n                      arguments.k_rope_map"},
      {"sm100/load.cuh", "Layout::kSeparateRope ? Layout::kBoxQRows * kBlockRowBytes : 0", "0"},
      {"sm100/pipeline.cuh", "kIsK && Layout::kSeparateRope ? Layout::kKTileBytes : ", ""},
  };
  expect_seen(one, damages, seeds());
}

TEST_F(Sm100Rope, OnSm103a) {
  AttentionSpec spec = rope_spec();
  spec.arch = Arch::kSm103a;
  spec.output_dtype = Dtype::kFp16;
  expect_passes(spec, {{{141}, {300}}});
}

}  // namespace
}  // namespace attnjit::sm100

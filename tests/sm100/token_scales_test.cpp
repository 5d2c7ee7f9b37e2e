// SPDX-License-Identifier: Apache-2.0
// e4m3 rows with scales of their own (scales: token) on sm_100a and sm_103a: every way in which
// keys come, what is told of keys that have no scale, and what the weights of V keep. Skipped
// without NVRTC.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "run_case.h"
#include "seen_damages.h"
#include "verify/numeric.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;
using verify::Tensor;

AttentionSpec token_scales_spec(int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm100a, 4, 2, depth, mask);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.scales = Scales::kToken;
  return spec;
}

class Sm100TokenScales : public KernelTest {};

TEST_F(Sm100TokenScales, EveryDepthAndInput) {
  for (const int depth : some_of<int>({64, 16, 256, 128, 80, 192}, 2)) {
    ProofCase one;
    one.spec = token_scales_spec(depth);
    one.shape = {1, depth > 192 ? 70 : 141, 300, 1};
    const Result<ProofKernel> kernel = make_kernel(one);
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    for (const InputKind input : verify::kInputKinds) {
      if (depth != 64 && depth != 128 && input != InputKind::kRaised) continue;
      const Result<Problem> problem = sm100::problem_of(one, input, 3);
      ASSERT_TRUE(problem) << problem.error().to_string();
      EXPECT_EQ(judge(one.shape, *kernel, *problem, 1).reason, "")
          << depth << ", " << verify::to_string(input);
    }
  }
}

TEST_F(Sm100TokenScales, MasksScoreModificationsAndSinks) {
  for (const auto& [name, mod] : some_of(verify::score_mods())) {
    AttentionSpec spec = token_scales_spec(64);
    spec.score_mod = mod;
    spec.sink = true;
    expect_passes(spec, {{{70, 70}, {300, 300}}});
  }
  for (const MaskSpec& mask :
       some_of<MaskSpec>({verify::custom_mask(), mask_of(Kind::kNull), window_of(50)})) {
    expect_passes(token_scales_spec(128, mask), {{{141}, {300}}, {{3}, {700}}});
  }
}

TEST_F(Sm100TokenScales, PagesRaggedBatchesAndPartitions) {
  // Pages of whole boxes, and of three rows, which threads copy.
  expect_passes(of_sequences(token_scales_spec(256), 3, false), {{{20, 20}, {200, 70}}});
  if (in_proof()) {
    expect_passes(of_sequences(token_scales_spec(256), 16, false), {{{20, 20}, {200, 70}}});
    for (const int page_size : {16, 3}) {
      expect_passes(of_sequences(token_scales_spec(128), page_size, true),
                    {{{20, 0, 141}, {300, 40, 200}}});
    }
  }
  AttentionSpec ragged = of_sequences(token_scales_spec(64), 0, true);
  if (in_proof()) expect_passes(ragged, {{{20, 0, 141}, {300, 40, 200}}});
  ragged.ragged_kv = true;
  expect_passes(ragged, {{{20, 0, 141}, {300, 40, 200}}});
  AttentionSpec parts = of_sequences(token_scales_spec(128), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  parts.output_dtype = Dtype::kE4m3;
  expect_passes(parts, {{{20, 0, 3}, {500, 40, 20}}});
  if (!in_proof()) return;
  parts = token_scales_spec(64);
  parts.partition_keys = 128;
  expect_passes(parts, {{{20, 20}, {400, 400}}});
}

// A CTA has several work tiles, of odd and of even numbers of KV tiles: the buffers go on by turns.
TEST_F(Sm100TokenScales, SeveralWorkTilesPerCta) {
  const MaskSpec null = mask_of(Kind::kNull);
  expect_passes(token_scales_spec(64, null), {{{300, 300, 300}, {300, 300, 300}}});
  if (in_proof()) expect_passes(token_scales_spec(128, null), {{{20, 20, 20}, {500, 500, 500}}});
  AttentionSpec decode = with_group(token_scales_spec(128), 12, 6);
  decode.max_q_len = 4;
  expect_passes(decode, {{{3, 3, 3, 3}, {200, 200, 200, 200}}, {{4}, {700}}});
}

// Rows past a sequence's end have NaN scales, which nothing is made of; pages and tensors are
// whatever a launch says.
TEST_F(Sm100TokenScales, WrongTablesDoNoHarm) {
  expect_no_harm(of_sequences(token_scales_spec(64), 16, true),
                 {{"page_table", {-1, 1 << 30, 7, -5}},
                  {"kv_lens", {1 << 30, -1, 64}},
                  {"q_offsets", {5, 1 << 30, -3, 194}}});
}

// Scales of V that differ by 2^20 within a row: a key of which V is large may have a little weight,
// and one of which it is small nearly all of it.
TEST_F(Sm100TokenScales, WeightsOfTheSumAndOfTheOutput) {
  ProofCase one;
  one.spec = token_scales_spec(64, mask_of(Kind::kNull));
  one.shape = {1, 5, 300, 1};
  Problem problem = sm100::problem_of(one, InputKind::kNormal, 5).value();
  Tensor& scales = problem.tensors.at("v_scale");
  for (std::int64_t i = 0; i < scales.elements(); ++i) {
    scales.as<float>()[i] = i % 11 == 0 ? 64.0F : 0x1p-14F;
  }
  EXPECT_EQ(failure(one, problem, 1), "");
  // Of all keys the least there are; one more is a row of zeros, of scale 0, and counts in the sum.
  for (std::int64_t i = 0; i < scales.elements(); ++i) scales.as<float>()[i] = 0x1p-9F;
  Tensor& v = problem.tensors.at("v");
  for (std::int64_t i = 0; i < 2 * 64; ++i) {
    scales.as<float>()[i / 64] = 0;
    verify::store_float(v, i, 0);
  }
  EXPECT_EQ(failure(one, problem, 1), "");
}

TEST_F(Sm100TokenScales, DamagesAreSeen) {
  ProofCase one;
  one.spec = of_sequences(token_scales_spec(64, mask_of(Kind::kNull)), 0, true);
  one.shape = {3, 150, 400, 1};
  const std::vector<Damage> damages = {
      {"common/scales.cuh", "arguments.q_scale[row * arguments.num_q_heads + head]",
       "arguments.q_scale[row * arguments.num_q_heads]"},
      {"common/scales.cuh", "return arguments.scale * arguments.q_scale",
       "return arguments.q_scale"},
      {"sm100/scales.cuh", "static_cast<i64>(work.batch) * arguments.kv_len;", "0;"},
      {"common/key_scales.cuh", "i64 at = first + kv_head;", "i64 at = first;"},
      {"sm100/scales.cuh", "buffer ^= 1;", ""},
      {"sm100/scales.cuh", "named_barrier_sync(kKeyScalesBarrier + warpgroup, kRows);", ""},
      {"sm100/scales.cuh", "read(kKeyScale, i)", "read(kInverseValueScale, i)"},
      {"sm100/softmax.cuh", "online.sum += key_scales.row_sum(s);", "online.sum += row_sum(s);"},
  };
  expect_seen(one, damages, 1);
}

TEST_F(Sm100TokenScales, OnSm103a) {
  AttentionSpec spec = token_scales_spec(128);
  spec.arch = Arch::kSm103a;
  spec.output_dtype = Dtype::kFp16;
  expect_passes(spec, {{{141}, {300}}});
}

}  // namespace
}  // namespace attnjit::sm100

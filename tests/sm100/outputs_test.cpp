// SPDX-License-Identifier: Apache-2.0
// The types of O on sm_100a: e4m3 with an output_scale, bf16, fp16 and f32, of e4m3 and of 16-bit
// inputs, from every place that writes it. Skipped without NVRTC.
#include <memory>
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "damaged.h"
#include "run_case.h"
#include "verify/numeric.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec outputs_spec(Dtype dtype, Dtype output, int depth,
                           const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm100a, 2, 1, depth, mask);
  spec.qkv_dtype = dtype;
  spec.output_dtype = output;
  return spec;
}

class Sm100Outputs : public KernelTest {
 protected:
  static std::string failure(const ProofCase& one, const TemplateSet& templates,
                             InputKind input = InputKind::kNormal) {
    const Result<ProofKernel> kernel = make_kernel(one, templates);
    const Result<Problem> problem = sm100::problem_of(one, input, 5);
    EXPECT_TRUE(kernel.ok() && problem.ok());
    if (!kernel || !problem) return {};
    return judge(one.shape, *kernel, *problem, 1).reason;
  }
};

TEST_F(Sm100Outputs, OfEveryTypeOfInput) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kBf16, Dtype::kFp16}) {
    for (const Dtype output : {Dtype::kE4m3, Dtype::kBf16, Dtype::kF32, Dtype::kFp16}) {
      if (size_of(dtype) == 2 && size_of(output) == 2) continue;
      if (number++ % 2 == 1 && !in_proof()) continue;
      if (dtype == Dtype::kFp16 && !in_proof()) continue;
      for (const int depth : some_of<int>({dtype == Dtype::kE4m3 ? 64 : 128, 80, 192, 256})) {
        expect_passes(outputs_spec(dtype, output, depth), {{{141}, {300}}});
      }
    }
  }
}

// Blocks of O that the depth does not fill, and rows of a unit that it does.
TEST_F(Sm100Outputs, AtOddDepths) {
  for (const Dtype output : some_of<Dtype>({Dtype::kE4m3, Dtype::kF32})) {
    for (const int depth : some_of<int>({144, 16, 208})) {
      AttentionSpec spec = with_group(outputs_spec(Dtype::kE4m3, output, depth), 4, 2);
      spec.scales = Scales::kHead;
      expect_passes(spec, {{{70, 70}, {200, 200}}});
    }
  }
  AttentionSpec eights = outputs_spec(Dtype::kBf16, Dtype::kF32, 72);
  eights.ov_depth = 40;
  expect_passes(eights, {{{141}, {200}}});
}

// Rows of a ragged tile past its sequence are written by threads.
TEST_F(Sm100Outputs, OfRaggedBatchesAndPages) {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kBf16}) {
    for (const Dtype output : {Dtype::kE4m3, Dtype::kF32}) {
      if (!in_proof() && (dtype == Dtype::kE4m3) != (output == Dtype::kE4m3)) continue;
      AttentionSpec spec = with_group(outputs_spec(dtype, output, 64), 4, 2);
      spec.sink = true;
      expect_passes(of_sequences(spec, 16, true), {{{20, 0, 141}, {300, 40, 200}}});
    }
  }
}

// A partition's rows are not divided by the scale, and what is merged is, once.
TEST_F(Sm100Outputs, OfMergedPartitions) {
  for (const Dtype dtype : some_of<Dtype>({Dtype::kBf16, Dtype::kE4m3})) {
    for (const Dtype output : some_of<Dtype>({Dtype::kE4m3, Dtype::kF32})) {
      AttentionSpec parts = of_sequences(outputs_spec(dtype, output, 128), 16, true);
      parts.num_partitions = 3;
      parts.sink = true;
      expect_passes(parts, {{{20, 0, 3}, {500, 40, 20}}});
    }
  }
  // One part, which the attention kernel writes itself; and more, of a row that warps share.
  AttentionSpec keys = outputs_spec(Dtype::kE4m3, Dtype::kE4m3, 256);
  keys.partition_keys = 64;
  expect_passes(keys, {{{20, 20}, {60, 60}}, {{3, 3}, {700, 700}}});
}

TEST_F(Sm100Outputs, OfTheBodyWithOneQueryTileAndOnSm103a) {
  AttentionSpec spec = outputs_spec(Dtype::kBf16, Dtype::kE4m3, 128, mask_of(Kind::kNull));
  expect_passes(with_group(spec, 8, 8), {{{1, 1}, {260, 260}}});
  spec.arch = Arch::kSm103a;
  spec.output_dtype = Dtype::kF32;
  expect_passes(spec, {{{141}, {300}}});
}

TEST_F(Sm100Outputs, DamagesAreSeen) {
  ProofCase one;
  one.spec = outputs_spec(Dtype::kBf16, Dtype::kE4m3, 64, mask_of(Kind::kNull));
  one.shape = {1, 20, 300, 1};
  ASSERT_EQ(failure(one, TemplateSet::embedded()), "");
  ASSERT_EQ(failure(one, TemplateSet::embedded(), InputKind::kSpike), "");
  const char* divides = "if (!merged) scale /= arguments.output_scale[0];";
  const char* inverse = "if (!merged) scale *= arguments.output_scale[0];";
  EXPECT_NE(failure(one, damaged("sm100/correction.cuh", divides, "")), "");
  if (in_proof()) {
    EXPECT_NE(failure(one, damaged("sm100/correction.cuh", divides, inverse)), "");
  }
  ProofCase parts = one;
  parts.spec.num_partitions = 2;
  parts.shape = {1, 3, 700, 148};
  ASSERT_EQ(failure(parts, TemplateSet::embedded()), "");
  EXPECT_NE(failure(parts, damaged("sm100/correction.cuh", divides,
                                   "scale /= arguments.output_scale[0];")),
            "");
  if (!in_proof()) return;
  EXPECT_NE(
      failure(parts, damaged("partials/merge.cuh", "scale /= arguments.output_scale[0];", ";")),
      "");
}

}  // namespace
}  // namespace attnjit::sm100

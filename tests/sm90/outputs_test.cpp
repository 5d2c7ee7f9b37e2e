// SPDX-License-Identifier: Apache-2.0
// O of e4m3 with an output_scale on sm_90a, from every place that writes it. Skipped without NVRTC.
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec outputs_spec(int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 2, depth, mask);
  spec.output_dtype = Dtype::kE4m3;
  return spec;
}

class Sm90Outputs : public KernelTest {};

TEST_F(Sm90Outputs, AtEveryDepth) {
  for (const int depth : some_of<int>({128, 80, 256, 64, 16, 192, 208}, 2)) {
    AttentionSpec spec = outputs_spec(depth);
    expect_passes(spec, {{{141}, {300}}});
    spec.qkv_dtype = Dtype::kFp16;
    spec.sink = true;
    if (in_proof()) expect_passes(spec, {{{70, 70}, {200, 200}}});
  }
  AttentionSpec narrow = outputs_spec(192, mask_of(Kind::kNull));
  narrow.ov_depth = 128;
  expect_passes(narrow, {{{20, 20}, {300, 300}}});
}

// Rows of a ragged tile past its sequence are copied by threads.
TEST_F(Sm90Outputs, OfRaggedBatchesAndPages) {
  for (const int depth : some_of<int>({256, 64})) {
    expect_passes(of_sequences(outputs_spec(depth), 16, true), {{{20, 0, 141}, {300, 40, 200}}});
  }
  expect_passes(of_sequences(outputs_spec(128), 3, true), {{{20, 0, 141}, {300, 40, 200}}});
}

TEST_F(Sm90Outputs, OfDecodesAndPartitions) {
  std::vector<Trial> trials;
  AttentionSpec decode = with_group(outputs_spec(128, mask_of(Kind::kNull)), 16, 8);
  decode.max_q_len = 4;
  trials.push_back({decode, {{{3, 3}, {300, 300}}}});
  AttentionSpec parts = of_sequences(outputs_spec(128), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  trials.push_back({parts, {{{20, 0, 3}, {500, 40, 20}}}});
  AttentionSpec keys = outputs_spec(64);
  keys.partition_keys = 128;
  trials.push_back({keys, {{{20, 20}, {100, 100}}, {{3, 3}, {700, 700}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm90Outputs, WhatIsRefused) {
  const auto reason = [](const AttentionSpec& spec) { return plan(spec)->reason; };
  AttentionSpec spec = outputs_spec(128);
  spec.output_dtype = Dtype::kF32;
  EXPECT_NE(reason(spec).find("no f32 output (output_dtype)"), std::string::npos);
  EXPECT_NE(reason(outputs_spec(72)).find("ov_depth 72 of e4m3"), std::string::npos);
  spec = outputs_spec(128);
  spec.accumulate = true;
  EXPECT_NE(reason(spec).find("accumulates takes o of bf16 or fp16"), std::string::npos);
}

}  // namespace
}  // namespace attnjit::sm90

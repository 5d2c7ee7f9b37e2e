// SPDX-License-Identifier: Apache-2.0
// O of e4m3 with an output_scale, and of f32, on sm_90a, from every place that writes it. Skipped
// without NVRTC.
#include <vector>

#include "../eight_bit_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec outputs_spec(int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 2, depth, mask);
  spec.output_dtype = Dtype::kE4m3;
  return spec;
}

/// O of f32, of inputs of 16 bits or of e4m3.
AttentionSpec floats_spec(int depth, const MaskSpec& mask = mask_of(Kind::kCausal),
                          Dtype inputs = Dtype::kBf16) {
  AttentionSpec spec = outputs_spec(depth, mask);
  spec.qkv_dtype = inputs;
  spec.output_dtype = Dtype::kF32;
  return spec;
}

using Sm90Outputs = EightBitTest<Arch::kSm90a, Dtype::kE4m3>;

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

TEST_F(Sm90Outputs, OfFloatsAtEveryDepth) {
  for (const Dtype inputs : {Dtype::kBf16, Dtype::kE4m3}) {
    for (const int depth : some_of<int>({128, 64, 256, 80, 192, 16, 208})) {
      AttentionSpec spec = floats_spec(depth, mask_of(Kind::kCausal), inputs);
      expect_passes(spec, {{{141}, {300}}, {{200}, {60}}});
      spec.sink = true;
      spec.return_lse = false;
      if (in_proof()) expect_passes(with_group(spec, 6, 3), {{{70, 70}, {200, 200}}});
    }
  }
  // Columns of a block that O does not fill, and a Q of one buffer.
  AttentionSpec narrow = floats_spec(72, mask_of(Kind::kNull), Dtype::kFp16);
  narrow.ov_depth = 40;
  expect_passes(narrow, {{{20, 20}, {300, 300}}});
  narrow = floats_spec(192, mask_of(Kind::kCausal), Dtype::kE4m3);
  narrow.ov_depth = 128;
  narrow.scales = Scales::kHead;
  expect_passes(narrow, {{{20, 20}, {300, 300}}});
  AttentionSpec upcast = floats_spec(128);
  upcast.kv_dtype = Dtype::kE4m3;
  if (in_proof()) expect_passes(upcast, {{{141}, {300}}});
}

// The launch has few query tiles, which the small-tile variant of the kernel has.
TEST_F(Sm90Outputs, OfFloatsOfBothBodies) {
  const AttentionSpec spec = floats_spec(128, mask_of(Kind::kNull));
  ASSERT_NE(plan(spec)->sm90->small_tile, nullptr);
  expect_passes(spec, {{{128}, {300}}, {{600}, {300}}});
}

TEST_F(Sm90Outputs, OfFloatsOfSequencesDecodesAndPartitions) {
  std::vector<Trial> trials;
  const MaskSpec causal = mask_of(Kind::kCausal);
  trials.push_back({of_sequences(floats_spec(128, causal, Dtype::kE4m3), 16, true),
                    {{{20, 0, 141}, {300, 40, 200}}}});
  trials.push_back({of_sequences(floats_spec(64), 3, true), {{{20, 0, 141}, {300, 40, 200}}}});
  trials.push_back({of_sequences(floats_spec(128), 64, false), {{{20, 20}, {300, 40}}}});
  AttentionSpec decode = with_group(floats_spec(128, mask_of(Kind::kNull)), 12, 6);
  decode.max_q_len = 4;
  trials.push_back({decode, {{{3, 3}, {300, 300}}}});
  AttentionSpec parts = of_sequences(floats_spec(128, causal, Dtype::kE4m3), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  trials.push_back({parts, {{{20, 0, 3}, {500, 40, 20}}}});
  AttentionSpec keys = floats_spec(64);
  keys.partition_keys = 128;
  trials.push_back({keys, {{{20, 20}, {100, 100}}, {{3, 3}, {700, 700}}}});
  AttentionSpec runs = floats_spec(64);
  runs.num_partitions = 0;
  trials.push_back({runs, {{{300}, {700}}, {{20, 20}, {60, 60}}}});
  trials.push_back({floats_spec(64, verify::custom_mask()), {{{200}, {300}}}});
  expect_passes(some_of(trials, 3));
}

// Rows before a head's first and past a sequence's last are nobody's.
TEST_F(Sm90Outputs, DamagesOfFloatsAreSeen) {
  AttentionSpec spec = with_group(floats_spec(64, mask_of(Kind::kNull)), 12, 3);
  expect_seen(spec, {{20, 20}, {60, 60}},
              {{"sm90/output.cuh", "at += work.batch * arguments.o_batch_bytes", "at += 0"},
               {"sm90/output.cuh", "at =\n        arguments.o + position * arguments.o_row_bytes",
                "at =\n        arguments.o + position * arguments.o_head_bytes"},
               {"sm90/output.cuh", "o[i + 1] * factor[half]", "o[i + 1] * factor[0]"},
               {"sm90/output.cuh", "if (wanted[half] && column", "if (column"}});
}

TEST_F(Sm90Outputs, WhatIsRefused) {
  EXPECT_NE(reason(outputs_spec(72)).find("ov_depth 72 of e4m3"), std::string::npos);
  EXPECT_EQ(reason(floats_spec(72)), "");
  AttentionSpec spec = outputs_spec(128);
  spec.accumulate = true;
  EXPECT_NE(reason(spec).find("accumulates takes o of bf16 or fp16"), std::string::npos);
}

}  // namespace
}  // namespace attnjit::sm90

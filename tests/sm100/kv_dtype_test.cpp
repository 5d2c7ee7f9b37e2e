// SPDX-License-Identifier: Apache-2.0
// 16-bit Q over e4m3 K and V on sm_100a and sm_103a, which a warpgroup loads and upcasts. Skipped
// without NVRTC.
#include <string>

#include "../eight_bit_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

using Sm100KvDtype = EightBitTest<Arch::kSm100a, Dtype::kBf16>;
using Sm100KvDtypeFp16 = EightBitTest<Arch::kSm100a, Dtype::kFp16>;
using Sm103KvDtype = EightBitTest<Arch::kSm103a, Dtype::kBf16>;

TEST_F(Sm100KvDtype, EveryDepthAndInput) {
  expect_depths(some_of<int>({128, 64, 256, 192, 16, 80, 208, 96}, 2));
}
TEST_F(Sm100KvDtypeFp16, EveryDepthAndInput) {
  expect_depths(some_of<int>({64, 128, 256, 192, 16, 80, 208, 96}));
}
TEST_F(Sm103KvDtype, EveryDepthAndInput) { expect_depths(some_of<int>({64, 128, 192})); }
TEST_F(Sm100KvDtype, OddLengths) { expect_odd_lengths(); }
TEST_F(Sm100KvDtype, ScalesOfTensorsAndHeads) { expect_scales(); }
TEST_F(Sm100KvDtype, ScalesOfRows) { expect_scales_of_rows(some_of<int>({128, 256, 64, 192, 80})); }
TEST_F(Sm100KvDtype, ScalesBetweenRows) { expect_scales_between_rows(); }
TEST_F(Sm100KvDtypeFp16, ScalesOfRows) { expect_scales_of_rows(some_of<int>({64, 256, 128})); }
TEST_F(Sm100KvDtype, PagesRaggedBatchesAndPartitions) {
  expect_sequences();
  // Pages of any number of rows: a lane finds its own.
  for (const int page_size : some_of<int>({3, 1, 40})) {
    expect_passes(of_sequences(with_group(spec_of(64, Scales::kHead), 4, 2), page_size, true),
                  {{{20, 0, 141}, {300, 40, 200}}});
  }
  AttentionSpec one_behind_another = of_sequences(spec_of(128, Scales::kHead), 0, true);
  one_behind_another.ragged_kv = true;
  one_behind_another.num_partitions = 2;
  expect_passes(one_behind_another, {{{20, 0, 3}, {500, 40, 20}}});
}
TEST_F(Sm100KvDtype, WrongPagesDoNoHarm) {
  expect_no_harm(of_sequences(spec_of(64), 16, true),
                 {{"page_table", {-1, 1 << 30, -(1 << 30)}}, {"kv_lens", {1 << 30, -5, 7}}});
}
TEST_F(Sm100KvDtype, DecodesOfGroups) { expect_decodes(); }
TEST_F(Sm100KvDtype, MasksAndModifications) { expect_masks(); }
TEST_F(Sm100KvDtype, TunedKernels) {
  expect_tuned({R"({"BN": 64, "num_kv_stages": 2})", R"({"use_fused_kv": 1})"});
}
TEST_F(Sm100KvDtype, RandomSpecs) { expect_random(17); }
TEST_F(Sm100KvDtypeFp16, RandomSpecs) { expect_random(71); }

// MLA's prefill, whose K is deeper than its V.
TEST_F(Sm100KvDtype, PrefillOfMla) {
  AttentionSpec spec = spec_of(192, Scales::kTensor);
  spec.ov_depth = 128;
  spec.mla = Mla::kPrefill;
  expect_passes(spec, {{{141}, {300}}});
}

TEST_F(Sm100KvDtype, OtherTypesOfO) {
  for (const Dtype output : some_of<Dtype>({Dtype::kF32, Dtype::kE4m3, Dtype::kFp16})) {
    AttentionSpec spec = spec_of(128, Scales::kHead);
    spec.output_dtype = output;
    expect_passes(spec, {{{141}, {300}}});
  }
}

// Tiles of equal work: a CTA takes several, and K and V are loaded ahead over their borders.
TEST_F(Sm100KvDtype, SeveralWorkTilesPerCta) {
  expect_passes(spec_of(128, Scales::kHead, mask_of(Kind::kNull)),
                {{{300, 300, 300}, {300, 300, 300}}, {{200, 200}, {100, 100}}});
}

TEST_F(Sm100KvDtype, DamagesOfTheScalesAreSeen) {
  expect_seen(with_group(spec_of(64, Scales::kHead, mask_of(Kind::kNull)), 32, 16),
              {{20, 20}, {300, 300}},
              {{"common/scales.cuh", "arguments.k_scale, work.batch,", "arguments.k_scale, 0,"},
               {"common/scales.cuh", "arguments.v_scale, work.batch,", "arguments.v_scale, 0,"},
               {"common/scales.cuh", "float scale = arguments.scale", "float scale = 1.0f"}});
}

// Behind the second sequence's keys its padding is NaN.
TEST_F(Sm100KvDtype, DamagesOfTheUpcastingAreSeen) {
  for (const int depth : some_of<int>({128, 256})) {
    expect_seen(
        of_sequences(spec_of(depth), 0, true), {{20, 20}, {300, 100}},
        {{"sm100/upcasting.cuh", "work.kv_len - 1);", "work.kv_len);"},
         {"sm100/upcasting.cuh", "(warp * kRows + lane / 4,", "(warp * kRows + (lane / 4 ^ 1),"},
         {"common/eight_bits.cuh", "half << 4", "(1 - half) << 4"},
         {"common/eight_bits.cuh", "2 * half + 1]", "2 * half]"},
         {"sm100/upcasting.cuh", "(lane_row), 8 * step + lane / 4)", "(own_row), lane / 4)"},
         {"sm100/upcasting.cuh", "end - 1 - rank;", "end - 1;"},
         {"sm100/upcasting.cuh", "ahead == 1 ? row.v : next.v", "next.v"}});
  }
}

// The tensor cores read what the upcasting warps wrote.
TEST_F(Sm100KvDtype, MissingFencesAreFound) {
  expect_found(spec_of(128), {{141}, {300}},
               {"sm100/upcasting.cuh", "    fence_proxy_async_shared();\n", ""}, "proxy");
}

// Columns past the depth are the next head's, and behind the last head's row there is nothing.
TEST_F(Sm100KvDtype, ColumnsPastTheDepthAreNotRead) {
  expect_found(spec_of(80), {{20}, {300}},
               {"sm100/upcasting.cuh", "column + Layout::kColumns <= kDepth", "column < kDepth"},
               "bounds");
}

TEST_F(Sm100KvDtype, SmallProbabilitiesAreKept) {
  expect_small_probabilities_kept(
      {"sm100/softmax.cuh", "fmaf(maximum, log2_scale, -Config::kPBias)", "maximum * log2_scale"});
}

// A caller's code for each score is where a softmax has the fewest registers left, and an array
// that a mask hangs on where correction has, with one query tile.
TEST_F(Sm100KvDtypeFp16, CallersCodeSpillsNothing) {
  AttentionSpec spec = with_group(spec_of(80, Scales::kTensor), 16, 16);
  spec.page_size = 256;
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom.name = "bias";
  spec.score_mod.custom.code = "score * p.slope + p.bias[kv_idx] - 0.01f * abs(q_idx - kv_idx)";
  spec.score_mod.custom.params = {{"slope", ParamSpec::Type::kF32},
                                  {"bias", ParamSpec::Type::kF32Array}};
  expect_no_spills({spec});
  spec = spec_of(64, Scales::kHead, mask_of(Kind::kCustom));
  spec.mask.custom.name = "documents";
  spec.mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx] || kv_idx < p.prefix";
  spec.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array},
                             {"prefix", ParamSpec::Type::kI32}};
  spec.sink = true;
  spec.lse_includes_sink = false;
  PlanOptions options;
  options.num_qo = 1;
  expect_no_spills({spec}, options);
}

TEST_F(Sm100KvDtype, WhatIsRefused) {
  EXPECT_NE(reason(spec_of(72)).find("no multiple of 16"), std::string::npos);
  EXPECT_NE(reason(spec_of(512)).find("kv_dtype"), std::string::npos);
  EXPECT_EQ(reason(of_sequences(spec_of(128), 3, false)), "");
}

}  // namespace
}  // namespace attnjit::sm100

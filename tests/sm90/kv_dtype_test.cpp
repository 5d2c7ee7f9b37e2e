// SPDX-License-Identifier: Apache-2.0
// 16-bit Q over e4m3 K and V on sm_90a, which are upcast on their way. Skipped without NVRTC.
#include <string>

#include "../eight_bit_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

using Sm90KvDtype = EightBitTest<Arch::kSm90a, Dtype::kBf16>;
using Sm90KvDtypeFp16 = EightBitTest<Arch::kSm90a, Dtype::kFp16>;

TEST_F(Sm90KvDtype, EveryDepthAndInput) {
  expect_depths(some_of<int>({128, 64, 256, 192, 16, 80, 208, 96}, 2));
}
TEST_F(Sm90KvDtypeFp16, EveryDepthAndInput) {
  expect_depths(some_of<int>({64, 128, 256, 192, 16, 80, 208, 96}));
}
TEST_F(Sm90KvDtype, OddLengths) { expect_odd_lengths(); }
TEST_F(Sm90KvDtype, ScalesOfTensorsAndHeads) { expect_scales(); }
TEST_F(Sm90KvDtype, ScalesOfRows) { expect_scales_of_rows(some_of<int>({128, 64, 192, 16, 80})); }
TEST_F(Sm90KvDtype, ScalesBetweenRows) { expect_scales_between_rows(); }
TEST_F(Sm90KvDtypeFp16, ScalesOfRows) { expect_scales_of_rows(some_of<int>({64, 192, 128})); }
TEST_F(Sm90KvDtype, PagesRaggedBatchesAndPartitions) { expect_sequences(); }
TEST_F(Sm90KvDtype, PagesOfAnyRows) { expect_pages_of_any_rows(); }
// Rows of 64 bytes and of 128.
TEST_F(Sm90KvDtype, DamagesOfCopiesOfRowsAreSeen) {
  expect_seen(of_sequences(spec_of(64), 3, true), {{20, 20}, {300, 100}},
              {{"sm90/row_copies.cuh", "kRowLanes == 8 ? row : row / 2", "row"},
               {"sm90/row_copies.cuh", "Layout::kCopiedRowBytes / 16", "8"}});
}
TEST_F(Sm90KvDtype, DecodesOfGroups) { expect_decodes(); }
TEST_F(Sm90KvDtype, MasksAndModifications) { expect_masks(); }
TEST_F(Sm90KvDtype, TunedTiles) {
  expect_tuned({R"({"BN": 96, "num_raw_stages": 2})", R"({"BN": 64, "num_stages": 3})"});
}
TEST_F(Sm90KvDtype, RandomSpecs) { expect_random(13); }
TEST_F(Sm90KvDtypeFp16, RandomSpecs) { expect_random(31); }

TEST_F(Sm90KvDtype, DamagesOfTheScalesAreSeen) {
  expect_seen(with_group(spec_of(64, Scales::kHead, mask_of(Kind::kNull)), 32, 16),
              {{20, 20}, {300, 300}},
              {{"common/scales.cuh", "arguments.k_scale, work.batch,", "arguments.k_scale, 0,"},
               {"common/scales.cuh", "arguments.v_scale, work.batch,", "arguments.v_scale, 0,"},
               {"common/scales.cuh", "float scale = arguments.scale", "float scale = 1.0f"}});
}

// Rows of 64 bytes and of 128; behind the second sequence's keys its padding is NaN.
TEST_F(Sm90KvDtype, DamagesOfTheUpcastingAreSeen) {
  for (const int depth : some_of<int>({128, 64})) {
    expect_seen(of_sequences(spec_of(depth), 0, true), {{20, 20}, {300, 100}},
                {{"sm90/upcaster.cuh", "lane < keys", "lane <= keys"},
                 {"sm90/upcaster.cuh", depth == 128 ? "lane % 8 : lane" : "lane / 2 % 4;",
                  depth == 128 ? "lane % 4 : lane" : "lane % 4;"},
                 {"sm90/upcaster.cuh", "kWideUnits * 2 ^ lane % 8", "kWideUnits * 2"},
                 {"common/eight_bits.cuh", "2 * half + 1]", "2 * half]"}});
  }
}

// The tiles of other warps, and of K and V, are behind barriers.
TEST_F(Sm90KvDtype, MissingFencesAreFound) {
  expect_found(spec_of(128), {{141}, {300}},
               {"sm90/upcaster.cuh", "      fence_proxy_async_shared();\n", ""}, "proxy");
}

TEST_F(Sm90KvDtype, SmallProbabilitiesAreKept) {
  expect_small_probabilities_kept(
      {"sm90/softmax.cuh", "log2_scale[half], -Config::kPBias)", "log2_scale[half], 0.0f)"});
}

// At depths above 224 O is most of a consumer's registers. With S as values of the optimiser these
// spilled 4 to 36 bytes.
TEST_F(Sm90KvDtype, SpillsNothing) {
  AttentionSpec sinks = spec_of(256);
  sinks.sink = true;
  sinks.return_lse = true;
  expect_no_spills(some_of<AttentionSpec>(
      {of_sequences(with_group(spec_of(256, Scales::kNone, mask_of(Kind::kCausal)), 16, 4), 64,
                    true),
       sinks, spec_of(256), spec_of(240, Scales::kNone, mask_of(Kind::kCausal)),
       spec_of(256, Scales::kNone, mask_of(Kind::kCausal)),
       of_sequences(spec_of(256, Scales::kNone, mask_of(Kind::kCausal)), 64, false)}));
}

TEST_F(Sm90KvDtype, DamagesOfScalesOfRowsAreSeen) {
  expect_seen(with_group(spec_of(64, Scales::kToken, mask_of(Kind::kNull)), 6, 3),
              {{150, 150}, {400, 400}},
              {{"sm90/key_scales.cuh",
                "sum[half] = fmaf(weights[4 * pair + 2 * half], of[0], sum[half]);", ""},
               {"common/key_scales.cuh", "put(k, log2_approx(value)", "put(k, 0.0f"},
               {"common/scales.cuh", "} else {\n    return arguments.scale;",
                "} else {\n    return 1.0f;"}});
}

// Who deals out work tiles has 40 registers, and spilled 8 to 76 bytes.
TEST_F(Sm90KvDtype, ListsOfWorkSpillNothing) {
  const auto causal = [](int depth) {
    return with_group(spec_of(depth, Scales::kHead, mask_of(Kind::kCausal)), 16, 4);
  };
  AttentionSpec parts = causal(64);
  parts.partition_keys = 256;
  AttentionSpec outputs = causal(128);
  outputs.sink = true;
  outputs.return_lse = true;
  AttentionSpec slopes = causal(64);
  slopes.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  AttentionSpec runs = causal(64);
  runs.num_partitions = 0;
  expect_no_spills(some_of<AttentionSpec>(
      {parts, causal(128), outputs, causal(64), causal(192), causal(96), slopes, runs}, 2));
}

// With 40 registers the producers of causal launches spilled 8 to 48 bytes, and the consumer of
// decodes 24.
TEST_F(Sm90KvDtype, ScalesOfRowsSpillNothing) {
  const auto of_rows = [](int depth, Kind mask = Kind::kNull) {
    return spec_of(depth, Scales::kToken, mask_of(mask));
  };
  AttentionSpec slopes = with_group(of_rows(128, Kind::kCausal), 8, 4);
  slopes.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  AttentionSpec parts = with_group(of_rows(128, Kind::kCausal), 8, 4);
  parts.num_partitions = 0;
  parts.return_lse = true;
  AttentionSpec decode = with_group(of_rows(128), 16, 8);
  decode.max_q_len = 4;
  decode.page_size = 16;
  AttentionSpec decode_in_parts = decode;
  decode_in_parts.mask = mask_of(Kind::kCausal);
  decode_in_parts.num_partitions = 0;
  const AttentionSpec dilated =
      spec_of(64, Scales::kToken, expression_of("(q_idx - kv_idx) % 3 == 0"));
  expect_no_spills(some_of<AttentionSpec>(
      {with_group(of_rows(64, Kind::kCausal), 8, 4), with_group(of_rows(128, Kind::kCausal), 8, 4),
       of_rows(128), of_sequences(of_rows(128), 16, true), of_rows(64), of_rows(192), decode,
       decode_in_parts, spec_of(128, Scales::kToken, window_of(512)), dilated, slopes, parts},
      2));
}

TEST_F(Sm90KvDtype, WhatIsRefused) {
  EXPECT_NE(reason(spec_of(72)).find("multiples of 16"), std::string::npos);
  EXPECT_NE(reason(spec_of(512)).find("kv_dtype"), std::string::npos);
  EXPECT_NE(reason(spec_of(208, Scales::kToken)).find("to qk_depth 192"), std::string::npos);
  EXPECT_EQ(reason(spec_of(128)), "");
}

}  // namespace
}  // namespace attnjit::sm90

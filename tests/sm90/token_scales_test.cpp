// SPDX-License-Identifier: Apache-2.0
// e4m3 rows with scales of their own (scales: token) on sm_90a: every way in which keys come, what
// is told of keys that have no scale, and what the weights of V keep. Skipped without NVRTC.
#include <vector>

#include "../eight_bit_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;
using verify::Tensor;

class Sm90TokenScales : public EightBitTest<Arch::kSm90a, Dtype::kE4m3> {
 protected:
  static AttentionSpec token_spec(int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
    return with_group(spec_of(depth, Scales::kToken, mask), 4, 2);
  }
};

TEST_F(Sm90TokenScales, EveryDepthAndInput) {
  for (const int depth : some_of<int>({128, 64, 16, 256, 80, 192}, 2)) {
    std::vector<Lengths> lengths{{{141}, {300}}, {{200}, {60}}};
    if (depth == 64 || depth == 128) lengths.insert(lengths.end(), 5, {{70, 70}, {257, 257}});
    expect_passes(token_spec(depth), lengths);
  }
  AttentionSpec narrow = token_spec(192);
  narrow.ov_depth = 128;
  narrow.output_dtype = Dtype::kFp16;
  expect_passes(narrow, {{{20, 20}, {300, 300}}});
}

TEST_F(Sm90TokenScales, MasksScoreModificationsAndSinks) {
  for (const auto& [name, mod] : some_of(verify::score_mods())) {
    AttentionSpec spec = token_spec(64);
    spec.score_mod = mod;
    spec.sink = true;
    expect_passes(spec, {{{70, 70}, {300, 300}}});
  }
  for (const MaskSpec& mask : some_of<MaskSpec>({verify::custom_mask(), mask_of(Kind::kNull),
                                                 window_of(50), mask_of(Kind::kMaterialized)})) {
    expect_passes(token_spec(128, mask), {{{141}, {300}}, {{3}, {700}}});
  }
}

TEST_F(Sm90TokenScales, PagesRaggedBatchesAndPartitions) {
  std::vector<Trial> trials;
  // Pages of whole boxes, and of rows that a warp copies.
  trials.push_back({of_sequences(token_spec(256), 3, false), {{{20, 20}, {200, 70}}}});
  for (const int page_size : {16, 1}) {
    trials.push_back(
        {of_sequences(token_spec(128), page_size, true), {{{20, 0, 141}, {300, 40, 200}}}});
  }
  AttentionSpec ragged = of_sequences(token_spec(64), 0, true);
  ragged.ragged_kv = true;
  trials.push_back({ragged, {{{20, 0, 141}, {300, 40, 200}}}});
  AttentionSpec parts = of_sequences(token_spec(128), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  parts.output_dtype = Dtype::kF32;
  trials.push_back({parts, {{{20, 0, 3}, {500, 40, 20}}}});
  parts = token_spec(64);
  parts.partition_keys = 128;
  trials.push_back({parts, {{{20, 20}, {400, 400}}}});
  AttentionSpec runs = token_spec(128);
  runs.num_partitions = 0;
  trials.push_back({runs, {{{300}, {700}}}});
  expect_passes(some_of(trials, 2));
}

// A consumer has several work tiles, of odd and of even numbers of KV tiles: the buffers go on by
// turns. Of a decode two CTAs share an SM.
TEST_F(Sm90TokenScales, SeveralWorkTilesPerCtaAndDecodes) {
  expect_passes(token_spec(64, mask_of(Kind::kNull)), {{{300, 300, 300}, {300, 300, 300}}});
  AttentionSpec decode = with_group(token_spec(128), 12, 6);
  decode.max_q_len = 4;
  expect_passes(decode, {{{3, 3, 3, 3}, {200, 200, 200, 200}}, {{4}, {700}}});
}

// Rows past a sequence's end have NaN scales, which nothing is made of; pages and tensors are
// whatever a launch says.
TEST_F(Sm90TokenScales, WrongTablesDoNoHarm) {
  expect_no_harm(of_sequences(token_spec(64), 16, true), {{"page_table", {-1, 1 << 30, 7, -5}},
                                                          {"kv_lens", {1 << 30, -1, 64}},
                                                          {"q_offsets", {5, 1 << 30, -3, 194}}});
}

// Scales of V that differ by 2^20 within a row: a key of which V is large may have a little weight,
// and one of which it is small nearly all of it. One more is a row of zeros, of scale 0, and counts
// in the sum.
TEST_F(Sm90TokenScales, WeightsOfTheSumAndOfTheOutput) {
  const AttentionSpec spec = token_spec(64, mask_of(Kind::kNull));
  auto problem = problem_of(spec, {{5}, {300}}, InputKind::kNormal, 5);
  ASSERT_TRUE(problem);
  Tensor& scales = problem->tensors.at("v_scale");
  for (std::int64_t i = 0; i < scales.elements(); ++i) {
    scales.as<float>()[i] = i % 11 == 0 ? 64.0F : 0x1p-14F;
  }
  EXPECT_TRUE(passes(spec, *problem));
  for (std::int64_t i = 0; i < scales.elements(); ++i) scales.as<float>()[i] = 0x1p-9F;
  Tensor& v = problem->tensors.at("v");
  for (std::int64_t i = 0; i < 2 * 64; ++i) {
    scales.as<float>()[i / 64] = 0;
    verify::store_float(v, i, 0);
  }
  EXPECT_TRUE(passes(spec, *problem));
}

// Of a scale whose reciprocal no f32 holds: rows are the mean of what they see.
TEST_F(Sm90TokenScales, ScalesNearZero) {
  const AttentionSpec spec = token_spec(64);
  auto problem = problem_of(spec, {{64}, {200}});
  ASSERT_TRUE(problem);
  problem->scale = 1e-38F;
  EXPECT_TRUE(passes(spec, *problem));
}

TEST_F(Sm90TokenScales, DamagesAreSeen) {
  const std::vector<Damage> damages = {
      {"common/scales.cuh", "arguments.q_scale[row * arguments.num_q_heads + head]",
       "arguments.q_scale[row * arguments.num_q_heads]"},
      {"common/scales.cuh", "return arguments.scale * arguments.q_scale",
       "return arguments.q_scale"},
      {"sm90/key_scales.cuh", "static_cast<i64>(tile.batch) * arguments.kv_len;", "0;"},
      {"common/key_scales.cuh", "i64 at = first + kv_head;", "i64 at = first;"},
      {"sm90/key_scales.cuh", "of[1], -origin[half])", "of[0], -origin[half])"},
      {"sm90/key_scales.cuh", "-origin[half]), scale[half], of[3])",
       "-origin[half]), scale[half], of[2])"},
      {"sm90/key_scales.cuh", "Buffer::kInverses + key * 4", "Buffer::kInverses + (key ^ 1) * 4"},
      {"sm90/consumer.cuh", "row_scale<Config>(work, head, position_of<Config>(row), arguments)",
       "row_scale<Config>(work, head, 0, arguments)"},
      {"sm90/origin_softmax.cuh", "sum[half] *= correction[half];", ""},
      {"sm90/origin_softmax.cuh", "s[i + 1] -= grown;", ""},
  };
  expect_seen(with_group(token_spec(64, mask_of(Kind::kNull)), 6, 3), {{150, 150}, {400, 400}},
              damages);
  // What is overwritten before it has been read is a race, and so is what is read before it is
  // there. Where consumers take turns these order it, too.
  const AttentionSpec spec = token_spec(256, mask_of(Kind::kNull));
  ASSERT_FALSE(plan(spec)->sm90->ping_pong);
  const std::vector<Damage> races = {
      {"sm90/key_scales.cuh", "smem.wait(smem.key_scales_full(ring.stage), ring.parity);", ""},
      {"sm90/key_scales.cuh", "    __syncwarp();\n    advance();", "    advance();"},
      {"sm90/layout.cuh", "kKeyScalesOffset + buffer * Layout",
       "kKeyScalesOffset + buffer / 2 * Layout"},
  };
  for (const Damage& damage : some_of(races)) expect_found(spec, {{150}, {600}}, damage, "race");
}

// Where a thread's rows are is found again in masked tiles and at the end: of two heads, packed and
// not, in the work tiles that follow, where sequences differ and where keys have parts.
TEST_F(Sm90TokenScales, RowsArePlacedAgain) {
  const MaskSpec of_heads = expression_of("(h % 2 == 0) == (q_idx - kv_idx < 150)");
  AttentionSpec unpacked = with_group(token_spec(80, of_heads), 6, 3);
  unpacked.return_lse = true;
  AttentionSpec parts = token_spec(128, window_of(60));
  parts.num_partitions = 2;
  AttentionSpec pages = of_sequences(token_spec(96, window_of(60)), 16, true);
  pages.num_partitions = 0;
  MaskSpec bits = mask_of(Kind::kMaterialized);
  bits.dtype = Dtype::kBits;
  expect_passes(some_of<Trial>({{token_spec(128, of_heads), {{{141, 141}, {300, 300}}}},
                                {unpacked, {{{200, 200}, {330, 330}}}},
                                {parts, {{{200, 200}, {330, 330}}}},
                                {pages, {{{200, 1, 70}, {330, 90, 70}}}},
                                {token_spec(256, bits), {{{141, 141}, {300, 300}}}},
                                {token_spec(64, bits), {{{141, 141}, {300, 300}}}}},
                               2));
  expect_seen(
      token_spec(128, of_heads), {{141, 141}, {300, 300}},
      {{"sm90/mainloop.cuh", "position_of<Config>(row) + place.kv_len", "row + place.kv_len"},
       {"sm90/mainloop.cuh", "place.h = rows.work.head + head_of_row<Config>(row)",
        "place.h = rows.work.head"}});
}

// Rows of a window may have masked tiles, full ones and masked ones again. A walk of tiles that
// ended with the full ones gave keys before the window weight.
TEST_F(Sm90TokenScales, WindowsEndMasked) {
  AttentionSpec upcast = token_spec(128, window_of(300));
  upcast.qkv_dtype = Dtype::kBf16;
  upcast.kv_dtype = Dtype::kE4m3;
  MaskSpec chunks = mask_of(Kind::kChunked);
  chunks.chunk = 400;
  expect_passes(some_of<Trial>({{token_spec(64, window_of(300)), {{{200}, {900}}}},
                                {upcast, {{{200}, {900}}}},
                                {token_spec(128, chunks), {{{200}, {900}}}}},
                               1));
}

// With where rows are, and with the factors of a maximum that moved, these spilled 8 to 56 bytes.
TEST_F(Sm90TokenScales, SpillsNothing) {
  const MaskSpec window = window_of(512), near = expression_of("abs(q_idx - kv_idx) < 100");
  MaskSpec bits = mask_of(Kind::kMaterialized);
  bits.dtype = Dtype::kBits;
  const auto of = [](int depth, const MaskSpec& mask) {
    AttentionSpec spec = token_spec(depth, mask);
    spec.output_dtype = Dtype::kF32;
    return spec;
  };
  AttentionSpec parts = of(128, bits);
  parts.partition_keys = 256;
  AttentionSpec narrow = of(192, window);
  narrow.ov_depth = 128;
  expect_no_spills(some_of<AttentionSpec>(
      {token_spec(128), of_sequences(token_spec(128), 16, true), token_spec(256), token_spec(64),
       token_spec(192), of(128, window), of(80, window), of_sequences(of(80, near), 64, false),
       of(128, bits), parts, narrow, of_sequences(of(256, bits), 0, true), of(256, bits),
       of_sequences(of(128, near), 0, true)},
      2));
}

}  // namespace
}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// e4m3 Q, K and V on sm_90a: every depth and input, every kind of scales, every way in which keys
// come, the transposition of V, and what P's bias and its saturation keep. Skipped without NVRTC.
#include "../eight_bit_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

using Sm90EightBit = EightBitTest<Arch::kSm90a, Dtype::kE4m3>;

TEST_F(Sm90EightBit, EveryDepthAndInput) {
  expect_depths(some_of<int>({128, 64, 256, 192, 16, 80, 208, 96}, 3));
}

TEST_F(Sm90EightBit, OddLengths) { expect_odd_lengths(); }

TEST_F(Sm90EightBit, ScalesOfTensorsAndHeads) { expect_scales(); }

TEST_F(Sm90EightBit, AScaleOfZero) { expect_a_scale_of_zero(); }

// An accumulator of 13 bits moves the LSE of large scores by more than the tolerance.
TEST_F(Sm90EightBit, TheLseIsAsGoodAsTheTensorCoresSums) {
  AttentionSpec spec = spec_of(192);
  spec.num_q_heads = 1;
  spec.return_lse = true;
  const auto problem = problem_of(spec, {{64}, {1500}}, InputKind::kRising, 3);
  ASSERT_TRUE(problem);
  const verify::Comparison right = judged(spec, *problem);
  EXPECT_TRUE(right.passed) << right.reason;
  EXPECT_GT(right.lse_max_abs_err.value_or(0), 2 * right.tolerance);
  const TemplateSet& templates = TemplateSet::embedded();
  EXPECT_FALSE(judged(spec, *problem, templates, 1.2F * 0.05F).passed);
}

TEST_F(Sm90EightBit, DamagesOfTheScalesAreSeen) {
  // A thread's two rows are 8 apart: of 16 heads they are two.
  expect_seen(with_group(spec_of(64, Scales::kHead, mask_of(Kind::kNull)), 32, 16),
              {{20, 20}, {300, 300}},
              {{"common/scales.cuh", "arguments.q_scale, work.batch, heads, head)",
                "arguments.q_scale, work.batch, heads, 0)"},
               {"common/scales.cuh", "arguments.q_scale, work.batch, heads, head)",
                "arguments.q_scale, 0, heads, head)"},
               {"common/scales.cuh", "arguments.k_scale, work.batch,", "arguments.k_scale, 0,"},
               {"common/scales.cuh", "arguments.v_scale, work.batch,", "arguments.v_scale, 0,"},
               {"common/scales.cuh", "float scale = arguments.scale", "float scale = 1.0f"},
               {"sm90/key_scales.cuh", "Config::kGqaShift > 3", "Config::kGqaShift > 4"}});
}

TEST_F(Sm90EightBit, DamagesOfTheTranspositionAreSeen) {
  // Behind the second sequence's keys its padding is NaN: 92 rows of a tile. The damages are of the
  // order of keys in P, of the even and odd columns, and of what lies past the end.
  expect_seen(
      of_sequences(spec_of(128), 0, true), {{20, 20}, {300, 100}},
      {{"sm90/products.cuh", "s[first + 4], s[first + 5]", "s[first + 2], s[first + 3]"},
       {"sm90/transposer.cuh", "lane < 16 ? 0x6420 : 0x7531", "lane < 16 ? 0x7531 : 0x6420"},
       {"sm90/transposer.cuh", "(row / 4 ^ matrix % 2)", "matrix % 2"},
       {"sm90/transposer.cuh", "zero_rows(rows, keys);", ";"},
       {"sm90/transposer.cuh", "key += 32", "key += 64"}});
}

// A share of the exponentials is computed by a polynomial, at depth 64. Of what is hidden it makes
// exactly 0: some rows of a tile see nothing, and say so.
TEST_F(Sm90EightBit, DamagesOfTheExponentialAreSeen) {
  expect_seen(spec_of(64), {{200}, {60}},
              {{"sm90/exponential.cuh", "-127.0f", "-100.0f"},
               {"sm90/exponential.cuh", "fraction, 1.0f)", "fraction, 2.0f)"},
               {"sm90/exponential.cuh", "<< 23", "<< 22"}});
}

TEST_F(Sm90EightBit, PagesRaggedBatchesAndPartitions) { expect_sequences(); }

// Of 8 rows a page holds a TMA box; of others a warp copies rows.
TEST_F(Sm90EightBit, PagesOfAnyRows) { expect_pages_of_any_rows(); }

TEST_F(Sm90EightBit, DamagesOfCopiesOfRowsAreSeen) {
  expect_seen(of_sequences(spec_of(64), 3, true), {{20, 20}, {300, 100}},
              {{"sm90/row_copies.cuh", "32 * i + min(lane, kRows - 1)", "min(lane, kRows - 1)"},
               {"sm90/row_copies.cuh", "kRowLanes == 8 ? row : row / 2", "row / 2"},
               {"sm90/row_copies.cuh", "lane % kRowLanes * kElements", "lane % kRowLanes * 8"},
               {"sm90/row_copies.cuh", "key_of(tile, i) % Config::kPageSize", "0"}});
  expect_found(of_sequences(spec_of(64), 1, false), {{20}, {300}},
               {"sm90/mainloop.cuh", "Config::kRowCopies && !kLandsRaw<Config, true>", "false"},
               "proxy");
}

TEST_F(Sm90EightBit, DecodesOfGroups) { expect_decodes(); }

TEST_F(Sm90EightBit, MasksAndModifications) { expect_masks(); }

// Knobs of a tuning table: as many keys as fit one product, and other stages.
TEST_F(Sm90EightBit, TunedTiles) {
  expect_tuned({R"({"BN": 192, "num_consumers": 2, "exp2_fma_pairs": 4})",
                R"({"BN": 64, "num_raw_stages": 1})",
                R"({"BN": 160, "num_consumers": 2, "num_raw_stages": 3, "num_stages": 3})",
                R"({"BN": 160, "num_consumers": 2, "ping_pong": 0})"});
}

TEST_F(Sm90EightBit, TheBiasKeepsWeightsOf2ToTheMinus17) {
  expect_bias_keeps_weights_of_2_to_the_minus_17(
      {"sm90/softmax.cuh", "log2_scale[half], -Config::kPBias)", "log2_scale[half], -6.0f)"});
}

TEST_F(Sm90EightBit, AMaximumIsRenewedBeforePSaturates) {
  expect_maximum_renewed_before_p_saturates(
      {"sm90/softmax.cuh", ">= -Config::kRescaleThreshold", ">= -2.0f"});
}

TEST_F(Sm90EightBit, RandomSpecs) { expect_random(20261123); }

TEST_F(Sm90EightBit, WhatIsRefused) {
  EXPECT_NE(reason(spec_of(72)).find("multiples of 16"), std::string::npos);
  EXPECT_EQ(reason(spec_of(128)), "");
}

// Up to depth 128, and above 192, the tensor cores sum rows of P, too, unless somebody is told the
// sums.
AttentionSpec summed_spec(int depth, const MaskSpec& mask) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 1, depth, mask);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.output_dtype = Dtype::kBf16;
  spec.return_lse = false;
  return spec;
}

TEST_F(Sm90EightBit, RowsAreSummedByProduct) {
  const auto sums = [](const AttentionSpec& spec) {
    const auto kernel = compiled(spec);
    return kernel && kernel->generated.ptx.find("m64n8k32.f32.e4m3.e4m3") != std::string::npos;
  };
  for (const int depth : some_of<int>({128, 64, 256})) {
    AttentionSpec spec = summed_spec(depth, mask_of(Kind::kNull));
    EXPECT_TRUE(sums(spec)) << depth;
    spec.return_lse = true;
    EXPECT_FALSE(sums(spec)) << depth;
    spec.return_lse = false;
    spec.num_partitions = 3;
    EXPECT_FALSE(sums(spec)) << depth;
  }
  for (const int depth : some_of<int>({128, 256, 64, 16, 96, 208})) {
    std::vector<Trial> trials;
    AttentionSpec spec = summed_spec(depth, mask_of(Kind::kCausal));
    spec.sink = true;
    trials.push_back({spec, {{{200}, {500}}, {{200}, {150}}}});
    trials.push_back({summed_spec(depth, mask_of(Kind::kNull)), {{{200}, {500}}}});
    trials.push_back({summed_spec(depth, window_of(70)), {{{300}, {400}}}});
    AttentionSpec pages = with_group(summed_spec(depth, mask_of(Kind::kCausal)), 8, 4);
    trials.push_back({of_sequences(pages, 16, true), {{{20, 0, 141}, {300, 40, 200}}}});
    expect_passes(some_of(trials, 2));
  }
}

// At depth 256 consumers hold a part of Q in registers. A lane hands Q back for its warp: soon
// where a consumer's rows see no key, whose next Q comes while other lanes may still read.
TEST_F(Sm90EightBit, ConsumersHoldQ) {
  AttentionSpec causal = summed_spec(256, mask_of(Kind::kCausal));
  causal.sink = true;
  const auto kernel = compiled(causal);
  ASSERT_TRUE(kernel);
  EXPECT_NE(kernel->generated.ptx.find("ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
            std::string::npos);
  AttentionSpec groups = with_group(summed_spec(256, mask_of(Kind::kNull)), 8, 8);
  groups.scales = Scales::kHead;
  const AttentionSpec pages = with_group(summed_spec(256, mask_of(Kind::kCausal)), 8, 4);
  expect_passes({{causal, {{{200}, {60}}, {{200}, {500}}}},
                 {with_mod(groups, ScoreModSpec::Kind::kSoftcap), {{{40}, {300}}}},
                 {of_sequences(pages, 16, true), {{{20, 0, 141}, {300, 40, 200}}}}});
  expect_no_spills({causal, summed_spec(256, mask_of(Kind::kNull))});
}

// Of a list of tiles each P is summed where it is multiplied: by itself, before a tile that some
// rows do not see, and under the next tile's scores.
TEST_F(Sm90EightBit, RowsOfListsAreSummedByProduct) {
  MaskSpec mask;
  mask.kind = Kind::kCustom;
  mask.custom.name = "listed";
  for (const char* const code :
       {"kv_idx < 40 || kv_idx / 100 == q_idx / 100", "q_idx % 100 < 30 && kv_idx / 64 % 3 == 1"}) {
    mask.custom.code = code;
    expect_passes(summed_spec(64, mask), {{{200}, {700}}});
  }
}

// Two bodies have 160 and 200 registers a consumer. ptxas found no room for O where they shared its
// names, and the emulator does not ask ptxas. The producer's warpgroup has 32: of the tile list
// tiles, of lists of KV tiles and of V's transposition it spilled 56 to 140 bytes.
TEST_F(Sm90EightBit, SpillsNothing) {
  constexpr auto kUnchanged = [](AttentionSpec&) {};
  constexpr auto kHeadScales = [](AttentionSpec& s) { s.scales = Scales::kHead; };
  constexpr auto kLse = [](AttentionSpec& s) { s.return_lse = true; };  // the producer has 56
  std::vector<AttentionSpec> specs;
  for (const MaskSpec& mask :
       {mask_of(Kind::kNull), mask_of(Kind::kCausal), window_of(512),
        expression_of("(q_idx - kv_idx) % 3 == 0"),
        expression_of("q_idx >= kv_idx && (kv_idx < 40 || kv_idx / 1000 == q_idx / 1000)")}) {
    for (const int depth : {128, 112}) {
      for (void (*const change)(AttentionSpec&) : {+kHeadScales, +kUnchanged, +kLse}) {
        change(specs.emplace_back(with_group(summed_spec(depth, mask), 16, 4)));
      }
    }
  }
  expect_no_spills(some_of<AttentionSpec>(specs, 4));
}

}  // namespace
}  // namespace attnjit::sm90

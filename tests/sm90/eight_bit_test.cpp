// SPDX-License-Identifier: Apache-2.0
// e4m3 Q, K and V on sm_90a: every depth and input, every kind of scales, every way in which keys
// come, the transposition of V, and what P's bias and its saturation keep. Skipped without NVRTC.
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../kernel_fixture.h"
#include "../sm100/damaged.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;
using sm100::damaged;
using verify::Tensor;

AttentionSpec spec_of(int depth, Scales scales = Scales::kNone,
                      const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 2, 1, depth, mask);
  spec.qkv_dtype = Dtype::kE4m3;
  spec.scales = scales;
  return spec;
}

AttentionSpec with_mod(AttentionSpec spec, ScoreModSpec::Kind kind) {
  spec.score_mod.kind = kind;
  if (kind == ScoreModSpec::Kind::kSoftcap) spec.score_mod.cap = 30;
  return spec;
}

class Sm90EightBit : public KernelTest {
 protected:
  // What is said of a kernel of these templates. `lse_more`: its LSE is further from the reference.
  static verify::Comparison judged(const AttentionSpec& spec, const Problem& problem,
                                   const TemplateSet& templates = TemplateSet::embedded(),
                                   float lse_more = 0) {
    Result<emulator::GeneratedKernel> generated =
        emulator::generate_kernel(spec, {}, templates, nullptr, CompileTo::kPtx);
    EXPECT_TRUE(generated) << (generated ? "" : generated.error().to_string());
    if (!generated) return {};
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    EXPECT_TRUE(module);
    if (!module) return {};
    const Kernel kernel{std::move(*generated), std::move(*module)};
    auto done = run(kernel, problem, launches_of(kernel, problem, problem.launch_shapes(), 2));
    const Result<verify::Reference> reference = verify::compute_reference(problem, 1);
    if (!done || !reference) return {};
    for (std::int64_t i = 0; lse_more != 0 && i < done->lse->elements(); ++i) {
      float& lse = done->lse->as<float>()[i];
      lse += lse > reference->lse[static_cast<std::size_t>(i)] ? lse_more : -lse_more;
    }
    return verify::compare(problem, *reference, done->o, done->lse ? &*done->lse : nullptr,
                           verify::tolerance_of(spec));
  }
  static bool passes(const AttentionSpec& spec, const Problem& problem,
                     const TemplateSet& templates = TemplateSet::embedded()) {
    return judged(spec, problem, templates).passed;
  }

  // One head and row of queries, whose scores are what K's first columns say.
  static AttentionSpec one_row() {
    AttentionSpec spec = spec_of(64, Scales::kNone, mask_of(Kind::kNull));
    spec.num_q_heads = 1;
    return spec;
  }
  struct Score {
    float first, second;  // their sum is the score
  };
  static Problem problem_with(const std::function<Score(int)>& score_of,
                              const std::function<float(int)>& value_of) {
    verify::ProblemRequest request;
    request.batch = 1;
    request.q_lens = {1};
    request.kv_lens = {300};
    request.scale = 1.0F;
    Problem problem = verify::make_problem(one_row(), request).value();
    Tensor& q = problem.tensors.at("q");
    Tensor& k = problem.tensors.at("k");
    Tensor& v = problem.tensors.at("v");
    for (int d = 0; d < 64; ++d) verify::store_float(q, d, d < 2 ? 1.0F : 0.0F);
    for (int key = 0; key < 300; ++key) {
      const Score score = score_of(key);
      for (int d = 0; d < 64; ++d) {
        const float element = d == 0 ? score.first : d == 1 ? score.second : 0.0F;
        verify::store_float(k, key * 64 + d, element);
        verify::store_float(v, key * 64 + d, value_of(key));
      }
    }
    return problem;
  }
};

TEST_F(Sm90EightBit, EveryDepthAndInput) {
  for (const int depth : some_of<int>({128, 64, 256, 192, 16, 80, 208, 96}, 5)) {
    const bool common = depth == 128 || depth == 64;
    std::vector<Lengths> lengths{{{141}, {300}}};
    if (common || in_proof()) lengths.insert(lengths.end(), 3, {{70, 70}, {257, 257}});
    expect_passes(spec_of(depth), lengths);
    if (common || in_proof()) expect_passes(spec_of(depth, {}, mask_of(Kind::kNull)), lengths);
  }
  AttentionSpec narrow = spec_of(192, Scales::kHead);
  narrow.ov_depth = 128;
  narrow.output_dtype = Dtype::kFp16;
  expect_passes(narrow, {{{20, 20}, {300, 300}}});
}

// Rows that see nothing, sequences without keys or rows, and keys of one tile more or less.
TEST_F(Sm90EightBit, OddLengths) {
  AttentionSpec spec = spec_of(128, Scales::kTensor);
  spec.sink = true;
  expect_passes(spec, {{{200}, {60}}, {{1}, {1}}, {{65}, {97}}, {{193}, {96}}, {{7}, {0}}});
  expect_passes(spec_of(64), {{{200}, {60}}, {{1}, {129}}, {{64}, {127}}, {{3}, {0}}});
}

TEST_F(Sm90EightBit, ScalesOfTensorsAndHeads) {
  for (const Scales scales : {Scales::kTensor, Scales::kHead}) {
    // Heads of a group in one tile, and head by head.
    for (const int group : {16, 3}) {
      AttentionSpec spec = with_group(spec_of(64, scales), 2 * group, group);
      expect_passes(spec, {{{70, 70}, {300, 300}}});
      spec = with_mod(spec, ScoreModSpec::Kind::kSoftcap);
      spec.sink = true;
      expect_passes(spec, {{{20, 20}, {200, 200}}});
    }
  }
}

// A tensor of zeros has the scale 0, where nobody saw to that: all keys that are seen are alike.
TEST_F(Sm90EightBit, AScaleOfZero) {
  for (const char* scale : {"q_scale", "k_scale", "v_scale"}) {
    AttentionSpec spec = spec_of(64, Scales::kHead);
    spec.return_lse = true;
    auto problem = problem_of(spec, {{70}, {100}}, InputKind::kNormal, 5);
    ASSERT_TRUE(problem);
    problem->tensors.at(scale).as<float>()[1] = 0;
    EXPECT_TRUE(passes(spec, *problem)) << scale;
  }
}

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
  AttentionSpec spec = with_group(spec_of(64, Scales::kHead, mask_of(Kind::kNull)), 32, 16);
  const auto problem = problem_of(spec, {{20, 20}, {300, 300}}, InputKind::kNormal, 5);
  ASSERT_TRUE(problem);
  ASSERT_TRUE(passes(spec, *problem));
  const struct {
    const char* file;
    const char* from;
    const char* to;
  } damages[] = {
      {"sm90/scales.cuh", "arguments.q_scale, work.batch, heads, head)",
       "arguments.q_scale, work.batch, heads, 0)"},
      {"sm90/scales.cuh", "arguments.q_scale, work.batch, heads, head)",
       "arguments.q_scale, 0, heads, head)"},
      {"sm90/scales.cuh", "arguments.k_scale, work.batch,", "arguments.k_scale, 0,"},
      {"sm90/scales.cuh", "arguments.v_scale, work.batch,", "arguments.v_scale, 0,"},
      {"sm90/scales.cuh", "return arguments.scale * scale_of", "return scale_of"},
      {"sm90/scales.cuh", "Config::kGqaShift > 3 ? 2 : 1", "Config::kGqaShift > 4 ? 2 : 1"},
  };
  for (const auto& [file, from, to] : damages) {
    EXPECT_FALSE(passes(spec, *problem, damaged(file, from, to))) << "passes: " << to;
  }
}

TEST_F(Sm90EightBit, DamagesOfTheTranspositionAreSeen) {
  // Behind the second sequence's keys its padding is NaN: 92 rows of a tile.
  const AttentionSpec spec = of_sequences(spec_of(128), 0, true);
  const auto problem = problem_of(spec, {{20, 20}, {300, 100}}, InputKind::kNormal, 5);
  ASSERT_TRUE(problem);
  ASSERT_TRUE(passes(spec, *problem));
  const struct {
    const char* file;
    const char* from;
    const char* to;
  } damages[] = {
      // The order of keys in P, the even and odd columns, and what lies past the end.
      {"sm90/products.cuh", "s[first + 4], s[first + 5]", "s[first + 2], s[first + 3]"},
      {"sm90/transposer.cuh", "lane < 16 ? 0x6420 : 0x7531", "lane < 16 ? 0x7531 : 0x6420"},
      {"sm90/transposer.cuh", "(row / 4 ^ matrix % 2)", "matrix % 2"},
      {"sm90/transposer.cuh", "zero_rows(rows, keys);", ";"},
      {"sm90/transposer.cuh", "key += 32", "key += 64"},
  };
  for (const auto& [file, from, to] : damages) {
    EXPECT_FALSE(passes(spec, *problem, damaged(file, from, to))) << "passes: " << to;
  }
}

// A share of the exponentials is computed by a polynomial, at depth 64. Of what is hidden it makes
// exactly 0: some rows of a tile see nothing, and say so.
TEST_F(Sm90EightBit, DamagesOfTheExponentialAreSeen) {
  const AttentionSpec spec = spec_of(64);
  const auto problem = problem_of(spec, {{200}, {60}}, InputKind::kNormal, 5);
  ASSERT_TRUE(problem);
  ASSERT_TRUE(passes(spec, *problem));
  for (const auto& [from, to] : {std::pair{"-127.0f", "-100.0f"},
                                 {"fraction, 1.0f)", "fraction, 2.0f)"},
                                 {"<< 23", "<< 22"}}) {
    EXPECT_FALSE(passes(spec, *problem, damaged("sm90/exponential.cuh", from, to)))
        << "passes: " << to;
  }
}

TEST_F(Sm90EightBit, PagesRaggedBatchesAndPartitions) {
  for (const int depth : {64, 128}) {
    expect_passes(of_sequences(with_group(spec_of(depth, Scales::kHead), 4, 2), 16, true),
                  {{{20, 0, 141}, {300, 40, 200}}});
  }
  AttentionSpec parts = of_sequences(spec_of(128, Scales::kHead), 16, true);
  parts.num_partitions = 3;
  parts.sink = true;
  expect_passes(parts, {{{20, 0, 3}, {500, 40, 20}}});
  parts = spec_of(64, Scales::kTensor);
  parts.partition_keys = 128;
  expect_passes(parts, {{{20, 20}, {400, 400}}});
  AttentionSpec ragged = of_sequences(spec_of(128, Scales::kTensor), 0, true);
  ragged.ragged_kv = true;
  expect_passes(ragged, {{{20, 0, 141}, {300, 40, 200}}});
  AttentionSpec deep = of_sequences(spec_of(256, Scales::kHead), 64, false);
  expect_passes(deep, {{{20, 20}, {200, 70}}});
}

TEST_F(Sm90EightBit, DecodesOfGroups) {
  AttentionSpec spec = with_group(spec_of(128, Scales::kHead), 16, 8);
  spec.max_q_len = 4;
  spec.page_size = 16;
  spec.num_partitions = 0;
  expect_passes(spec, {{{3, 3}, {300, 40}}, {{1}, {1000}}});
  // Heads that do not fill a power of two of rows.
  spec = with_group(spec_of(64, Scales::kHead), 12, 6);
  spec.max_q_len = 4;
  expect_passes(spec, {{{3, 3}, {200, 200}}});
  spec.qk_depth = 256;
  if (in_proof()) expect_passes(spec, {{{4}, {500}}});
}

TEST_F(Sm90EightBit, MasksAndModifications) {
  MaskSpec chunks = mask_of(Kind::kChunked);
  chunks.chunk = 48;
  MaskSpec documents = mask_of(Kind::kCustom);
  documents.custom.name = "document";
  documents.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
  documents.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  for (const MaskSpec& mask :
       some_of<MaskSpec>({window_of(70), documents, mask_of(Kind::kMaterialized), chunks,
                          tree(Kind::kOr, {mask_of(Kind::kCausal), chunks})},
                         3)) {
    expect_passes(spec_of(128, Scales::kTensor, mask), {{{200, 200}, {300, 300}}});
    if (in_proof()) expect_passes(spec_of(64, Scales::kNone, mask), {{{200}, {300}}});
  }
  expect_passes(with_mod(spec_of(128), ScoreModSpec::Kind::kAlibi), {{{70}, {300}}});
  if (in_proof()) {
    expect_passes(with_mod(spec_of(256), ScoreModSpec::Kind::kAlibi), {{{70}, {300}}});
  }
}

// Knobs of a tuning table: as many keys as fit one product, and other stages.
TEST_F(Sm90EightBit, TunedTiles) {
  for (const char* choose : some_of<const char*>(
           {R"({"BN": 192, "num_consumers": 2, "exp2_fma_pairs": 4})",
            R"({"BN": 64, "num_v_row_stages": 1})",
            R"({"BN": 160, "num_consumers": 2, "num_v_row_stages": 3, "num_stages": 3})",
            R"({"BN": 224, "num_consumers": 2, "ping_pong": 0})"},
           2)) {
    const Result<Tuning> tuning =
        tuning_from_json(std::string(R"({"rows": [{"choose": )") + choose + "}]}");
    ASSERT_TRUE(tuning) << tuning.error().to_string();
    expect_passes(spec_of(128), {{{141, 141}, {500, 500}}}, &*tuning);
  }
}

// One key has 2^17 times the weight of each of the others, and no value. What is lost of P shows
// whole: it is 2^-9 with the bias, e4m3's least number, and 0 with two less.
TEST_F(Sm90EightBit, TheBiasKeepsWeightsOf2ToTheMinus17) {
  const Problem problem = problem_with(
      [](int key) {
        return key == 7 ? Score{0, 0} : Score{-11, -0.8125F};
      },
      [](int key) { return key == 7 ? 0.0F : 16.0F; });
  EXPECT_TRUE(passes(one_row(), problem));
  EXPECT_FALSE(passes(one_row(), problem,
                      damaged("sm90/softmax.cuh", "log2_scale[half], -Config::kPBias)",
                              "log2_scale[half], -6.0f)")));
}

// The keys that are walked first have the lesser maximum, by 1.35 (1.95 as a power of two). Weights
// relative to it would be 2^9.95, which e4m3 has not: half of them would be lost.
TEST_F(Sm90EightBit, AMaximumIsRenewedBeforePSaturates) {
  const Problem problem = problem_with(
      [](int key) {
        return Score{key < 100 ? 1.375F : 0.0F, 0};
      },
      [](int key) { return key < 100 ? 4.0F : -1.0F; });
  EXPECT_TRUE(passes(one_row(), problem));
  EXPECT_FALSE(passes(one_row(), problem,
                      damaged("sm90/softmax.cuh", ">= -Config::kRescaleThreshold", ">= -2.0f")));
}

TEST_F(Sm90EightBit, RandomSpecs) {
  std::mt19937 draw(20261123);
  const auto below = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
  for (int i = 0; i < (in_proof() ? 120 : 4); ++i) {
    const int depths[] = {64, 128, 256, 16, 48, 80, 96, 160, 192, 224};
    const int groups[] = {1, 2, 3, 8};
    const int group = groups[below(4)];
    const MaskSpec masks[] = {mask_of(Kind::kNull), mask_of(Kind::kCausal), window_of(70)};
    AttentionSpec spec =
        with_group(spec_of(depths[below(10)], static_cast<Scales>(below(3)), masks[below(3)]),
                   2 * group, group);
    if (below(3) == 0) spec.ov_depth = 16 * (1 + below(spec.qk_depth / 16));
    if (below(2) == 0) spec = of_sequences(spec, 8 << below(5), below(2) == 0);
    if (below(3) == 0) spec.num_partitions = below(4);
    spec.sink = below(2) == 0;
    if (below(4) == 0) spec.max_q_len = 4;
    if (below(4) == 0) spec = with_mod(spec, ScoreModSpec::Kind::kSoftcap);
    const bool one_length = spec.page_size == 0 && !spec.ragged;
    const std::int64_t rows = spec.max_q_len > 0 ? 1 + below(4) : 1 + below(200);
    const std::int64_t keys = 1 + below(500);
    const std::int64_t other = one_length || !spec.ragged ? rows : rows / 2;
    expect_passes(spec, {{{rows, other}, {keys, one_length ? keys : keys / 3}}});
  }
}

TEST_F(Sm90EightBit, WhatIsRefused) {
  const auto reason = [](const AttentionSpec& spec) { return plan(spec)->reason; };
  EXPECT_NE(reason(spec_of(72)).find("multiples of 16"), std::string::npos);
  EXPECT_NE(reason(spec_of(128, Scales::kToken)).find("scales of rows (scales)"),
            std::string::npos);
  EXPECT_NE(reason(of_sequences(spec_of(128), 3, false)).find("page_size"), std::string::npos);
  EXPECT_EQ(reason(spec_of(128)), "");
}

}  // namespace
}  // namespace attnjit::sm90

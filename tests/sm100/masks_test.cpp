// SPDX-License-Identifier: Apache-2.0
// Masks whose expressions decide whole tiles, in the emulator under the isa model. Skipped without
// NVRTC.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../kernel_fixture.h"
#include "run_case.h"
#include "seen_damages.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

MaskSpec custom(const std::string& code) {
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "decided";
  mask.custom.code = code;
  return mask;
}

ProofCase case_of(const MaskSpec& mask, const ProofShape& shape, int heads) {
  ProofCase one;
  one.spec.num_q_heads = one.spec.group = heads;
  one.spec.qk_depth = 64;
  one.spec.return_lse = true;
  one.spec.mask = mask;
  one.shape = shape;
  return one;
}

// The warp instructions of a launch whose result is right; 0 where it is not, which is told.
std::uint64_t steps(const MaskSpec& mask, const ProofShape& shape,
                    const ScoreModSpec& score_mod = {}, int heads = 2) {
  ProofCase one = case_of(mask, shape, heads);
  one.spec.score_mod = score_mod;
  const Result<ProofKernel> kernel = make_kernel(one);
  if (!kernel) {
    ADD_FAILURE() << kernel.error().to_string();
    return 0;
  }
  const Result<verify::Problem> problem = problem_of(one, verify::InputKind::kNormal, 0);
  if (!problem) {
    ADD_FAILURE() << problem.error().to_string();
    return 0;
  }
  const Judged judged = judge(shape, *kernel, *problem, 1);
  EXPECT_TRUE(judged.passed) << mask.custom.code << ": " << judged.reason;
  return judged.steps;
}

class Sm100Masks : public KernelTest {
 protected:
  // That launches are right, on 132 SMs and on 2 by turns, and load so many KiB each.
  static void expect_loads(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                           const std::vector<std::uint64_t>& kib) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(loaded_bytes_of(*kernel, batches[i], i % 2 == 0 ? 132 : 2), 1024 * kib.at(i)) << i;
    }
  }
};

// Neither a tile that the expression shows nor one that it hides is asked about, score by score;
// where nothing is known of tiles, all are.
TEST_F(Sm100Masks, TilesThatAnExpressionDecidesAreNotAskedAbout) {
  const ProofShape shape{1, 128, 512, 1};
  const std::uint64_t null = steps(mask_of(Kind::kNull), shape);
  EXPECT_LT(steps(custom("true"), shape), null + null / 20);
  EXPECT_LT(steps(custom("kv_idx / 128 == 1"), shape), null + null / 4);
  EXPECT_GT(steps(custom("sin(float(kv_idx)) < 2.0f"), shape), 2 * null);
}

// Tiles that it hides at both ends of a walk are not loaded, nor a run of them between, however
// many they are.
TEST_F(Sm100Masks, TilesThatAnExpressionHidesAreNotWalked) {
  const ProofShape shape{1, 300, 9000, 1};
  const std::uint64_t all = steps(mask_of(Kind::kNull), shape);
  EXPECT_LT(steps(custom("kv_idx / 300 == 7"), shape), all / 8);
  EXPECT_LT(steps(custom("kv_idx < 4 || kv_idx <= q_idx && q_idx - kv_idx < 200"), shape), all / 4);
}

// The same where keys are split, into equal parts of what is seen or of all keys, and where
// sequences differ in length. One has no keys. A tile of K and V is 32 KiB, one of Q 16: of 70 rows
// over 5000 keys the first mask shows five, in three parts, and of 300 rows over 1100 keys the
// second shows two to each of three work tiles.
TEST_F(Sm100Masks, PartsOfWhatAnExpressionShows) {
  struct Shown {
    MaskSpec mask;
    std::vector<std::uint64_t> parts, fixed_parts, sequences;  ///< KiB that are loaded
  };
  for (const auto& [mask, parts, fixed_parts, sequences] :
       some_of<Shown>({{custom("kv_idx < 4 || kv_idx <= q_idx && q_idx - kv_idx < 200"),
                        {256, 640},
                        {224, 704},
                        {1120, 0}},
                       {custom("kv_idx / 128 % 5 == 1"), {800, 352}, {192, 352}, {1824, 0}}})) {
    SCOPED_TRACE(mask.custom.code);
    AttentionSpec spec = base_spec(Arch::kSm100a, 2, 2, 64, mask);
    spec.num_partitions = 3;
    expect_loads(spec, {{{70}, {5000}}, {{300}, {1100}}}, parts);
    spec.num_partitions = AttentionSpec().num_partitions;
    spec.partition_keys = 256;
    expect_loads(spec, {{{70}, {2000}}, {{300}, {1100}}}, fixed_parts);
    spec = of_sequences(base_spec(Arch::kSm100a, 2, 1, 64, mask), 16, true);
    spec.num_partitions = 1;  // a tile that is cut loads its Q once more
    expect_loads(spec, {{{70, 1, 300}, {5000, 700, 300}}, {{5, 0}, {0, 100}}}, sequences);
  }
}

TEST_F(Sm100Masks, Materialized) {
  for (const Dtype dtype :
       some_of<Dtype>({Dtype::kU8, Dtype::kBits, Dtype::kF32, Dtype::kBf16, Dtype::kFp16})) {
    MaskSpec mask = mask_of(Kind::kMaterialized);
    mask.dtype = dtype;
    steps(mask, {2, 150, 301, 1});
    if (!in_proof()) continue;
    steps(tree(Kind::kAnd, {mask_of(Kind::kCausal), mask}), {1, 40, 200, 1});
  }
}

TEST_F(Sm100Masks, WindowsToBothSidesAndSlopes) {
  ScoreModSpec slopes;
  slopes.kind = ScoreModSpec::Kind::kAlibi;
  slopes.slopes = true;
  for (const auto& [left, right] :
       some_of<std::pair<int, int>>({{-1, 90}, {50, 30}, {70, -1}, {-1, 0}})) {
    MaskSpec mask = window_of(left);
    mask.window_right = right;
    steps(mask, {1, 150, 300, 1}, slopes);
  }
}

TEST_F(Sm100Masks, ParametersOfEveryType) {
  steps(verify::mask_of_every_type(), {1, 150, 300, 1}, verify::score_mod_of_every_type());
}

TEST_F(Sm100Masks, TilesThatItCutsAre) {
  steps(custom("kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 70)"), {1, 300, 450, 1});
  steps(custom("h == 0 ? kv_idx < 150 : q_row % 100 < 50"), {1, 150, 300, 1});
}

// A softmax knows its work tile's place among the published by one number, and finds its row's
// correction slot again. With two numbers and the address it had a register too few, and of e4m3
// two.
TEST_F(Sm100Masks, ListsOfTilesSpillNothing) {
  const MaskSpec near = custom("abs(q_idx - kv_idx) < 100 || kv_idx < 16");
  const MaskSpec sinks =
      custom("q_idx >= kv_idx && (kv_idx < 40 || kv_idx / 1000 == q_idx / 1000)");
  std::vector<AttentionSpec> specs;
  for (const int depth : {64, 128, 192}) {
    for (const bool eight : {false, true}) {
      AttentionSpec spec = base_spec(Arch::kSm100a, 16, 4, depth, eight ? near : sinks);
      spec.return_lse = spec.sink = false;
      if (depth == 192) spec.ov_depth = 128;
      if (eight) spec.qkv_dtype = Dtype::kE4m3;
      specs.push_back(spec);
      spec.mask = sinks;
      if (eight) specs.push_back(spec);
    }
  }
  expect_no_spills(some_of<AttentionSpec>(specs, 3));
}

// Of a mask that hides tiles again and again more than one gap is left out: of up to 32 tiles, and
// of runs of more. Work tiles have two query tiles and one, of a head or of two that share them.
TEST_F(Sm100Masks, ManyGaps) {
  const MaskSpec strided =
      custom("kv_idx <= q_idx && (q_idx - kv_idx < 128 || kv_idx / 128 % 3 == 0)");
  expect_seen(case_of(strided, {1, 300, 1500, 1}, 1),
              {{"sm100/work.cuh", "nth_bit(shown, run) << gap", "run << gap"}}, 2);
  steps(custom("kv_idx / 256 % 3 == 1"), {1, 130, 5000, 1}, {}, 1);
  steps(custom("(kv_idx / 128 + q_idx / 128) % 2 == 0"), {1, 260, 1500, 1});
}

// Where a mask cuts a tile scores are hidden in tensor memory, 32 columns at a time: of those that
// all rows of a warp see nothing is done, and those that none sees are not read.
TEST_F(Sm100Masks, ScoresAreHiddenWhereTheyLie) {
  ProofCase one;
  one.spec.num_q_heads = one.spec.group = 2;
  one.spec.qk_depth = 64;
  one.spec.mask = mask_of(Kind::kCausal);
  one.shape = {1, 300, 300, 1};
  constexpr const char* kScores = "sm100/scores.cuh";
  expect_seen(one,
              {{kScores, "hide_columns(columns, word);", ";"},
               {kScores, "hide_all_columns(columns);", ";"},
               {kScores, "__all_sync(kAll, word == kAll)", "__any_sync(kAll, word == kAll)"},
               {kScores, "words[i - 1] = words[i];", ""},
               {kScores, "  tcgen05_wait_st();\n", ""}},
              1);
}

// sm_103a finds the maxima of scores that are used as they are when it loads them, behind the mask.
// Large scores 32 times as large overflow where a maximum leaves one out.
TEST_F(Sm100Masks, MaximaComeWithTheLoads) {
  const auto with_maxima = [](Arch arch, ScoreModSpec::Kind mod, const MaskSpec& mask) {
    AttentionSpec spec = base_spec(arch, 2, 1, 128, mask);
    spec.score_mod.kind = mod;
    if (mod == ScoreModSpec::Kind::kSoftcap) spec.score_mod.cap = 20;
    const auto kernel = compiled(spec);
    if (!kernel) return false;
    auto problem = problem_of(spec, {{141}, {700}}, InputKind::kLarge);
    if (!problem) return false;
    verify::Tensor& q = problem->tensors.at("q");
    for (std::int64_t i = 0; i < q.elements(); ++i) {
      std::uint16_t& bits = q.as<std::uint16_t>()[i];
      if ((bits & 0x7f80) != 0) bits = static_cast<std::uint16_t>(bits + (5 << 7));
    }
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 1));
    if (done) expect_right(*problem, *done);
    return kernel->generated.ptx.find("tcgen05.ld.red") != std::string::npos;
  };
  using Mod = ScoreModSpec::Kind;
  EXPECT_TRUE(with_maxima(Arch::kSm103a, Mod::kIdentity, mask_of(Kind::kCausal)));
  EXPECT_FALSE(with_maxima(Arch::kSm103a, Mod::kSoftcap, mask_of(Kind::kNull)));
  if (!in_proof()) return;
  EXPECT_TRUE(with_maxima(Arch::kSm103a, Mod::kIdentity, mask_of(Kind::kNull)));
  EXPECT_TRUE(with_maxima(Arch::kSm103a, Mod::kIdentity, custom("kv_idx % 7 != q_idx % 7")));
  EXPECT_FALSE(with_maxima(Arch::kSm100a, Mod::kIdentity, mask_of(Kind::kCausal)));
}

}  // namespace
}  // namespace attnjit::sm100

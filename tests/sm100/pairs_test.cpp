// SPDX-License-Identifier: Apache-2.0
// Pairs of CTAs that multiply together (pair_cta): rows of which one CTA has none, tiles that one
// sees and the other does not, work tiles that follow one another, sequences that differ in length.
// In the emulator under the isa model. Skipped without NVRTC.
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "attnjit/tuning.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

// A pair has 512 rows, each CTA 256 of them in two tiles that alternate with the other's; with one
// O it has 256 rows.
class Sm100Pairs : public KernelTest {
 protected:
  static AttentionSpec spec_of(int qk_depth, int ov_depth, const MaskSpec& mask) {
    AttentionSpec spec = base_spec(Arch::kSm100a, 2, 1, qk_depth, mask);
    spec.ov_depth = ov_depth;
    return spec;
  }

  static void expect_passes_in_pairs(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                                     const Tuning* tuning = nullptr, PlanOptions options = {}) {
    options.pair_cta = true;
    const auto kernel = compiled(spec, options, tuning);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->generated.plan.main().cluster, 2);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      SCOPED_TRACE(i);
      const auto problem = problem_of(spec, batches[i], static_cast<InputKind>(i % 4), i);
      ASSERT_TRUE(problem);
      for (std::uint64_t seed = i; seed < i + seeds(); ++seed) {
        // One pair that walks all, two, or as many as there are work tiles.
        const int sm_count = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 4 : 148;
        const LaunchSequence sequence =
            launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
        EXPECT_EQ(sequence.launches.front().grid[0] % 2, 0U);
        const auto done = run(*kernel, *problem, sequence, seed);
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
      }
    }
  }
};

// The last pair has rows in one CTA alone, or in one tile; rows that see no key; no keys.
const std::vector<Lengths>& lengths() {
  static const std::vector<Lengths> all = {{{600}, {600}}, {{100}, {300}},  {{300, 300}, {77, 77}},
                                           {{1}, {257}},   {{513}, {1030}}, {{260}, {0}}};
  return all;
}

TEST_F(Sm100Pairs, Masks) {
  std::vector<MaskSpec> masks = {mask_of(Kind::kCausal), mask_of(Kind::kNull), window_of(150),
                                 tree(Kind::kOr, {window_of(1), mask_of(Kind::kChunked)})};
  masks.back().of[1].chunk = 100;
  for (const MaskSpec& mask : some_of(masks, 2)) {
    expect_passes_in_pairs(spec_of(128, 128, mask), lengths());
  }
}

TEST_F(Sm100Pairs, DepthsAndTypes) {
  std::vector<AttentionSpec> specs = {
      spec_of(256, 256, mask_of(Kind::kCausal)), spec_of(192, 128, mask_of(Kind::kCausal)),
      spec_of(96, 72, mask_of(Kind::kNull)),     spec_of(248, 128, window_of(200)),
      spec_of(128, 128, mask_of(Kind::kCausal)), spec_of(256, 256, mask_of(Kind::kNull)),
      spec_of(104, 104, mask_of(Kind::kCausal)), spec_of(160, 128, mask_of(Kind::kCausal))};
  specs[2].qkv_dtype = Dtype::kFp16;
  specs[2].sink = true;
  specs[4].qkv_dtype = Dtype::kE4m3;
  specs[4].scales = Scales::kHead;
  specs[5].qkv_dtype = Dtype::kE4m3;
  specs[5].scales = Scales::kToken;
  specs[6].output_dtype = Dtype::kF32;
  specs[6].arch = Arch::kSm103a;
  for (const AttentionSpec& spec : some_of(specs, 2)) {
    SCOPED_TRACE(spec.qk_depth);
    expect_passes_in_pairs(spec, lengths());
  }
}

TEST_F(Sm100Pairs, GroupsOfHeads) {
  AttentionSpec spec = with_group(spec_of(128, 128, mask_of(Kind::kCausal)), 8, 4);
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  expect_passes_in_pairs(spec, {{{150}, {400}}, {{30, 30}, {200, 200}}});
}

// CTAs that walk several work tiles: those of equal work do, others where a row says so.
TEST_F(Sm100Pairs, WalkWorkTiles) {
  const Result<Tuning> tuning = tuning_from_json(R"({"rows": [{"choose": {"persistent": 1}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  const std::vector<Lengths> batches = {{{1100}, {600}}, {{1100}, {200}}, {{600, 600}, {300, 300}}};
  expect_passes_in_pairs(spec_of(128, 128, mask_of(Kind::kCausal)), batches, &*tuning);
  if (!in_proof()) return;
  expect_passes_in_pairs(spec_of(192, 128, mask_of(Kind::kCausal)), batches, &*tuning);
  expect_passes_in_pairs(spec_of(256, 256, mask_of(Kind::kCausal)), batches, &*tuning);
  expect_passes_in_pairs(spec_of(128, 128, window_of(150)), batches);
}

// Each CTA clears its columns of V's last tile; what is behind the sequences is NaN.
TEST_F(Sm100Pairs, PagesAndRaggedBatches) {
  const std::vector<Lengths> batches = {{{300, 5, 0, 70}, {500, 130, 0, 70}},
                                        {{513, 256, 1}, {1000, 128, 40}},
                                        {{20, 30, 40}, {3, 129, 255}}};
  std::vector<AttentionSpec> specs = {
      of_sequences(spec_of(128, 128, mask_of(Kind::kCausal)), 16, true),
      of_sequences(spec_of(128, 128, mask_of(Kind::kNull)), 0, true),
      of_sequences(spec_of(256, 256, mask_of(Kind::kCausal)), 48, true),
      of_sequences(with_group(spec_of(128, 128, window_of(100)), 4, 4), 256, true)};
  specs[3].sink = true;
  for (const AttentionSpec& spec : some_of(specs, 2)) expect_passes_in_pairs(spec, batches);
  expect_passes_in_pairs(of_sequences(spec_of(128, 128, mask_of(Kind::kCausal)), 64, false),
                         {{{300}, {500, 130, 0}}, {{100}, {64, 65}}});
}

TEST_F(Sm100Pairs, BoundedWaits) {
  PlanOptions options;
  options.debug_waits = true;
  expect_passes_in_pairs(of_sequences(spec_of(128, 128, mask_of(Kind::kCausal)), 64, false),
                         {{{600}, {300}}}, nullptr, options);
}

// What a launch's tensors hold is not known on the host.
TEST_F(Sm100Pairs, WrongLengthsDoNoHarm) {
  PlanOptions options;
  options.pair_cta = true;
  expect_no_harm(
      of_sequences(spec_of(128, 128, mask_of(Kind::kCausal)), 16, true),
      {{"kv_lens", {1 << 30, -5}}, {"q_offsets", {0, 90, 40}}, {"page_table", {-1, 9999}}},
      options);
}

}  // namespace
}  // namespace attnjit::sm100

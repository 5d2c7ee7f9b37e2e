// SPDX-License-Identifier: Apache-2.0
// Launches that cut long work tiles on sm_100a (common/cut_list.cuh). Skipped without NVRTC.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "../cuts_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Cuts : public CutsTest {
 protected:
  Sm100Cuts() : CutsTest(Arch::kSm100a) {}
};

TEST_F(Sm100Cuts, Chunks) { expect_all(chunks(), 2); }
TEST_F(Sm100Cuts, LayoutsOfKeys) { expect_all(layouts_of_keys(), 1); }
TEST_F(Sm100Cuts, TypesAndMasks) { expect_all(types_and_masks(), 3); }
TEST_F(Sm100Cuts, ShallowHeads) { expect_all(shallow_heads(), 2); }
TEST_F(Sm100Cuts, RowsOfPages) { expect_all(rows_of_pages(), 3); }
TEST_F(Sm100Cuts, OddGroups) { expect_all(odd_groups(), 1); }
TEST_F(Sm100Cuts, TheMergeIsNeeded) { expect_merge_needed(); }
TEST_F(Sm100Cuts, ShortKeysAreWrittenWhole) { expect_short_keys_whole(); }

// What an expression hides is not walked: parts are counted without it. And a launch of few rows
// has one query tile a CTA, while slots have room for two.
TEST_F(Sm100Cuts, HiddenTilesAndFewRows) {
  AttentionSpec hidden = cut_spec(2, 1, 64, 16);
  hidden.mask = expression_of("kv_idx <= q_idx && kv_idx / 512 % 3 != 1");
  AttentionSpec masked = cut_spec(4, 2, 64, 0);
  masked.ragged_kv = true;
  masked.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  AttentionSpec drafts = cut_spec(6, 3, 128, 64);
  drafts.max_q_len = 4;
  expect_all({{hidden, {{300, 1}, {6000, 5000}}, {7}},
              {drafts, {{4, 1, 2}, {5000, 300, 4000}}, {5, 11}},
              {masked, {{5, 1}, {5000, 60}}, {6}}},
             2);
}

class Sm100Decodes : public Sm100Cuts {
 protected:
  // Without offsets: the same rows of each sequence.
  AttentionSpec decode_spec(int heads, int group, int depth, int page_size, int rows = 1) const {
    AttentionSpec spec = cut_spec(heads, group, depth, page_size);
    spec.ragged = false;
    spec.max_q_len = rows;
    return spec;
  }
};

// One sequence in many parts, several of one range, and some without keys.
TEST_F(Sm100Decodes, Ranges) {
  AttentionSpec sinks = decode_spec(14, 7, 64, 64, 3);
  sinks.sink = true;
  expect_all({{decode_spec(8, 4, 128, 16), {{1}, {5000, 0, 3, 700, 3000, 0}}, {5, 40}},
              {sinks, {{3}, {200, 6000, 3, 2}}, {7}},
              {decode_spec(2, 1, 256, 16, 4), {{2}, {4000, 70, 1900}}, {9}},
              {decode_spec(4, 4, 128, 16, 2), {{2}, {2, 3000, 3100, 2900}}, {16}}},
             2);
}

TEST_F(Sm100Decodes, CutTilesAreMerged) {
  expect_merge_needed(decode_spec(2, 2, 128, 16), {{1}, {3000, 2500}});
}

TEST_F(Sm100Decodes, TypesMasksAndLayouts) {
  AttentionSpec eight = decode_spec(4, 4, 128, 16);
  eight.qkv_dtype = Dtype::kE4m3;
  AttentionSpec upcast = decode_spec(8, 4, 64, 16);
  upcast.kv_dtype = Dtype::kE4m3;
  AttentionSpec window = decode_spec(4, 2, 128, 1);
  window.mask = window_of(3500);
  AttentionSpec hidden = decode_spec(2, 1, 64, 16);
  hidden.mask = expression_of("kv_idx <= q_idx && kv_idx / 512 % 3 != 1");
  AttentionSpec excluded = decode_spec(4, 4, 128, 128, 2);
  excluded.kv_lens_exclude_new = true;
  excluded.output_dtype = Dtype::kF32;
  excluded.return_lse = false;
  AttentionSpec packed = decode_spec(4, 2, 64, 0);
  packed.ragged_kv = true;
  const Lengths lengths{{1}, {300, 4100, 9, 5000}};
  expect_all({{hidden, lengths, {7}},
              {packed, lengths, {6, 30}},
              {upcast, lengths, {5}},
              {window, lengths, {9}},
              {excluded, {{2}, {3500, 70, 2}}, {7}},
              {eight, lengths, {11}}},
             2);
}

// More than a warp has lanes: whole ones by their number or by their ticks, and one that is cut.
TEST_F(Sm100Decodes, ManySequences) {
  const AttentionSpec spec = decode_spec(2, 2, 64, 16);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  for (const int longest : some_of<int>({4000, 900})) {
    SCOPED_TRACE(longest);
    Lengths many{{1}, {}};
    for (int i = 0; i < 70; ++i) many.kv.push_back(i == 40 ? longest : i % 9 == 0 ? 0 : 5 * i);
    const auto problem = problem_of(spec, many);
    ASSERT_TRUE(problem);
    for (const int sm_count : {1, 7, 90}) {
      SCOPED_TRACE(sm_count);
      const auto done = run(*kernel, *problem,
                            launches_of(*kernel, *problem, problem->launch_shapes(), sm_count));
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
    }
  }
}

// Lengths that no sequence can have, of which the launch knows the bound: no access outside.
TEST_F(Sm100Decodes, AnyLengths) {
  const AttentionSpec spec = decode_spec(4, 4, 128, 16);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  auto problem = problem_of(spec, {{1}, {3000, 9, 300, 5}});
  ASSERT_TRUE(problem);
  constexpr std::int32_t kAny[] = {-7, std::numeric_limits<std::int32_t>::max(), 1 << 30, 0};
  std::ranges::copy(kAny, problem->tensors.at("kv_lens").as<std::int32_t>());
  for (const int sm_count : {1, 13}) {
    const auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
    EXPECT_TRUE(run(*kernel, *problem, sequence));
  }
}

}  // namespace
}  // namespace attnjit::sm100

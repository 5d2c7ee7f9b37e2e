// SPDX-License-Identifier: Apache-2.0
// Launches that split the keys into partitions and merge them, on sm_90a.
#include <vector>

#include "../split_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec split_spec(int qk_depth, int partitions,
                         const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 4, 4, qk_depth, mask);
  spec.num_partitions = partitions;
  return spec;
}

using Sm90Split = SplitTest;

// Some partitions have no keys, with and without a mask; rows see keys of some partitions alone.
TEST_F(Sm90Split, OneLength) {
  for (const int partitions : some_of<int>({3, 9, 2})) {
    SCOPED_TRACE(partitions);
    expect_passes(split_spec(64, partitions),
                  {{{70}, {500}}, {{1}, {400}}, {{60}, {40}}, {{3}, {0}}});
  }
  expect_passes(split_spec(128, 4, mask_of(Kind::kNull)), {{{40}, {300}}});
  if (!in_proof()) return;
  expect_passes(split_spec(192, 2, mask_of(Kind::kSlidingWindow)), {{{40}, {300}}});
  AttentionSpec spec = split_spec(256, 3);
  spec.ov_depth = 200;
  spec.qkv_dtype = Dtype::kFp16;
  expect_passes(spec, {{{40}, {300}}});
}

TEST_F(Sm90Split, Sequences) {
  std::vector<Trial> trials;
  trials.push_back({of_sequences(split_spec(128, 3), 16, false), {{{1}, {500, 0, 31, 200}}}});
  trials.push_back({of_sequences(split_spec(64, 2), 1, true), {{{1, 30, 0, 2}, {300, 30, 4, 0}}}});
  trials.push_back(
      {with_group(of_sequences(split_spec(64, 5), 0, true), 3, 3), {{{7, 0, 1}, {200, 9, 400}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm90Split, Sinks) { expect_sinks_count_once(split_spec(64, 2)); }

// Chosen at launch: one partition where the tiles fill the SMs, as many as fit where they do not.
TEST_F(Sm90Split, ChosenAtLaunch) {
  AttentionSpec spec = of_sequences(split_spec(64, 0), 64, false);
  spec.sink = true;
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto problem = problem_of(spec, {{2}, {1200, 0, 333}});
  ASSERT_TRUE(problem);
  EXPECT_GE(1200 / kernel->generated.plan.sm90->BN, 8);
  expect_chosen(*kernel, *problem, {{3, 1}, {4, 1}, {6, 2}, {132, 2}});
  // A dense launch of one partition deals its tiles out in pairs, and of several in ranges.
  spec = split_spec(64, 0);
  const auto dense = compiled(spec);
  ASSERT_TRUE(dense);
  EXPECT_TRUE(dense->generated.plan.sm90->pair_tiles);
  const auto long_rows = problem_of(spec, {{40}, {3000}});
  ASSERT_TRUE(long_rows);
  expect_chosen(*dense, *long_rows, {{1, 1}, {40, 2}});
}

}  // namespace
}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// Launches that split the keys into partitions and merge them, on sm_100a and sm_103a.
#include <vector>

#include "../split_fixture.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec split_spec(int qk_depth, int partitions,
                         const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec = base_spec(Arch::kSm100a, 2, 2, qk_depth, mask);
  spec.num_partitions = partitions;
  return spec;
}

using Sm100Split = SplitTest;

// One query tile and two; some partitions have no keys, and rows see keys of some partitions alone.
TEST_F(Sm100Split, OneLength) {
  for (const int partitions : some_of<int>({5, 2})) {
    SCOPED_TRACE(partitions);
    expect_passes(split_spec(64, partitions),
                  {{{100}, {500}}, {{1}, {400}}, {{80}, {40}}, {{3}, {0}}});
  }
  expect_passes(split_spec(128, 3, window_of(100)), {{{80}, {400}}});
  AttentionSpec spec = split_spec(192, 2, mask_of(Kind::kNull));
  spec.ov_depth = 72;
  spec.arch = Arch::kSm103a;
  spec.qkv_dtype = Dtype::kFp16;
  expect_passes(spec, {{{140}, {300}}});
}

TEST_F(Sm100Split, SingleAccumulator) {
  expect_passes(split_spec(256, 2), {{{100}, {500}}, {{1}, {400}}, {{80}, {40}}, {{3}, {0}}});
  AttentionSpec spec = of_sequences(split_spec(256, 3), 16, true);
  spec.sink = true;
  expect_passes(spec, {{{1, 20, 0, 2}, {300, 90, 4, 0}}});
}

// Several work tiles per CTA, of sequences with and without keys, of one V tile and of more.
TEST_F(Sm100Split, Sequences) {
  std::vector<Trial> trials;
  trials.push_back({of_sequences(split_spec(128, 3), 16, false), {{{1}, {500, 0, 31, 200}}}});
  trials.push_back({of_sequences(split_spec(64, 2), 64, true),
                    {{{1, 90, 0, 2}, {300, 90, 4, 0}}, {{140}, {300}}}});
  trials.push_back(
      {with_group(of_sequences(split_spec(64, 4), 0, true), 3, 3), {{{7, 0, 1}, {200, 9, 400}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm100Split, Sinks) { expect_sinks_count_once(split_spec(64, 2)); }

// Chosen at launch: one partition, written as O and LSE, where the tiles fill the SMs; as many as
// fit where they do not.
TEST_F(Sm100Split, ChosenAtLaunch) {
  for (const int ragged : some_of<int>({1, 0})) {
    AttentionSpec spec = of_sequences(split_spec(128, 0), 64, ragged != 0);
    spec.sink = true;
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const auto problem = problem_of(spec, {{2, 2, 2}, {3000, 0, 333}});
    ASSERT_TRUE(problem);
    // The device finds what is to be cut of a ragged batch.
    const std::size_t of_three = ragged != 0 ? 2 : 1;
    expect_chosen(*kernel, *problem, {{1, 1}, {3, of_three}, {148, 2}});
  }
}

// Of more sequences than a warp has lanes a CTA goes on to the next 32 for its work tiles, and back
// to those before where it takes them from the list's end.
TEST_F(Sm100Split, MoreSequencesThanAWarpHasLanes) {
  const AttentionSpec spec = of_sequences(split_spec(64, 2), 16, true);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  Lengths many;
  for (int i = 0; i < 70; ++i) {
    many.q.push_back(i % 7 == 0 ? 0 : i % 5 == 0 ? 140 : 1);
    many.kv.push_back(3 * i);
  }
  const auto problem = problem_of(spec, many);
  ASSERT_TRUE(problem);
  expect_chosen(*kernel, *problem, {{1, 2}, {7, 2}, {50, 2}});
}

}  // namespace
}  // namespace attnjit::sm100

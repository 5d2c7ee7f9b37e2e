// SPDX-License-Identifier: Apache-2.0
// Launches that split the keys into partitions and merge them, on sm_90a.
#include <vector>

#include "../kernel_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec spec_of(int qk_depth, int partitions, const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 4;
  spec.group = 4;
  spec.qk_depth = qk_depth;
  spec.num_partitions = partitions;
  spec.return_lse = true;
  spec.mask = mask;
  return spec;
}

AttentionSpec of_sequences(AttentionSpec spec, int page_size, bool ragged) {
  spec.page_size = page_size;
  spec.ragged = ragged;
  return spec;
}

using Sm90Split = KernelTest;

// Some partitions have no keys, with and without a mask; rows see keys of some partitions alone.
TEST_F(Sm90Split, OneLength) {
  for (const int partitions : {2, 3, 9}) {
    SCOPED_TRACE(partitions);
    expect_passes(spec_of(64, partitions), {{{70}, {500}}, {{1}, {400}}, {{60}, {40}}, {{3}, {0}}});
  }
  expect_passes(spec_of(128, 4, mask_of(Kind::kNull)), {{{40}, {300}}});
  expect_passes(spec_of(192, 2, mask_of(Kind::kSlidingWindow)), {{{40}, {300}}});
  AttentionSpec spec = spec_of(256, 3);
  spec.ov_depth = 200;
  spec.qkv_dtype = Dtype::kFp16;
  expect_passes(spec, {{{40}, {300}}});
}

TEST_F(Sm90Split, Sequences) {
  expect_passes(of_sequences(spec_of(128, 3), 16, false), {{{1}, {500, 0, 31, 200}}});
  expect_passes(of_sequences(spec_of(64, 2), 1, true), {{{1, 30, 0, 2}, {300, 30, 4, 0}}});
  expect_passes(with_group(of_sequences(spec_of(64, 5), 0, true), 3, 3),
                {{{7, 0, 1}, {200, 9, 400}}});
}

// The sink counts once, whatever the number of partitions.
TEST_F(Sm90Split, Sinks) {
  for (const bool in_lse : {false, true}) {
    AttentionSpec spec = of_sequences(spec_of(64, 3), 16, true);
    spec.sink = true;
    spec.lse_includes_sink = in_lse;
    expect_passes(spec, {{{1, 20}, {300, 5}}});
  }
  AttentionSpec spec = spec_of(64, 2);
  spec.sink = true;
  spec.return_lse = false;
  expect_passes(spec, {{{20}, {150}}});
}

// Chosen at launch: one partition where the tiles fill the SMs, as many as fit where they do not.
TEST_F(Sm90Split, ChosenAtLaunch) {
  AttentionSpec spec = of_sequences(spec_of(64, 0), 64, false);
  spec.sink = true;
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto problem = problem_of(spec, {{2}, {1200, 0, 333}});
  ASSERT_TRUE(problem);
  const int keys = kernel->generated.plan.sm90->BN;
  const struct {
    int sm_count;
    std::size_t launches;
  } cases[] = {{3, 1}, {4, 1}, {6, 2}, {132, 2}};
  EXPECT_GE(1200 / keys, 8);
  for (const auto& [sm_count, launches] : cases) {
    SCOPED_TRACE(sm_count);
    const LaunchSequence sequence =
        launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
    ASSERT_EQ(sequence.launches.size(), launches);
    EXPECT_EQ(sequence.workspaces.at(0).bytes > 0, launches == 2);
    const auto done = run(*kernel, *problem, sequence);
    ASSERT_TRUE(done);
    expect_right(*problem, *done);
  }
  // A dense launch of one partition deals its tiles out in pairs, and of several one by one.
  spec = spec_of(64, 0);
  const auto dense = compiled(spec);
  ASSERT_TRUE(dense);
  EXPECT_TRUE(dense->generated.plan.sm90->pair_tiles);
  for (const int sm_count : {1, 40}) {
    const auto long_rows = problem_of(spec, {{200}, {1200}});
    ASSERT_TRUE(long_rows);
    const LaunchSequence sequence =
        launches_of(*dense, *long_rows, long_rows->launch_shapes(), sm_count);
    ASSERT_EQ(sequence.launches.size(), sm_count == 1 ? 1U : 2U);
    const auto done = run(*dense, *long_rows, sequence);
    ASSERT_TRUE(done);
    expect_right(*long_rows, *done);
  }
}

}  // namespace
}  // namespace attnjit::sm90

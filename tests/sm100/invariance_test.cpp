// SPDX-License-Identifier: Apache-2.0
// partition_keys on sm_100a and sm_103a: partitions of fixed keys, and rows whose bits are their
// own.
#include <vector>

#include "../invariance_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

AttentionSpec spec_of(int qk_depth, int keys, int page_size, bool ragged,
                      const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec;
  spec.num_q_heads = 4;
  spec.group = 4;
  spec.qk_depth = qk_depth;
  spec.partition_keys = keys;
  spec.page_size = page_size;
  spec.ragged = ragged;
  spec.return_lse = true;
  spec.mask = mask;
  return spec;
}

MaskSpec window_of(int window) {
  MaskSpec mask = mask_of(Kind::kSlidingWindow);
  mask.window = window;
  return mask;
}

using Sm100Invariance = InvarianceTest;

// Partitions without keys and without rows that see them; query tiles without rows.
TEST_F(Sm100Invariance, PartitionsOfFixedKeysAreRight) {
  expect_passes(spec_of(64, 128, 0, false),
                {{{70}, {500}}, {{1}, {400}}, {{40}, {30}}, {{3}, {0}}});
  expect_passes(spec_of(128, 192, 0, false, window_of(50)), {{{40}, {400}}});
  AttentionSpec spec = with_group(spec_of(64, 64, 16, true), 3, 3);
  spec.sink = true;
  spec.arch = Arch::kSm103a;
  expect_passes(spec, {{{7, 0, 1}, {200, 9, 300}}, {{5, 1}, {60, 1}}});
}

TEST_F(Sm100Invariance, Ragged) {
  expect_same_bits(spec_of(128, 256, 16, true), InputKind::kLarge);
}

TEST_F(Sm100Invariance, Paged) {
  expect_same_bits(spec_of(64, 128, 64, false), InputKind::kRaised);
}

TEST_F(Sm100Invariance, SinksAndMasks) {
  // In a batch of one partition, too, a sink is added by the merge.
  AttentionSpec spec = spec_of(64, 192, 0, true, window_of(100));
  spec.sink = true;
  spec.lse_includes_sink = false;
  spec.arch = Arch::kSm103a;
  expect_same_bits(spec, InputKind::kSpike);
}

// Partitions that no row of a sequence reaches are no work.
TEST_F(Sm100Invariance, AWindowOfALongSequenceIsLittleWork) {
  const AttentionSpec spec = spec_of(64, 64, 64, false, window_of(40));
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto steps = [&](const Lengths& lengths) -> std::uint64_t {
    const auto problem = problem_of(spec, lengths);
    if (!problem) return 0;
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 1));
    if (!done) return 0;
    expect_right(*problem, *done);
    return done->thread_steps;
  };
  const std::uint64_t few = steps({{1}, {128}});
  const std::uint64_t many = steps({{1}, {64 * 100}});
  EXPECT_GT(few, 0U);
  EXPECT_LT(many, few * 2);
}

}  // namespace
}  // namespace attnjit::sm100

// SPDX-License-Identifier: Apache-2.0
// Tiles after a work tile's first one, whose maxima are looked for only where scores have grown
// (sm90/softmax.cuh, follow()). Skipped without NVRTC.
#include <cstdint>
#include <utility>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Follow : public KernelTest {
 protected:
  /// The thread instructions of a launch of 100 queries over 1000 keys, which is right.
  static std::uint64_t steps(const Kernel& kernel, const AttentionSpec& spec, InputKind input) {
    const auto problem = problem_of(spec, {{100}, {1000}}, input);
    if (!problem) return 0;
    const auto outputs =
        run(kernel, *problem, launches_of(kernel, *problem, problem->launch_shapes(), 2));
    if (!outputs) return 0;
    expect_right(*problem, *outputs);
    return outputs->thread_steps;
  }
};

// Tiles come from the last to the first, so that the scores of falling inputs grow, in each tile by
// more than the 8 powers of two that P may grow. Such a tile is computed twice: its launch takes
// 1.44 and 1.47 times as many instructions, and took 1.07 and 1.15 where all tiles look for maxima.
TEST_F(Sm90Follow, LooksForMaximaWhereScoresGrow) {
  for (const auto& [dtype, depth] : {std::pair{Dtype::kBf16, 64}, {Dtype::kFp16, 128}}) {
    AttentionSpec spec = base_spec(Arch::kSm90a, 1, 1, depth, mask_of(Kind::kNull));
    spec.qkv_dtype = dtype;
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const std::uint64_t normal = steps(*kernel, spec, InputKind::kNormal);
    const std::uint64_t falling = steps(*kernel, spec, InputKind::kFalling);
    ASSERT_GT(normal, 0) << depth;
    EXPECT_EQ(steps(*kernel, spec, InputKind::kRising), normal) << depth;
    EXPECT_GT(falling, normal * 5 / 4) << depth;
    EXPECT_GT(steps(*kernel, spec, InputKind::kSpike), 0) << depth;
    EXPECT_GT(steps(*kernel, spec, InputKind::kLarge), 0) << depth;
    EXPECT_GT(steps(*kernel, spec, InputKind::kRaised), 0) << depth;
  }
}

// A window's first tiles may show some rows no key: what those rows see first is above any limit.
TEST_F(Sm90Follow, RowsThatHaveSeenNoKey) {
  for (const int depth : {64, 128}) {
    expect_passes(base_spec(Arch::kSm90a, 2, 1, depth, window_of(70)), {{{200}, {900}}});
    expect_passes(base_spec(Arch::kSm90a, 2, 1, depth), {{{200}, {192}}});
  }
}

}  // namespace
}  // namespace attnjit::sm90

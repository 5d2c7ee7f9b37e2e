// SPDX-License-Identifier: Apache-2.0
// Launches whose query tiles differ in height, on sm_90a.
#include <vector>

#include "../kernel_fixture.h"
#include "../one_launch.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Tilings : public KernelTest {
 protected:
  // What some of the launches had: tiles that are lower than full ones; of several kinds, and which
  // way these grow; no order by length; the kernel's small-tile variant.
  struct Seen {
    bool lower = false, falling = false, rising = false, unordered = false, small_tiles = false;
  };

  // Right on GPUs of as many SMs, whose launches have other tiles.
  static Seen expect_right_on(const AttentionSpec& spec, const Lengths& lengths,
                              const std::vector<int>& sm_counts) {
    SCOPED_TRACE(spec_to_json(spec));
    Seen seen;
    const auto kernel = compiled(spec);
    if (!kernel) return seen;
    const auto problem = problem_of(spec, lengths);
    if (!problem) return seen;
    const KernelPlan& plan = kernel->generated.plan;
    for (const int sm_count : sm_counts) {
      SCOPED_TRACE(sm_count);
      const LaunchSequence sequence =
          launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      const auto number = [&](LaunchNumber one) {
        return number_of(plan, sequence.launches.front(), one);
      };
      if (plan.sm90->small_tile != nullptr)
        seen.small_tiles |= number(LaunchNumber::kSmallTile) != 0;
      const bool kinds = number(LaunchNumber::kFirstTiles) < number(LaunchNumber::kMTiles);
      const bool grows = number(LaunchNumber::kTileGrowth) > 0;
      seen.lower |= number(LaunchNumber::kTileGroups) < plan.sm90->num_consumers;
      seen.falling |= kinds && !grows;
      seen.rising |= kinds && grows;
      seen.unordered |= number(LaunchNumber::kPairedUnits) < 0;
      const auto done = run(*kernel, *problem, sequence, static_cast<std::uint64_t>(sm_count));
      if (done) expect_right(*problem, *done);
    }
    return seen;
  }

  static AttentionSpec spec_of(int qk_depth, Kind mask, int heads = 2, int group = 1) {
    return base_spec(Arch::kSm90a, heads, group, qk_depth, mask_of(mask));
  }
};

TEST_F(Sm90Tilings, RowsThatSeeAsManyKeys) {
  const Seen seen = expect_right_on(spec_of(64, Kind::kNull), {{700}, {150}}, {7, 132});
  EXPECT_TRUE(seen.lower);
  EXPECT_TRUE(seen.unordered);
  EXPECT_TRUE(expect_right_on(spec_of(64, Kind::kNull, 1), {{2432}, {60}}, {4}).falling);
}

TEST_F(Sm90Tilings, RowsThatSeeMoreKeys) {
  const Seen seen = expect_right_on(spec_of(64, Kind::kCausal), {{700}, {720}}, {8, 132});
  EXPECT_TRUE(seen.lower);
  EXPECT_TRUE(seen.rising);
  EXPECT_FALSE(seen.unordered);
  // Few tiles of a head are no pairs.
  EXPECT_TRUE(
      expect_right_on(spec_of(64, Kind::kCausal, 3), {{256, 256}, {256, 256}}, {2}).unordered);
  if (!in_proof()) return;
  // One of two consumers is as slow as both.
  EXPECT_FALSE(expect_right_on(spec_of(256, Kind::kCausal, 1), {{300}, {280}}, {132}).lower);
}

// Of depth 128 without a mask: the small-tile variant, whose tiles have two groups of rows and 128
// keys; and of causal kernels that choose their parts.
TEST_F(Sm90Tilings, SmallTileVariant) {
  AttentionSpec spec = spec_of(128, Kind::kNull);
  EXPECT_TRUE(expect_right_on(spec, {{250, 250}, {256, 256}}, {1, 3}).small_tiles);
  EXPECT_TRUE(expect_right_on(spec, {{70}, {0}}, {1}).small_tiles);
  EXPECT_FALSE(expect_right_on(spec, {{384}, {160}}, {1}).small_tiles);
  AttentionSpec chosen = spec;
  chosen.num_partitions = 0;  // which those launches leave at one
  EXPECT_TRUE(expect_right_on(chosen, {{250, 250}, {256, 256}}, {3}).small_tiles);
  chosen.mask = mask_of(Kind::kCausal);
  EXPECT_TRUE(expect_right_on(chosen, {{250}, {250}}, {3}).small_tiles);
  EXPECT_FALSE(expect_right_on(chosen, {{384}, {384}}, {2}).small_tiles);
  spec.num_q_heads = 4;
  spec.group = 4;
  spec.ov_depth = 96;
  spec.sink = true;
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  EXPECT_TRUE(expect_right_on(spec, {{64}, {250}}, {1, 2}).small_tiles);
  if (!in_proof()) return;
  spec = spec_of(104, Kind::kNull);
  spec.qkv_dtype = Dtype::kFp16;
  EXPECT_TRUE(expect_right_on(spec, {{100}, {250}}, {1}).small_tiles);
}

// A group's heads in a tile's rows; windows; tiles that are listed; launches that do not split.
TEST_F(Sm90Tilings, Specs) {
  EXPECT_TRUE(expect_right_on(spec_of(64, Kind::kCausal, 4, 4), {{170}, {200}}, {6, 132}).rising);
  EXPECT_TRUE(
      expect_right_on(base_spec(Arch::kSm90a, 2, 1, 64, window_of(100)), {{700}, {700}}, {7, 132})
          .lower);
  AttentionSpec split = spec_of(64, Kind::kCausal);
  split.num_partitions = 0;
  expect_right_on(split, {{700}, {90}}, {3, 8});
  if (!in_proof()) return;
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "chunks";
  mask.custom.code = "q_idx / 96 == kv_idx / 96";
  EXPECT_TRUE(
      expect_right_on(base_spec(Arch::kSm90a, 2, 1, 64, mask), {{700}, {700}}, {7, 132}).lower);
}

}  // namespace
}  // namespace attnjit::sm90

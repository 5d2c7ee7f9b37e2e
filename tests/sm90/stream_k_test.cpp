// SPDX-License-Identifier: Apache-2.0
// Dense launches that deal out stream-K ranges of KV tiles, on sm_90a: tiles that a run's end cuts
// are merged, and others are written whole.
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "plan/plan_launch.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec runs_spec(int heads, int group, int qk_depth, const MaskSpec& mask) {
  AttentionSpec spec = base_spec(Arch::kSm90a, heads, group, qk_depth, mask);
  spec.num_partitions = 0;
  return spec;
}

struct Shape {
  std::int64_t q, kv;
  std::vector<int> ranges;
};

class Sm90Ranges : public KernelTest {
 protected:
  // Right, in several orders of time.
  static void expect_runs(const AttentionSpec& spec, const std::vector<Shape>& shapes) {
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    ASSERT_TRUE(kernel->generated.plan.sm90->stream_k);
    for (const auto& [q, kv, ranges] : shapes) {
      const auto problem = problem_of(spec, {{q}, {kv}});
      ASSERT_TRUE(problem);
      for (const int count : some_of(ranges)) {
        SCOPED_TRACE(std::to_string(q) + " rows on " + std::to_string(count));
        LaunchSequence sequence;
        ASSERT_TRUE(plan_launch_in_parts(kernel->generated.plan, problem->launch_shapes(),
                                         problem->launch_scalars(), {}, {.sm_count = count},
                                         PartitionChoice{count, count}, sequence)
                        .ok());
        for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
          const auto done = run(*kernel, *problem, sequence, seed);
          ASSERT_TRUE(done);
          expect_right(*problem, *done);
        }
      }
    }
  }
};

// Runs end within tiles and between them. Tiles have one part, two and many.
TEST_F(Sm90Ranges, CutTiles) {
  expect_runs(runs_spec(2, 1, 64, mask_of(Kind::kCausal)),
              {{400, 500, {3, 4, 7}}, {64, 1000, {9, 4}}});
  expect_runs(runs_spec(1, 1, 128, mask_of(Kind::kNull)), {{400, 300, {2}}, {1, 900, {20}}});
}

// The sink counts once, in tiles that are cut and in others.
TEST_F(Sm90Ranges, Sinks) {
  AttentionSpec spec = runs_spec(2, 2, 64, mask_of(Kind::kCausal));
  spec.sink = true;
  expect_runs(spec, {{400, 500, {3}}});
}

// Rows and whole tiles before the first key; and no keys at all.
TEST_F(Sm90Ranges, RowsWithoutKeys) {
  expect_runs(runs_spec(2, 1, 64, mask_of(Kind::kCausal)), {{600, 300, {3, 5}}, {200, 0, {3}}});
}

TEST_F(Sm90Ranges, OtherTypesAndMasks) {
  const auto with = [](auto change) {
    AttentionSpec spec = runs_spec(2, 1, 128, mask_of(Kind::kCausal));
    change(spec);
    return spec;
  };
  for (const AttentionSpec& spec : some_of<AttentionSpec>(
           {with([](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; }),
            with([](AttentionSpec& s) { s.qkv_dtype = Dtype::kFp16; }),
            with([](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; }),
            with([](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; }),
            with([](AttentionSpec& s) { s.qk_depth = 256; }),
            with([](AttentionSpec& s) { s.group = 2; })})) {
    expect_runs(spec, {{400, 500, {3, 4}}});
  }
}

// Two tile lists in the producer, and a small-tile variant where nothing is masked.
TEST_F(Sm90Ranges, SpillNothing) {
  const auto changed = [](const MaskSpec& mask, auto change) {
    AttentionSpec spec = runs_spec(4, 1, 128, mask);
    change(spec);
    return spec;
  };
  const MaskSpec null = mask_of(Kind::kNull), causal = mask_of(Kind::kCausal);
  expect_no_spills(some_of<AttentionSpec>(
      {changed(null, [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; }),
       changed(null, [](AttentionSpec& s) { s.sink = true; }),
       changed(causal, [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; }),
       changed(null, [](AttentionSpec& s) { s.group = 4; }),
       changed(null,
               [](AttentionSpec& s) {
                 s.group = 2;
                 s.qk_depth = 104;
                 s.qkv_dtype = Dtype::kFp16;
               }),
       changed(null, [](AttentionSpec& s) { s.ov_depth = 96; }),
       changed(null, [](AttentionSpec& s) { s.output_dtype = Dtype::kE4m3; }),
       changed(null, [](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; })}));
}

}  // namespace
}  // namespace attnjit::sm90

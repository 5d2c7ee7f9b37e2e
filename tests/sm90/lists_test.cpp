// SPDX-License-Identifier: Apache-2.0
// Masks whose expressions decide whole tiles, on sm_90a: KV tiles that they hide are not loaded.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../kernel_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

MaskSpec custom(const std::string& code, std::vector<ParamSpec> params = {}) {
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "listed";
  mask.custom.code = code;
  mask.custom.params = std::move(params);
  return mask;
}

AttentionSpec lists_spec(int qk_depth, const MaskSpec& mask) {
  return base_spec(Arch::kSm90a, 2, 2, qk_depth, mask);
}

using Sm90Lists = KernelTest;

// A tile that is hidden lies before, behind and between those that are seen; a consumer's rows see
// tiles that another's do not.
constexpr const char* kSinksAndWindow = "kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 70)";

TEST_F(Sm90Lists, OneLength) {
  std::vector<Trial> trials;
  trials.push_back(
      {lists_spec(64, custom(kSinksAndWindow)), {{{200}, {300}}, {{70}, {700}}, {{90}, {20}}}});
  trials.push_back(
      {lists_spec(128, custom("q_idx / 100 == kv_idx / 100")), {{{260}, {400}}, {{2}, {0}}}});
  trials.push_back({lists_spec(256, custom("kv_idx <= q_idx || kv_idx < 150")), {{{40}, {300}}}});
  // Rows and whole work tiles that see nothing, and tiles that are hidden from all.
  trials.push_back({lists_spec(64, custom("q_idx % 100 < 30 && kv_idx / 64 % 3 == 1")),
                    {{{200}, {520}}, {{1}, {60}}}});
  trials.push_back({lists_spec(64, custom("kv_idx < 0")), {{{70}, {200}}}});
  expect_passes(some_of(trials, 3));
}

// Heads that are packed into a tile see different keys; so do heads that are not.
TEST_F(Sm90Lists, Heads) {
  for (const int group : some_of<int>({3, 4})) {
    expect_passes(with_group(lists_spec(64, custom("h % 2 == 0 ? kv_idx <= q_idx : kv_idx < 130")),
                             group == 3 ? 3 : 4, group),
                  {{{150}, {300}}});
  }
}

// A CTA has work tiles without keys among others, and gives Q's memory back for them, too.
TEST_F(Sm90Lists, WorkTilesWithoutKeys) {
  expect_passes(base_spec(Arch::kSm90a, 200, 1, 128, custom("h % 3 == 0 && kv_idx <= q_idx")),
                {{{90}, {90}}});
}

TEST_F(Sm90Lists, Sequences) {
  std::vector<Trial> trials;
  const MaskSpec mask = custom(kSinksAndWindow);
  const std::vector<Lengths> batches{{{60, 0, 1, 130}, {300, 30, 200, 130}}};
  trials.push_back({of_sequences(lists_spec(64, mask), 0, true), batches});
  trials.push_back({of_sequences(lists_spec(128, mask), 64, true), batches});
  // Rows of K and V are copied one by one.
  trials.push_back({of_sequences(lists_spec(64, mask), 1, true), batches});
  AttentionSpec keys = of_sequences(lists_spec(64, mask), 0, true);
  keys.ragged_kv = true;
  trials.push_back({keys, batches});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm90Lists, Partitions) {
  std::vector<Trial> trials;
  AttentionSpec spec = of_sequences(lists_spec(64, custom(kSinksAndWindow)), 16, false);
  spec.num_partitions = 3;
  spec.sink = true;
  trials.push_back({spec, {{{2}, {700, 0, 31, 200}}}});
  AttentionSpec fixed = of_sequences(lists_spec(64, custom(kSinksAndWindow)), 64, true);
  fixed.num_partitions = 1;
  fixed.partition_keys = 128;
  trials.push_back({fixed, {{{1, 40}, {400, 300}}}});
  AttentionSpec decode = of_sequences(lists_spec(128, custom(kSinksAndWindow)), 64, false);
  decode.max_q_len = 2;
  trials.push_back({decode, {{{2}, {700, 3}}}});
  expect_passes(some_of(trials, 2));
}

// The parameters of a launch, an element of an array that is the tile's, and trees with masks that
// have intervals and with masks of which nothing is known.
TEST_F(Sm90Lists, ParametersAndTrees) {
  std::vector<Trial> trials;
  using Type = ParamSpec::Type;
  const MaskSpec prefix =
      custom("kv_idx <= q_idx || kv_idx < p.prefix[b] * 60", {{"prefix", Type::kI32Array}});
  trials.push_back({lists_spec(64, prefix), {{{150, 150}, {300, 300}}}});
  const MaskSpec documents =
      custom("p.doc[q_idx] == p.doc[kv_idx] || kv_idx / 100 == 1", {{"doc", Type::kI32Array}});
  trials.push_back(
      {lists_spec(64, tree(Kind::kAnd, {mask_of(Kind::kCausal), documents})), {{{150}, {300}}}});
  trials.push_back({lists_spec(64, tree(Kind::kOr, {mask_of(Kind::kSlidingWindow),
                                                    custom("kv_idx / 64 % 3 == 1")})),
                    {{{150}, {520}}}});
  expect_passes(some_of(trials, 2));
}

// More than 32 tiles: runs of them are passed over.
TEST_F(Sm90Lists, ManyTiles) {
  expect_passes(lists_spec(64, custom("kv_idx < 3 || q_idx - kv_idx < 50 || kv_idx / 64 == 40")),
                {{{20}, {9000}}});
}

// A window that the expression says costs the steps of a launch with as many keys.
TEST_F(Sm90Lists, HiddenTilesAreNotLoaded) {
  const auto kernel = compiled(lists_spec(64, custom("kv_idx <= q_idx && q_idx - kv_idx < 100")));
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(kernel->generated.plan.sm90->block_sparse);
  std::vector<std::uint64_t> steps;
  for (const std::int64_t keys : {400, 3000}) {
    const auto problem = problem_of(kernel->generated.plan.spec, {{64}, {keys}});
    ASSERT_TRUE(problem);
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
    ASSERT_TRUE(done);
    expect_right(*problem, *done);
    steps.push_back(done->thread_steps);
  }
  EXPECT_LT(steps[1], steps[0] + steps[0] / 10);
}

// What a mask shows of a tile is known on the device alone, and CTAs take their tiles: each once
// (a second store of its O is a finding), whatever the number of CTAs, and the counters are zero
// again. A launch without them deals the tiles.
TEST_F(Sm90Lists, TilesAreDynamic) {
  const AttentionSpec spec = with_group(lists_spec(64, custom(kSinksAndWindow)), 6, 2);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  EXPECT_TRUE(kernel->generated.plan.sm90->dynamic_schedule);
  auto problem = problem_of(spec, {{300, 300}, {400, 400}});
  ASSERT_TRUE(problem);
  problem->tensors["tile_counters"] = verify::make_tensor(Dtype::kI32, {4});
  const auto reference = reference_of(*problem);
  ASSERT_TRUE(reference);
  for (const bool dealt : {true, false}) {
    for (const int sm_count : some_of<int>({2, 7, 1, 5}, 2)) {
      SCOPED_TRACE(sm_count);
      auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      for (KernelArgument& argument : sequence.launches.at(0).args) {
        auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value);
        if (dealt && pointer != nullptr && pointer->buffer == "tile_counters") *pointer = {};
      }
      for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
        const auto done = run(*kernel, *problem, sequence, seed);
        ASSERT_TRUE(done);
        expect_right(*problem, *reference, *done);
        EXPECT_EQ(done->others.at("tile_counters"), problem->tensors.at("tile_counters").bytes);
      }
    }
  }
}

TEST_F(Sm90Lists, OnlyWhereTheMaskDecides) {
  const auto plan_of = [](const MaskSpec& mask) {
    return plan(*ResolvedSpec::make(lists_spec(64, mask)))->sm90->block_sparse;
  };
  EXPECT_TRUE(plan_of(custom("kv_idx < q_idx")));
  // The causal mask, whoever says it.
  EXPECT_FALSE(plan_of(custom("kv_idx <= q_idx")));
  EXPECT_FALSE(plan_of(mask_of(Kind::kCausal)));
  // The list is a map's there (maps_test.cpp).
  EXPECT_TRUE(
      plan_of(custom("p.doc[q_idx] == p.doc[kv_idx]", {{"doc", ParamSpec::Type::kI32Array}})));
}

}  // namespace
}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// Launches of sm_100a plans: grids, tensor maps, partitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "../one_launch.h"
#include "plan/plan_launch.h"
#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

std::int32_t int_argument(const KernelPlan& plan, const LaunchRecipe& recipe,
                          const std::string& name) {
  for (std::size_t i = 0; i < plan.main().parameters.size(); ++i) {
    if (plan.main().parameters[i].name == name)
      return std::get<std::int32_t>(recipe.args.at(i).value);
  }
  ADD_FAILURE() << name;
  return -1;
}

// Parts of the keys are work for SMs that have none; few parts, because each costs a merge.
TEST(Sm100Launch, PartitionsFillTheSms) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 64;
  spec.num_partitions = 0;
  const auto partitions = [&](int batch, int kv_len, int q_len = 1) {
    LaunchShapes shapes;
    shapes.batch = batch;
    shapes.q_len = q_len;
    shapes.kv_len = kv_len;
    return sm100_partitions(plan_of(spec), shapes, {.sm_count = 148});
  };
  // 8 tiles a sequence.
  EXPECT_EQ(partitions(1, 128), 1);
  EXPECT_EQ(partitions(1, 0), 1);
  EXPECT_EQ(partitions(256, 8192), 1);
  EXPECT_GE(partitions(1, 32768), 12);
  EXPECT_LE(partitions(1, 32768), 18);
  EXPECT_EQ(partitions(1 << 30, 1 << 30, 1 << 20), 1);
  spec.num_partitions = 7;
  EXPECT_EQ(partitions(256, 8192), 7);
  spec.num_partitions = 1;
  EXPECT_EQ(partitions(1, 32768), 1);
}

// A CTA per SM finds its parts itself.
TEST(Sm100Launch, PartitionsAreWorkTilesAndWorkspace) {
  AttentionSpec spec = dense(128);
  spec.num_partitions = 3;
  spec.sink = true;
  const KernelPlan plan = plan_of(spec);
  ASSERT_EQ(plan.kernels.size(), 2U);
  EXPECT_TRUE(plan.main().overlaps);
  for (const int sm_count : {148, 1000}) {
    const LaunchSequence sequence = launch_of_three_parts(plan, sm_count);
    ASSERT_EQ(sequence.launches.size(), 2U);
    EXPECT_EQ(sequence.launches[0].grid[0], std::min(2U * 32 * 3, static_cast<unsigned>(sm_count)));
    EXPECT_EQ(int_argument(plan, sequence.launches[0], "partitions"), 3);
  }
  // 2^17 x 32 x 128 tiles fit, and three times as many do not.
  expect_too_many(plan, 1 << 17, 1 << 15);
}

// A row's bits are its own: every work tile has two query tiles, a warpgroup each.
TEST(Sm100Launch, PartitionsOfFixedKeysAreWholeTiles) {
  for (const auto& [depth, keys, tile] :
       {std::tuple{128, 512, 128}, {128, 192, 96}, {64, 64, 64}, {192, 320, 64}, {64, 320, 64}}) {
    SCOPED_TRACE(keys);
    AttentionSpec spec = dense(depth);
    spec.partition_keys = keys;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported) << plan.reason;
    EXPECT_EQ(plan.sm100->variants.front().BN, tile);
    EXPECT_EQ(plan.sm100->variants.front().num_qo, 2);
    EXPECT_FALSE(plan.sm100->can_switch_to_1q);
    EXPECT_EQ(constants_of(plan).at("kPartitionTiles"), std::to_string(keys / tile));
    LaunchShapes shapes;
    shapes.q_len = 1;
    shapes.kv_len = 2 * keys + 1;
    EXPECT_EQ(sm100_partitions(plan, shapes, {.sm_count = 1}), 3);
    shapes.kv_len = 0;
    EXPECT_EQ(sm100_partitions(plan, shapes, {}), 1);
  }
  AttentionSpec spec = dense(128);
  spec.partition_keys = 100;
  EXPECT_NE(plan_of(spec).reason.find("multiples of 64"), std::string::npos);
  spec.partition_keys = 128;
  PlanOptions one;
  one.num_qo = 1;
  EXPECT_NE(plan_of(spec, one).reason.find("num_qo is 1"), std::string::npos);
}

TEST(Sm100Launch, ShortOrFewPromptsTakeOneQueryTile) {
  const KernelPlan plan = plan_of(dense(128));  // 32 heads
  struct {
    std::int32_t batch, q_len, one_query, m_tiles;
  } const cases[] = {{8, 128, 1, 1},   // a tile's rows
                     {8, 129, 0, 1},   // 256 tiles of 256 rows
                     {1, 512, 1, 4},   // 64 tiles of 256 rows: less than half of 148 SMs
                     {1, 513, 0, 3},   // 96
                     {2, 512, 0, 2}};  // 128
  for (const auto& c : cases) {
    const LaunchRecipe recipe = launch_of(plan, c.batch, c.q_len, 1000);
    EXPECT_EQ(int_argument(plan, recipe, "one_query"), c.one_query) << c.batch << " " << c.q_len;
    EXPECT_EQ(int_argument(plan, recipe, "m_tiles"), c.m_tiles) << c.batch << " " << c.q_len;
    EXPECT_EQ(int_argument(plan, recipe, "total_tiles"), c.m_tiles * 32 * c.batch);
  }
  PlanOptions one;
  one.num_qo = 1;
  const KernelPlan one_tile = plan_of(dense(128), one);
  for (const KernelParameter& parameter : one_tile.main().parameters) {
    EXPECT_NE(parameter.name, "one_query");
  }
}

TEST(Sm100Launch, FusedHeadsShareATile) {
  AttentionSpec spec = dense(128);
  spec.group = 8;
  const KernelPlan plan = plan_of(spec);
  const LaunchRecipe recipe = launch_of(plan, 3, 100, 1000);
  EXPECT_EQ(int_argument(plan, recipe, "total_heads"), 3 * 4);
  EXPECT_EQ(int_argument(plan, recipe, "m_tiles"), 7);  // of 16 positions: 12 tiles of 32 are few
  const TensorMapDescription& q = recipe.tensor_maps.at(0);
  EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{128, 8, 4, 100, 3}));
  EXPECT_EQ(q.strides, (std::vector<std::uint64_t>{256, 2048, 8192, 819200}));
  EXPECT_EQ(q.box, (std::vector<std::uint32_t>{64, 8, 1, 16, 1}));
}

TEST(Sm100Launch, CausalTilesComeOneACtaAndHeadsInSections) {
  AttentionSpec spec = dense(128);
  const KernelPlan null_plan = plan_of(spec);
  EXPECT_EQ(launch_of(null_plan, 1, 8192, 8192).grid[0], 148U);
  spec.mask.kind = MaskSpec::Kind::kCausal;
  const KernelPlan plan = plan_of(spec);
  const LaunchRecipe recipe = launch_of(plan, 1, 8192, 8192);
  EXPECT_EQ(recipe.grid[0], 32U * 32U);
  // 8192 keys are 4 MiB a head: twelve heads, eight as a power of two.
  EXPECT_EQ(int_argument(plan, recipe, "section_heads"), 8);
  EXPECT_EQ(int_argument(plan, launch_of(plan, 1, 300, 0), "section_heads"), 32);
}

// CTAs that walk tiles get like shares of one section. Few of them share the keys of many heads:
// these fit L2 all the same.
TEST(Sm100Launch, WhereManyCtasShareKeysTheyWalkOneSection) {
  Tuning walks;
  walks.rows.push_back({{}, {{"persistent", 1}}});
  // 16384 keys are 8 MiB a head of K and V: six of them, four as a power of two. A group of three
  // is not fused: 18 of its heads.
  for (const auto& [heads, group, fitting, all] : {std::tuple{32, 1, 4, 128},
                                                   {32, 2, 4, 64},
                                                   {32, 4, 4, 32},
                                                   {32, 8, 4, 16},
                                                   {24, 3, 16, 96}}) {
    SCOPED_TRACE(group);
    AttentionSpec spec = dense(128);
    spec.num_q_heads = heads;
    spec.group = group;
    spec.mask.kind = MaskSpec::Kind::kCausal;
    const auto section_heads = [&](const Tuning* tuning) {
      const KernelPlan plan = plan_of(spec, {}, tuning);
      return int_argument(plan, launch_of(plan, 4, 16384, 16384), "section_heads");
    };
    EXPECT_EQ(section_heads(nullptr), fitting);
    EXPECT_EQ(section_heads(&walks), 4 * heads / group <= 148 / 4 ? all : fitting);
  }
}

TEST(Sm100Launch, PagesAreATensorOfTheirOwn) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 16;
  const KernelPlan plan = plan_of(spec);
  LaunchShapes shapes;
  shapes.batch = 3;
  shapes.q_len = 1;
  shapes.kv_len = 1000;
  shapes.num_pages = 77;
  shapes.max_pages = 63;
  const auto recipe = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(recipe) << recipe.error().to_string();
  const TensorMapDescription& k = recipe->tensor_maps.at(1);
  EXPECT_EQ(k.dims, (std::vector<std::uint64_t>{128, 8, 16, 77}));
  EXPECT_EQ(k.strides, (std::vector<std::uint64_t>{256, 2048, 32768}));
  EXPECT_EQ(k.box, (std::vector<std::uint32_t>{64, 1, 16, 1}));
  EXPECT_EQ(int_argument(plan, *recipe, "max_pages"), 63);
  EXPECT_EQ(int_argument(plan, *recipe, "one_query"), 1);
  // Sequences differ in length: no CTA has a second tile.
  EXPECT_EQ(recipe->grid[0], 3U * 8U);
  shapes.max_pages = 62;
  const auto few = one_launch(plan, shapes, {}, {}, {});
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().field, "max_pages");
}

// K's rope part has one head, which is every head's; both have strides of their own.
TEST(Sm100Launch, RopePartsOfTheirOwnTypeAreTensors) {
  AttentionSpec spec = dense(192, Dtype::kE4m3);
  spec.ov_depth = 128;
  spec.mla = Mla::kPrefill;
  spec.rope_dtype = Dtype::kBf16;
  const KernelPlan plan = plan_of(spec);
  ASSERT_TRUE(plan.supported) << plan.reason;
  using Numbers = std::vector<std::uint64_t>;
  LaunchShapes shapes;
  shapes.batch = 3;
  shapes.q_len = 300;
  shapes.kv_len = 1000;
  const auto map_of = [&](std::string_view name) {
    const LaunchRecipe recipe = one_launch(plan, shapes, {}, {}, {}).value();
    for (const TensorMapDescription& map : recipe.tensor_maps) {
      if (map.name == name) return map;
    }
    ADD_FAILURE() << name;
    return TensorMapDescription();
  };
  EXPECT_EQ(map_of("q_map").dims, (Numbers{128, 32, 300, 3}));
  EXPECT_EQ(map_of("k_map").dims, (Numbers{128, 32, 1000, 3}));
  EXPECT_EQ(map_of("q_rope_map").buffer, "q_rope");
  EXPECT_EQ(map_of("q_rope_map").dims, (Numbers{64, 32, 300, 3}));
  EXPECT_EQ(map_of("q_rope_map").strides, (Numbers{128, 4096, 300 * 4096}));
  EXPECT_EQ(map_of("q_rope_map").dtype, Dtype::kBf16);
  EXPECT_EQ(map_of("k_rope_map").buffer, "k_rope");
  EXPECT_EQ(map_of("k_rope_map").dims, (Numbers{64, 1, 1000, 3}));
  EXPECT_EQ(map_of("k_rope_map").strides, (Numbers{128, 128, 128000}));
  // The rope part of rows of 576 elements.
  shapes.k_rope = {.batch = 64000, .row = 576};
  EXPECT_EQ(map_of("k_rope_map").strides, (Numbers{128, 1152, 128000}));
  shapes.k_rope.row = 577;
  EXPECT_EQ(one_launch(plan, shapes, {}, {}, {}).error().field, "k_rope.row");
  shapes.k_rope = {};
  shapes.q_rope.head = 4;
  EXPECT_EQ(one_launch(plan, shapes, {}, {}, {}).error().field, "q_rope.head");
  // Where there are no keys, their maps view Q.
  shapes.q_rope = {};
  shapes.kv_len = 0;
  EXPECT_EQ(map_of("k_rope_map").buffer, "q");
}

TEST(Sm100Launch, ARaggedBatchHasNoMoreTilesThanItsRowsFill) {
  AttentionSpec spec = dense(128);
  spec.ragged = true;
  spec.num_partitions = 1;
  const KernelPlan plan = plan_of(spec);
  LaunchShapes shapes;
  shapes.batch = 100;
  shapes.q_len = 4096;
  shapes.kv_len = 4096;
  shapes.total_q = 4096 + 99;  // a prompt among decodes
  const auto recipe = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(recipe) << recipe.error().to_string();
  // 16 tiles of 256 rows and 99 of one: a sequence wastes 255 rows at most.
  const std::int64_t bound = (shapes.total_q + 100 * 255) / 256;
  EXPECT_EQ(bound, 115);
  EXPECT_EQ(recipe->grid[0], 32U * bound);
  EXPECT_EQ(recipe->tensor_maps.at(0).dims, (std::vector<std::uint64_t>{128, 32, 4195}));
  EXPECT_EQ(recipe->tensor_maps.at(1).dims, (std::vector<std::uint64_t>{128, 32, 4096, 100}));
  for (const std::int32_t wrong : {0, 4095, 409601}) {
    shapes.total_q = wrong;
    const auto bad = one_launch(plan, shapes, {}, {}, {});
    ASSERT_FALSE(bad) << wrong;
    EXPECT_EQ(bad.error().field, "total_q");
  }
  shapes.q_len = shapes.total_q = 0;
  const auto none = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->grid[0], 0U);
}

TEST(Sm100Launch, NothingToDoIsAnEmptyGrid) {
  const KernelPlan plan = plan_of(dense(64));
  EXPECT_EQ(launch_of(plan, 0, 5, 5).grid[0], 0U);
  EXPECT_EQ(launch_of(plan, 1, 0, 5).grid[0], 0U);
}

// A CTA per SM takes tiles, and there is room for two parts of each where one may be cut.
TEST(Sm100Launch, ARaggedBatchIsCutOnTheDevice) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 16;
  spec.ragged = true;
  const KernelPlan plan = plan_of(spec);
  EXPECT_TRUE(plan.sm100->cuts && plan.sm100->published);
  EXPECT_EQ(plan.partials.cut_rows, 256);
  LaunchShapes shapes;
  shapes.batch = 40;
  shapes.q_len = 512;
  shapes.total_q = 1100;
  shapes.num_pages = shapes.max_pages = 1000;
  const auto launches = [&](std::int32_t kv_len, const DeviceShape& device) {
    shapes.kv_len = kv_len;
    return *plan_launch(plan, shapes, {}, {}, device);
  };
  const LaunchSequence longer = launches(16000, {.sm_count = 148});
  ASSERT_EQ(longer.launches.size(), 2U);
  EXPECT_EQ(longer.launches[0].grid[0], 148U);
  EXPECT_EQ(int_argument(plan, longer.launches[0], "partitions"), 148);
  EXPECT_EQ(int_argument(plan, longer.launches[0], "one_query"), 0);
  constexpr std::int64_t kSlots = 2 * 148 * 256;
  EXPECT_EQ(longer.workspaces.at(1).bytes, kSlots * 128 * 4);
  EXPECT_EQ(longer.workspaces.at(2).bytes, 4 * (kSlots + 148 * 257));
  EXPECT_EQ(launches(2816, {.sm_count = 148}).launches.size(), 2U);
  EXPECT_EQ(launches(2800, {.sm_count = 148}).launches.size(), 2U);
  EXPECT_EQ(launches(2688, {.sm_count = 148}).launches.size(), 1U);
  // What is not split takes one query tile where tiles are few.
  shapes.batch = 2;
  shapes.q_len = 200;
  shapes.total_q = 300;
  EXPECT_EQ(int_argument(plan, launches(2000, {.sm_count = 148}).launches[0], "one_query"), 1);
}

// Decodes without offsets: slots have room for their rows, and no tile counters.
TEST(Sm100Launch, DecodesAreDealtOut) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 16;
  spec.max_q_len = 2;
  spec.num_partitions = 0;
  const KernelPlan plan = plan_of(spec);
  EXPECT_TRUE(plan.sm100->cuts);
  LaunchShapes shapes;
  shapes.batch = 40;
  shapes.q_len = 2;
  shapes.num_pages = shapes.max_pages = 1000;
  const auto launches = [&](std::int32_t kv_len) {
    shapes.kv_len = kv_len;
    return *plan_launch(plan, shapes, {}, {}, {.sm_count = 148});
  };
  const LaunchSequence longer = launches(16000);
  ASSERT_EQ(longer.launches.size(), 2U);
  EXPECT_EQ(longer.launches[0].grid[0], 148U);
  EXPECT_EQ(int_argument(plan, longer.launches[0], "partitions"), 148);
  constexpr std::int64_t kSlots = 2 * 148 * 2 * 4;
  EXPECT_EQ(longer.workspaces.at(1).bytes, kSlots * 128 * 4);
  EXPECT_EQ(longer.workspaces.at(2).bytes, 4 * (kSlots + 148 * 9));
  EXPECT_EQ(launches(1000).launches.size(), 1U);
  // Of few sequences short ones are cut, too.
  shapes.batch = 2;
  EXPECT_EQ(launches(1000).launches.size(), 2U);
  // As many parts as CTAs, or one.
  LaunchSequence told;
  const PartitionChoice fewer{3, 3};
  const Status status = plan_launch_in_parts(plan, shapes, {}, {}, {.sm_count = 148}, fewer, told);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().field, "num_partitions");
  spec.max_q_len = 0;
  EXPECT_FALSE(plan_of(spec).sm100->cuts);
  spec.max_q_len = 33;  // with four heads 132 rows
  EXPECT_FALSE(plan_of(spec).sm100->cuts);
}

TEST(Sm100Launch, WhatIsNotCut) {
  AttentionSpec spec = dense(128);
  spec.ragged = true;
  const auto cuts = [](const AttentionSpec& one) { return plan_of(one).sm100->cuts; };
  EXPECT_TRUE(cuts(spec));
  for (const int partitions : {1, 3}) {
    AttentionSpec fixed = spec;
    fixed.num_partitions = partitions;
    EXPECT_FALSE(cuts(fixed));
  }
  AttentionSpec keys = spec;
  keys.partition_keys = 128;
  EXPECT_FALSE(cuts(keys));
  AttentionSpec block_mask = spec;
  block_mask.mask.kind = MaskSpec::Kind::kMaterialized;
  EXPECT_FALSE(cuts(block_mask));
}

}  // namespace
}  // namespace attnjit

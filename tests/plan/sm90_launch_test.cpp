// SPDX-License-Identifier: Apache-2.0
// Launches of sm_90a's forward kernel: how work is dealt to CTAs, partitions and their workspaces.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../one_launch.h"
#include "plan/launch/row_tiles.h"
#include "plan/plan_launch.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_tiling.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

/// The longest CTA's work over the mean, by the dealing that templates/common/work_tiles.cuh
/// describes: tile `rank` of a head costs `lengths[rank]`, ranks fall in length.
double unevenness(const TileShares& shares, const std::vector<int>& lengths, int heads) {
  const int m_tiles = static_cast<int>(lengths.size());
  const int pairs = (m_tiles + 1) / 2;
  std::vector<double> load(static_cast<std::size_t>(shares.ctas), 0.0);
  std::vector<std::pair<int, int>> left;  // rank, head
  double total = 0;
  for (int unit = 0; unit < heads * pairs; ++unit) {
    const int rank = unit % pairs;
    const int other = 2 * pairs - 1 - rank;  // one past the last where the longest is alone
    for (const int tile : {rank, other}) {
      if (tile >= m_tiles) continue;
      total += lengths[static_cast<std::size_t>(tile)];
      if (unit < shares.paired_units) {
        load[static_cast<std::size_t>(unit % shares.ctas)] +=
            lengths[static_cast<std::size_t>(tile)];
      } else {
        left.emplace_back(tile, unit / pairs);
      }
    }
  }
  std::sort(left.begin(), left.end());
  for (std::size_t i = 0; i < left.size(); ++i) {
    const std::size_t ctas = load.size();
    const std::size_t at = i % ctas;
    load[i / ctas % 2 == 0 ? at : ctas - 1 - at] +=
        lengths[static_cast<std::size_t>(left[i].first)];
  }
  return *std::max_element(load.begin(), load.end()) * shares.ctas / total;
}

TEST(Sm90Launch, SharesOfTilesThatGrowAreEven) {
  struct {
    int heads, rows, tile_m, tile_n;
    double at_most;
  } const cases[] = {{512, 1024, 192, 128, 1.05}, {256, 2048, 192, 128, 1.04},
                     {64, 8192, 192, 128, 1.04},  {32, 16384, 192, 128, 1.04},
                     {256, 1024, 192, 64, 1.10},  {32, 8192, 192, 64, 1.05},
                     {16, 16384, 192, 64, 1.05},  {128, 1024, 128, 64, 1.10},
                     {8, 16384, 128, 64, 1.03},   {3, 100, 128, 128, 1.0}};
  for (const auto& one : cases) {
    const int m_tiles = (one.rows + one.tile_m - 1) / one.tile_m;
    std::vector<int> lengths;
    for (int rank = 0; rank < m_tiles; ++rank) {
      lengths.push_back((one.rows - rank * one.tile_m + one.tile_n - 1) / one.tile_n + 1);
    }
    const TileShares shares = deal_out(true, m_tiles, m_tiles * one.heads, 132);
    EXPECT_EQ(shares.ctas, std::min(132, m_tiles * one.heads));
    EXPECT_EQ(shares.paired_units % shares.ctas, 0);
    EXPECT_LE(shares.paired_units, (m_tiles + 1) / 2 * one.heads);
    EXPECT_LE(unevenness(shares, lengths, one.heads), one.at_most)
        << one.heads << " heads of " << one.rows;
  }
}

TEST(Sm90Launch, PartitionsFillTheSms) {
  AttentionSpec spec = sm90_spec(128);
  spec.page_size = 64;
  spec.num_partitions = 0;
  const auto partitions = [&](int batch, int kv_len, int q_len = 1) {
    const KernelPlan plan = plan_of(spec);
    LaunchShapes shapes;
    shapes.batch = batch;
    shapes.q_len = q_len;
    shapes.kv_len = kv_len;
    return sm90_partitions(plan, shapes, {}).partitions;
  };
  // 2 tiles a sequence; 132 SMs.
  EXPECT_EQ(partitions(66, 8192), 1);
  EXPECT_EQ(partitions(1, 64), 1);
  EXPECT_EQ(partitions(1, 0), 1);
  EXPECT_EQ(partitions(33, 8192), 2);
  EXPECT_EQ(partitions(1, 1 << 20), 64);
  EXPECT_GT(partitions(67, 8192), 1);    // one would leave most SMs idle in the second round
  EXPECT_EQ(partitions(1056, 8192), 1);  // whole rounds
  EXPECT_EQ(partitions(1 << 30, 1 << 30, 1 << 20), 1);
  spec.num_partitions = 7;
  EXPECT_EQ(partitions(66, 8192), 7);
  spec.num_partitions = 1;
  EXPECT_EQ(partitions(1, 8192), 1);
}

// The numbers of parts that took the least time on an H200, or within 3 % of it.
TEST(Sm90Launch, PartitionsOfDecodes) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_q_heads = 32;
  spec.num_partitions = 0;
  spec.max_q_len = 1;
  const struct {
    int batch, kv_len, least, most;
  } cases[] = {{1, 1024, 6, 8},   {1, 8192, 11, 16}, {1, 32768, 16, 22}, {8, 1024, 1, 2},
               {8, 8192, 2, 4},   {8, 32768, 4, 4},  {64, 1024, 1, 1},   {64, 8192, 1, 1},
               {256, 1024, 1, 1}, {256, 32768, 1, 1}};
  const KernelPlan plan = plan_of(spec);
  for (const auto& one : cases) {
    LaunchShapes shapes;
    shapes.batch = one.batch;
    shapes.q_len = 1;
    shapes.kv_len = one.kv_len;
    const int parts = sm90_partitions(plan, shapes, {}).partitions;
    EXPECT_GE(parts, one.least) << one.batch << " x " << one.kv_len;
    EXPECT_LE(parts, one.most) << one.batch << " x " << one.kv_len;
  }
}

// Of decodes of sequences that differ in length the device finds whether to deal out stream-K
// ranges, where that may gain something: of several sequences, and where a launch takes long beside
// a merge.
TEST(Sm90Launch, DecodesMayDealOutRuns) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_q_heads = 32;
  spec.page_size = 64;
  spec.num_partitions = 0;
  spec.max_q_len = 1;
  const KernelPlan plan = plan_of(spec);
  EXPECT_TRUE(plan.sm90->head_stream_k());
  for (const PlannedKernel& kernel : plan.kernels) {
    EXPECT_TRUE(std::any_of(
        kernel.constants.begin(), kernel.constants.end(),
        [](const ConfigConstant& one) { return one.name == "kStreamK" && one.value == "true"; }));
  }
  const auto parts = [&](int batch, int kv_len) {
    LaunchShapes shapes;
    shapes.batch = batch;
    shapes.q_len = 1;
    shapes.kv_len = kv_len;
    const PartitionChoice choice = sm90_partitions(plan, shapes, {.sm_count = 132});
    return std::pair(choice.team, choice.partitions);
  };
  for (const auto& [batch, kv_len] : {std::pair(32, 8192), {16, 4096}, {8, 32768}, {1024, 8192}}) {
    EXPECT_EQ(parts(batch, kv_len), std::pair(8, 264));
  }
  EXPECT_EQ(parts(64, 1024), std::pair(0, 1));  // short sequences
  EXPECT_EQ(parts(8, 1024).first, 0);
  EXPECT_EQ(parts(1, 32768).first, 0);

  const auto deals = [&](auto change) {
    AttentionSpec other = spec;
    change(other);
    return plan_of(other).sm90->stream_k;
  };
  EXPECT_TRUE(deals([](AttentionSpec& one) { one.ragged = true; }));
  EXPECT_TRUE(deals([](AttentionSpec& one) { one.page_size = 1; }));
  EXPECT_FALSE(deals([](AttentionSpec& one) { one.num_partitions = 4; }));
  EXPECT_FALSE(deals([](AttentionSpec& one) { one.max_q_len = 0; }));
  EXPECT_FALSE(deals([](AttentionSpec& one) { one.page_size = 0; }));
  EXPECT_FALSE(deals([](AttentionSpec& one) {
    one.mask.kind = MaskSpec::Kind::kCustom;
    one.mask.custom.name = "m";
    one.mask.custom.code = "q_idx > kv_idx";
  }));
}

// Of a window or a chunk a launch shares out what it lets a row see, however long sequences are: a
// small one has no parts, and so no merge.
TEST(Sm90Launch, SmallWindowsHaveNoMerge) {
  const auto launches = [](const MaskSpec& mask, bool ragged, std::vector<double> numbers = {}) {
    AttentionSpec spec = sm90_spec(64);
    spec.num_q_heads = 64;
    spec.group = 8;
    spec.page_size = 16;
    spec.mask = mask;
    spec.ragged = ragged;
    spec.num_partitions = 0;
    if (!ragged) spec.max_q_len = 1;
    LaunchShapes shapes;
    shapes.batch = 3;
    shapes.q_len = shapes.total_q = ragged ? 300 : 1;
    if (!ragged) shapes.total_q = 0;
    shapes.kv_len = 1 << 17;
    shapes.max_pages = (1 << 17) / 16;
    shapes.num_pages = 3 * shapes.max_pages;
    const auto sequence =
        plan_launch(plan_of(spec), shapes, {.values = std::move(numbers)}, {}, {.sm_count = 132});
    EXPECT_TRUE(sequence) << (sequence ? "" : sequence.error().to_string());
    return sequence ? sequence->launches.size() : 0;
  };
  MaskSpec causal;
  causal.kind = MaskSpec::Kind::kCausal;
  MaskSpec window;
  window.kind = MaskSpec::Kind::kSlidingWindow;
  MaskSpec chunk;
  chunk.kind = MaskSpec::Kind::kChunked;
  const auto both = [&](const MaskSpec& other, MaskSpec::Kind kind) {
    MaskSpec mask;
    mask.kind = kind;
    mask.of = {causal, other};
    return mask;
  };
  for (const bool ragged : {false, true}) {
    SCOPED_TRACE(ragged);
    EXPECT_EQ(launches(causal, ragged), 2U);
    EXPECT_EQ(launches(window, ragged, {128}), 1U);
    EXPECT_EQ(launches(window, ragged, {1 << 16}), 2U);
    window.window = 128;
    EXPECT_EQ(launches(window, ragged), 1U);
    EXPECT_EQ(launches(window, ragged, {1 << 16}), 2U);  // what a launch gives counts,
    window.constant = true;
    EXPECT_EQ(launches(window, ragged, {1 << 16}), 1U);  // but not in the place of a constant
    EXPECT_EQ(launches(both(window, MaskSpec::Kind::kOr), ragged), 2U);
    chunk.chunk = 256;
    EXPECT_EQ(launches(both(chunk, MaskSpec::Kind::kAnd), ragged), 1U);
    // Of two numbers each has its own.
    window.constant = false;
    window.window_right = -1;
    EXPECT_EQ(launches(window, ragged), 2U);
    EXPECT_EQ(launches(both(window, MaskSpec::Kind::kAnd), ragged), 1U);
    EXPECT_EQ(launches(both(window, MaskSpec::Kind::kAnd), ragged, {1 << 16}), 2U);
    window = {};
    window.kind = MaskSpec::Kind::kSlidingWindow;
    chunk = {};
    chunk.kind = MaskSpec::Kind::kChunked;
  }
}

// Dense launches that choose deal out stream-K ranges where whole tiles leave SMs idle: all CTAs
// work, and workspace is theirs, however many rows there are.
TEST(Sm90Launch, UnevenTilesAreDealtOutInRuns) {
  AttentionSpec spec = sm90_spec(128);
  spec.group = 1;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  spec.num_partitions = 0;
  const auto shapes_of = [](int rows) {
    LaunchShapes shapes;
    shapes.q_len = shapes.kv_len = rows;
    return shapes;
  };
  const auto parts = [&](int heads, int rows) {
    spec.num_q_heads = heads;
    return sm90_partitions(plan_of(spec), shapes_of(rows), {}).partitions;
  };
  EXPECT_EQ(parts(1, 32000), 132);
  EXPECT_EQ(parts(1, 20000), 132);
  EXPECT_EQ(parts(2, 16000), 1);  // the small-tile variant's are even enough
  const KernelPlan plan = plan_of(spec);
  const auto whole = one_launch(plan, shapes_of(16000), {}, {});
  ASSERT_TRUE(whole.ok()) << whole.error().to_string();
  EXPECT_EQ(number_of(plan, *whole, LaunchNumber::kSmallTile), 1);
  EXPECT_EQ(parts(64, 4096), 1);
  EXPECT_EQ(parts(1, 100), 1);
  EXPECT_EQ(parts(16, 1 << 29), 1);
  spec.num_q_heads = 1;
  const auto sequence = plan_launch(plan_of(spec), shapes_of(32000), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  ASSERT_EQ(sequence->launches.size(), 2U);
  EXPECT_EQ(sequence->launches[0].grid[0], 132U);
  EXPECT_EQ(sequence->workspaces.at(1).bytes, std::int64_t{2} * 132 * 192 * 128 * 4);
}

TEST(Sm90Launch, RowsOverManyKeysAreDealtOutInRuns) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_partitions = 0;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  const auto parts = [&](int heads, int group, int rows, int keys) {
    spec.num_q_heads = heads;
    spec.group = group;
    const KernelPlan plan = plan_of(spec);
    const std::int32_t found = launch_partitions(plan, shapes_of(1, rows, keys));
    EXPECT_EQ(found, sm90_partitions(plan, shapes_of(1, rows, keys), {}).partitions);
    return found;
  };
  EXPECT_EQ(parts(28, 7, 2048, 40960), 132);
  EXPECT_EQ(parts(32, 4, 4096, 100000), 1);  // tiles at the same keys share L2
  EXPECT_EQ(parts(32, 4, 128, 8192), 120);   // five for each of 24 tiles
  EXPECT_EQ(parts(32, 4, 2048, 2048), 1);
  EXPECT_EQ(parts(32, 4, 16384, 100000), 1);
  EXPECT_EQ(launch_partitions(plan_of(spec), shapes_of(0, 128, 8192)), 1);
  spec.num_partitions = 1;
  EXPECT_EQ(parts(32, 4, 128, 8192), 1);
  spec.qk_depth = 4096;  // not served
  EXPECT_EQ(launch_partitions(plan_of(spec), shapes_of(1, 128, 8192)), 1);
}

// Tiles that the choice of partitions compared are the launch's: those that it finds by itself
// where it is told how many partitions there are.
TEST(Sm90Launch, TheChoiceHandsItsTilesOn) {
  AttentionSpec spec = sm90_spec(128);
  spec.group = 1;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  spec.num_partitions = 0;
  for (const auto& [heads, rows] : {std::pair{2, 16000}, {64, 4096}, {1, 100}, {96, 300}}) {
    spec.num_q_heads = heads;
    const KernelPlan plan = plan_of(spec);
    LaunchShapes shapes;
    shapes.q_len = shapes.kv_len = rows;
    const PartitionChoice choice = sm90_partitions(plan, shapes, {});
    EXPECT_EQ(choice.partitions, 1);
    EXPECT_TRUE(choice.whole.has_value());
    LaunchSequence told;
    ASSERT_TRUE(plan_launch_in_parts(plan, shapes, {}, {}, {}, PartitionChoice{1, 1}, told).ok());
    const auto found = plan_launch(plan, shapes, {}, {});
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(*found, told) << heads << " heads of " << rows;
  }
}

// Of many heads, where 256 rows are two tiles of the small-tile variant for one and a third of the
// first's.
TEST(Sm90Launch, ShortSequencesTakeTheSecondBody) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_q_heads = 16;
  spec.group = 1;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  spec.num_partitions = 0;
  const KernelPlan plan = plan_of(spec);
  for (const auto& [rows, low] : {std::pair{256, 1}, {384, 0}, {4096, 0}}) {
    LaunchShapes shapes;
    shapes.batch = 32;
    shapes.q_len = shapes.kv_len = rows;
    const auto launch = one_launch(plan, shapes, {}, {});
    ASSERT_TRUE(launch.ok()) << launch.error().to_string();
    EXPECT_EQ(number_of(plan, *launch, LaunchNumber::kSmallTile), low) << rows;
  }
}

TEST(Sm90Launch, RunsAreOfDenseKernelsThatChoose) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_partitions = 0;
  const KernelPlan runs = plan_of(spec);
  EXPECT_TRUE(runs.sm90->stream_k);
  for (const PlannedKernel& kernel : runs.kernels) {
    EXPECT_TRUE(std::any_of(kernel.constants.begin(), kernel.constants.end(),
                            [](const ConfigConstant& one) { return one.name == "kCuts"; }));
  }
  for (const auto change :
       {+[](AttentionSpec& one) { one.num_partitions = 3; },
        +[](AttentionSpec& one) { one.num_partitions = 1; },
        +[](AttentionSpec& one) { one.page_size = 64; },
        +[](AttentionSpec& one) { one.ragged = true; },
        +[](AttentionSpec& one) { one.max_q_len = 1; },
        +[](AttentionSpec& one) { one.mask.kind = MaskSpec::Kind::kSlidingWindow; },
        +[](AttentionSpec& one) {
          one.mask.kind = MaskSpec::Kind::kCustom;
          one.mask.custom.name = "m";
          one.mask.custom.code = "q_idx > kv_idx";
        }}) {
    AttentionSpec other = spec;
    change(other);
    const KernelPlan plan = plan_of(other);
    EXPECT_FALSE(plan.sm90->stream_k);
    EXPECT_EQ(constants_of(plan).at("kCuts"), plan.sm90->cuts ? "true" : "false");
  }
}

TEST(Sm90Launch, PartitionsAreWorkTilesAndWorkspace) {
  AttentionSpec spec = sm90_spec(128);
  spec.num_partitions = 3;
  spec.sink = true;
  const KernelPlan plan = plan_of(spec);
  ASSERT_EQ(plan.kernels.size(), 2U);
  EXPECT_EQ(constants_of(plan).at("kSplit"), "true");
  const LaunchSequence sequence = launch_of_three_parts(plan, 132);
  ASSERT_EQ(sequence.launches.size(), 2U);
  EXPECT_EQ(sequence.launches[0].grid[0], 2U * 2 * 3);
  // 2^17 x 2 x 1366 tiles fit, and three times as many do not.
  expect_too_many(plan, 1 << 17, 1 << 16);
}

TEST(Sm90Launch, PartitionsOfFixedKeysAreWholeTiles) {
  const struct {
    int depth, keys, tile;
  } cases[] = {{64, 512, 128},  {64, 192, 96},      {96, 192, 96},
               {96, 512, 64},   {128, 320, 80},     {128, 64, 64},
               {192, 2048, 64}, {192, 96 * 64, 96}, {256, 1 << 30, 64}};
  for (const auto& [depth, keys, tile] : cases) {
    SCOPED_TRACE(keys);
    AttentionSpec spec = sm90_spec(depth);
    spec.mask.kind = MaskSpec::Kind::kNull;
    spec.partition_keys = keys;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported) << plan.reason;
    EXPECT_EQ(plan.sm90->BN, tile);
    EXPECT_EQ(constants_of(plan).at("kPartitionTiles"), std::to_string(keys / tile));
    EXPECT_EQ(constants_of(plan).at("kRescaleByRow"), "true");
    LaunchShapes shapes;
    shapes.q_len = 1;
    for (const int partitions : {1, 3}) {
      shapes.kv_len = static_cast<int>(
          std::min<std::int64_t>(std::int64_t{keys} * (partitions - 1) + 1, 1 << 30));
      for (const int sm_count : {1, 132}) {
        EXPECT_EQ(sm90_partitions(plan, shapes, {.sm_count = sm_count}).partitions,
                  keys == 1 << 30 ? 1 : partitions);
      }
    }
    shapes.kv_len = 0;
    EXPECT_EQ(sm90_partitions(plan, shapes, {}).partitions, 1);
  }
  EXPECT_EQ(constants_of(plan_of(sm90_spec(128))).at("kRescaleByRow"), "false");
}

// One partition is written as O and LSE, unless a sink is still to be added: the merge adds it in
// other steps than the attention kernel would.
TEST(Sm90Launch, OnePartitionOfFixedKeysIsMergedWhereThereIsASink) {
  for (const bool sink : {false, true}) {
    AttentionSpec spec = sm90_spec(128);
    spec.partition_keys = 256;
    spec.sink = sink;
    LaunchShapes shapes;
    shapes.q_len = 5;
    shapes.kv_len = 256;
    const Result<LaunchSequence> one = plan_launch(plan_of(spec), shapes, {}, {});
    ASSERT_TRUE(one.ok()) << one.error().to_string();
    EXPECT_EQ(one->launches.size(), sink ? 2U : 1U);
    EXPECT_EQ(one->workspaces.at(1).bytes, sink ? 5 * 8 * 128 * 4 : 0);
    shapes.kv_len = 257;
    const Result<LaunchSequence> two = plan_launch(plan_of(spec), shapes, {}, {});
    ASSERT_TRUE(two.ok()) << two.error().to_string();
    EXPECT_EQ(two->launches.size(), 2U);
    EXPECT_EQ(two->workspaces.at(1).bytes, 2 * 5 * 8 * 128 * 4);
  }
}

// Where one tile reads a head's K and V, nobody comes back for what L2 fetches beside them.
TEST(Sm90Launch, WhatIsReadOnceIsFetchedByTheLine) {
  AttentionSpec spec = sm90_spec(128);
  spec.group = 1;
  const KernelPlan plan = plan_of(spec);
  for (const std::int32_t rows : {128, 400}) {
    LaunchShapes shapes;
    shapes.batch = 100;
    shapes.q_len = shapes.kv_len = rows;
    const auto sequence = plan_launch(plan, shapes, {}, {});
    ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
    for (const TensorMapDescription& map : sequence->launches.front().tensor_maps) {
      EXPECT_EQ(map.l2_bytes, rows == 128 ? 128 : 256) << map.name;
    }
  }
}

TEST(Sm90Launch, SharesOfEvenTilesHaveNoPairs) {
  EXPECT_EQ(deal_out(false, 8, 80, 132).ctas, 80);
  EXPECT_EQ(deal_out(false, 8, 8000, 132).ctas, 132);
  EXPECT_EQ(deal_out(false, 8, 8000, 132).paired_units, 0);
  EXPECT_EQ(deal_out(true, 1, 1 << 30, 0).ctas, 1);
}

}  // namespace
}  // namespace attnjit

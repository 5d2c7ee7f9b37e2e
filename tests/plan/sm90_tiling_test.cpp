// SPDX-License-Identifier: Apache-2.0
// The tiles that sm_90a's launches cut query rows into.
#include "plan/sm90/sm90_tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace attnjit {
namespace {

using Order = QueryTiling::Order;

constexpr int kCtas = 132;

Sm90Rows rows_of(std::int64_t length, std::int64_t heads, bool pair_tiles, int consumers = 3) {
  return {.groups = (length + 63) / 64,
          .heads = heads,
          .keys = static_cast<double>(length),
          .fewer_keys = pair_tiles ? static_cast<double>(length) : 0,
          .pair_tiles = pair_tiles,
          .consumers = consumers,
          .ctas = kCtas};
}

// Of each tile, from the last rows to the first, as the kernel counts them.
std::vector<std::int64_t> heights_of(const QueryTiling& tiling) {
  std::vector<std::int64_t> heights;
  std::int64_t before = 0;
  for (std::int64_t rank = 0; rank < tiling.m_tiles; ++rank) {
    const std::int64_t past = std::max<std::int64_t>(rank + 1 - tiling.first_tiles, 0) +
                              std::max<std::int64_t>(rank + 1 - tiling.second_tiles, 0);
    const std::int64_t after = (rank + 1) * tiling.tile_groups + past * tiling.growth;
    heights.push_back(after - before);
    before = after;
  }
  return heights;
}

void expect_covers(const Sm90Rows& rows) {
  SCOPED_TRACE(testing::Message() << rows.groups << " groups, " << rows.heads << " heads of "
                                  << rows.keys << " keys, pairs " << rows.pair_tiles);
  const QueryTiling tiling = sm90_tiling(rows);
  const std::vector<std::int64_t> heights = heights_of(tiling);
  ASSERT_FALSE(heights.empty());
  std::int64_t all = 0;
  for (const std::int64_t height : heights) {
    EXPECT_GE(height, 1);
    EXPECT_LE(height, rows.consumers);
    all += height;
  }
  EXPECT_GE(all, rows.groups);
  EXPECT_LT(all - heights.back(), rows.groups);
}

TEST(QueryTiling, TilesCoverTheRows) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    Sm90Rows rows = rows_of(1 + random() % (i % 2 == 0 ? 2000 : 40000), 1 + random() % 70,
                            random() % 2 == 0, 1 + static_cast<int>(random() % 3));
    rows.keys = random() % 3 == 0 ? static_cast<double>(random() % 300) : rows.keys;
    rows.fewer_keys = std::min(rows.fewer_keys, rows.keys);
    rows.ctas = random() % 5 == 0 ? static_cast<int>(random() % 9) : kCtas;
    expect_covers(rows);
  }
  expect_covers(rows_of(std::int64_t{1} << 30, 1, false));
  expect_covers(rows_of(std::int64_t{1} << 30, 1, true));
  expect_covers(rows_of(64, 1 << 20, true));
}

// Full tiles of 4 heads of 20,000 rows are 3.2 rounds of the CTAs, and take 4.
TEST(QueryTiling, FewTilesFillWholeRounds) {
  const QueryTiling tiling = sm90_tiling(rows_of(20000, 4, false));
  EXPECT_EQ(tiling.tile_groups, 3);
  EXPECT_EQ(tiling.growth, -1);
  EXPECT_LE(4 * tiling.m_tiles, 4 * kCtas);
  EXPECT_LE(4 * tiling.first_tiles, 2 * kCtas);
  // One round of low tiles, where full ones leave SMs idle.
  EXPECT_EQ(sm90_tiling(rows_of(4096, 1, false)).tile_groups, 1);
  EXPECT_EQ(sm90_tiling(rows_of(8000, 2, false)).tile_groups, 2);
}

// Under a causal mask the last rows' tiles are the longest: they are low.
TEST(QueryTiling, LongTilesAreLow) {
  const QueryTiling tiling = sm90_tiling(rows_of(12000, 2, true));
  EXPECT_EQ(tiling.order, Order::kLongest);
  const std::vector<std::int64_t> heights = heights_of(tiling);
  EXPECT_EQ(heights.front(), 1);
  EXPECT_EQ(heights.back(), 3);
  EXPECT_TRUE(std::is_sorted(heights.begin(), heights.end()));
}

TEST(QueryTiling, ManyTilesAreFull) {
  for (const bool pair_tiles : {false, true}) {
    const QueryTiling tiling = sm90_tiling(rows_of(8192, 64, pair_tiles));
    EXPECT_EQ(tiling.m_tiles, 43);
    EXPECT_EQ(tiling.tile_groups, 3);
    EXPECT_EQ(tiling.first_tiles, 43);
    EXPECT_EQ(tiling.order, pair_tiles ? Order::kPairs : Order::kHeads);
  }
  // Sequences of one or two tiles.
  EXPECT_EQ(sm90_tiling(rows_of(256, 512, true)).order, Order::kHeads);
  Sm90Rows rows = rows_of(4096, 1, false);
  rows.ctas = 0;  // what the launch asks for that splits the keys
  EXPECT_EQ(sm90_tiling(rows).tile_groups, 3);
}

// The model of docs/performance-sm90.md written plainly, for three consumers.
class PlainModel {
 public:
  explicit PlainModel(const Sm90Rows& rows) : rows_(rows) {}

  double time_of(std::int64_t groups, std::int64_t left) const {
    constexpr double kShares[] = {0, 0.66, 0.8, 1};
    const auto count = static_cast<double>(rows_.groups);
    const double keys = rows_.keys - (count - static_cast<double>(left)) / count * rows_.fewer_keys;
    return (std::ceil(keys / rows_.tile_keys) * rows_.tile_keys + 256) * kShares[groups];
  }

  // Tiles are dealt from the longest on, in snake order.
  double busiest_of(const std::vector<std::int64_t>& heights) const {
    const std::int64_t tiles = static_cast<std::int64_t>(heights.size()) * rows_.heads;
    const std::int64_t ctas = std::min<std::int64_t>(tiles, rows_.ctas);
    std::vector<double> loads(static_cast<std::size_t>(ctas));
    std::int64_t left = rows_.groups;
    std::int64_t dealt = 0;
    for (const std::int64_t groups : heights) {
      for (std::int64_t head = 0; head < rows_.heads; ++head, ++dealt) {
        const std::int64_t place = dealt % ctas;
        const std::int64_t cta = dealt / ctas % 2 == 0 ? place : ctas - 1 - place;
        loads[static_cast<std::size_t>(cta)] += time_of(groups, left);
      }
      left -= groups;
    }
    return *std::max_element(loads.begin(), loads.end());
  }

  // Tiles that take `most` at most where a group of rows can, the last rows' first.
  std::vector<std::int64_t> heights_within(double most) const {
    std::vector<std::int64_t> heights;
    std::int64_t left = rows_.groups;
    for (std::int64_t groups = 1; groups <= 3; ++groups) {
      std::int64_t within = 0;
      while (groups < 3 && within < rows_.groups && time_of(groups + 1, within + 1) <= most) {
        ++within;
      }
      for (; left > within; left -= groups) heights.push_back(groups);
    }
    return heights;
  }

 private:
  const Sm90Rows& rows_;
};

// Tilings that are left out of the comparison early are none of the best.
TEST(QueryTiling, TheBestIsThatOfThePlainModel) {
  std::mt19937 random(2);
  int low = 0;
  for (int i = 0; i < 300; ++i) {
    Sm90Rows rows = rows_of(1000 + random() % 20000, 1 + random() % 12, true);
    rows.tile_keys = i % 2 == 0 ? 64 : 80;
    rows.keys += static_cast<double>(random() % 2 * (random() % 8000));
    const std::int64_t full = (rows.groups + 2) / 3;
    if (full * rows.heads >= 3 * kCtas) continue;  // full tiles are even enough
    SCOPED_TRACE(testing::Message() << rows.groups << " groups, " << rows.heads << " heads of "
                                    << rows.keys << " keys");
    const PlainModel model(rows);
    const double even = model.busiest_of(std::vector<std::int64_t>(full, 3));
    double least = even;
    for (int step = 0; step < 8; ++step) {
      const double most = (0.66 + 0.04 * step) * model.time_of(3, rows.groups);
      least = std::min(least, model.busiest_of(model.heights_within(most)));
    }
    const bool worthwhile = least < even * kSm90Worthwhile;
    EXPECT_DOUBLE_EQ(sm90_tiling(rows).time, worthwhile ? least : even);
    if (worthwhile) ++low;
  }
  EXPECT_GT(low, 20);
}

// A head of 32,000 rows is 167 tiles of 500 KV tiles at most, and half of them under a causal mask.
TEST(QueryTiling, RunsShareTheWorkOut) {
  for (const bool pair_tiles : {false, true}) {
    Sm90Rows rows = rows_of(32000, 1, pair_tiles);
    rows.tile_keys = 64;
    const double time = sm90_stream_k_time(rows);
    const double even = 167.0 * 32000 / (pair_tiles ? 2 : 1) / kCtas;
    EXPECT_GT(time, even);
    EXPECT_LT(time, 1.05 * even);
    EXPECT_LT(time, 0.9 * sm90_tiling(rows).time);
  }
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Chooses a launch's query tiles by a small model of the time that the busiest CTA takes.
#include "plan/sm90/sm90_tiling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace attnjit {
namespace {

using Order = QueryTiling::Order;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// std::ceil of numbers of keys and tiles. NOTE: that is a call where SSE4.1 is not asked for, and
/// this a third of a tiling's time.
double whole_from(double number) {
  const auto below = static_cast<double>(static_cast<std::int64_t>(number));
  return below < number ? below + 1 : below;
}

/// The time of a tile of so many groups over some keys; a full one's is the keys' number, and what
/// its begin and end take. Consumers without rows leave their share of the tensor cores to the
/// others, who cannot use all of it. Fitted on an H200: docs/performance-sm90.md.
class TileTimes {
 public:
  explicit TileTimes(const Sm90Rows& rows)
      : shares_(rows.small_tiles      ? kSmallTiles
                : rows.consumers == 3 ? kThreeConsumers
                                      : kTwoConsumers),
        tile_keys_(rows.tile_keys) {}

  double of(std::int64_t groups, double keys) const {
    const double walked = whole_from(keys / tile_keys_) * tile_keys_;
    return (walked + kOverhead) * shares_.at(static_cast<std::size_t>(groups));
  }

  /// About the most keys of a tile that takes no longer than `most`.
  double keys_within(std::int64_t groups, double most) const {
    return most / shares_.at(static_cast<std::size_t>(groups)) - kOverhead;
  }

 private:
  static constexpr double kOverhead = 256;
  using Shares = std::array<double, 4>;  // by the groups of a tile
  static constexpr Shares kThreeConsumers{0, 0.66, 0.8, 1};
  static constexpr Shares kTwoConsumers{0, 1, 1};
  static constexpr Shares kSmallTiles{0, 0.727, 0.727};

  Shares shares_;
  double tile_keys_;
};

/// Tiles of as many groups each, but for the first rows'.
QueryTiling even_tiling(const Sm90Rows& rows, std::int64_t tile_groups) {
  const auto m_tiles = static_cast<std::int32_t>(quotient_up(rows.groups, tile_groups));
  return {.m_tiles = m_tiles,
          .tile_groups = static_cast<std::int32_t>(tile_groups),
          .first_tiles = m_tiles,
          .second_tiles = m_tiles,
          .order = rows.pair_tiles ? Order::kPairs : Order::kHeads};
}

// ---- Rows that see as many keys

/// `m_tiles` tiles that differ by a group at most, the taller ones first.
QueryTiling falling_tiling(const Sm90Rows& rows, std::int64_t m_tiles) {
  const std::int64_t tall = quotient_up(rows.groups, m_tiles);
  const auto count = static_cast<std::int32_t>(m_tiles);
  return {.m_tiles = count,
          .tile_groups = static_cast<std::int32_t>(tall),
          .first_tiles = static_cast<std::int32_t>(rows.groups - m_tiles * (tall - 1)),
          .second_tiles = count,
          .growth = -1};
}

/// CTAs take turns, the tall tiles first.
double falling_time(const Sm90Rows& rows, const QueryTiling& tiling, const TileTimes& times) {
  const std::int64_t rounds = quotient_up(tiling.m_tiles * rows.heads, rows.ctas);
  // Each round a CTA gets the next tile of a head, and so in its turn the one that is not full.
  const std::int64_t missing = tiling.m_tiles * std::int64_t{tiling.tile_groups} - rows.groups;
  if (tiling.first_tiles == tiling.m_tiles && missing > 0) {
    const double full = times.of(tiling.tile_groups, rows.keys);
    const double saved = full - times.of(tiling.tile_groups - missing, rows.keys);
    const std::int64_t whole_turns = rounds / tiling.m_tiles;
    return static_cast<double>(rounds) * full - static_cast<double>(whole_turns) * saved;
  }
  const std::int64_t tall = quotient_up(tiling.first_tiles * rows.heads, rows.ctas);
  const double low = tiling.tile_groups > 1 ? times.of(tiling.tile_groups - 1, rows.keys) : 0;
  return static_cast<double>(tall) * times.of(tiling.tile_groups, rows.keys) +
         static_cast<double>(rounds - tall) * low;
}

QueryTiling best_of_even_rows(const Sm90Rows& rows) {
  // Rounds of the CTAs from which on what the last one wastes is little.
  constexpr std::int64_t kManyRounds = 16;
  // CTAs per head that share K and V in L2, where tiles of one rank are computed together.
  constexpr std::int64_t kSharers = 4;
  const TileTimes times(rows);
  QueryTiling best = even_tiling(rows, rows.consumers);
  best.time = falling_time(rows, best, times);
  if (best.m_tiles * rows.heads >= kManyRounds * rows.ctas) return best;
  double worthwhile = best.time * kSm90Worthwhile;
  const auto try_one = [&](const QueryTiling& tiling) {
    const double time = falling_time(rows, tiling, times);
    if (time >= worthwhile) return;
    best = tiling;
    best.time = worthwhile = time;
  };
  const std::int64_t fewest = best.m_tiles;
  for (std::int64_t groups = rows.consumers - 1; groups > 0; --groups) {
    try_one(even_tiling(rows, groups));
  }
  if (rows.heads * kSharers > rows.ctas) return best;
  const std::int64_t most = std::min(rows.groups, kManyRounds * rows.ctas / rows.heads);
  for (std::int64_t m_tiles = fewest; m_tiles <= most; ++m_tiles) {
    try_one(falling_tiling(rows, m_tiles));
  }
  return best;
}

// ---- Later rows that see more keys

/// The keys that a tile does not see whose last group is the `last`-th from the first rows on.
double missing_keys(const Sm90Rows& rows, std::int64_t last) {
  if (!rows.pair_tiles) return 0;
  return static_cast<double>(rows.groups - last) / static_cast<double>(rows.groups) *
         rows.fewer_keys;
}

/// Tiles that take `most` at most where a group of rows can: low ones where there are many keys.
QueryTiling rising_tiling(const Sm90Rows& rows, double most, const TileTimes& times) {
  const auto groups_within = [&](std::int64_t tile_groups) {
    // The groups, from the first rows on, whose tiles of that height take no longer: about so many
    // as the keys say that a tile may have.
    const auto takes_no_longer = [&](std::int64_t groups) {
      return times.of(tile_groups, rows.keys - missing_keys(rows, groups)) <= most;
    };
    const double missing = rows.keys - times.keys_within(tile_groups, most);
    const double share = rows.fewer_keys > 0 ? missing / rows.fewer_keys : 0;
    const double count = static_cast<double>(rows.groups);
    auto within = static_cast<std::int64_t>(std::clamp(count - share * count, 0.0, count));
    while (within < rows.groups && takes_no_longer(within + 1)) ++within;
    while (within > 0 && !takes_no_longer(within)) --within;
    return within;
  };
  const std::int64_t height = rows.consumers;
  std::int64_t left = rows.groups;
  std::int64_t tiles = 0;
  QueryTiling tiling{.tile_groups = 1, .order = Order::kLongest};
  for (std::int64_t groups = 1; groups < height; ++groups) {
    const std::int64_t low = std::max<std::int64_t>(left - groups_within(groups + 1), 0);
    tiles += quotient_up(low, groups);
    left = std::max<std::int64_t>(left - quotient_up(low, groups) * groups, 0);
    (groups == 1 ? tiling.first_tiles : tiling.second_tiles) = static_cast<std::int32_t>(tiles);
  }
  tiles += quotient_up(left, height);
  tiling.m_tiles = static_cast<std::int32_t>(tiles);
  if (height == 2) tiling.second_tiles = tiling.m_tiles;
  return tiling;
}

/// Memory to work in.
struct Deal {
  std::vector<double> times;  // of a head's tiles
  std::vector<double> loads;  // of the CTAs
};

/// Tiles are dealt from the longest to the shortest, in snake order: what the busiest CTA takes, or
/// `most` where it takes no less. NOTE: a launch of new lengths waits for this, mostly to hear that
/// a tiling is none of the best; so what shows that early comes first.
double rising_time(const Sm90Rows& rows, const QueryTiling& tiling, const TileTimes& times,
                   double most, Deal& deal) {
  const std::int64_t tiles = tiling.m_tiles * rows.heads;
  const std::int64_t ctas = std::clamp<std::int64_t>(tiles, 1, rows.ctas);
  deal.times.clear();
  std::int64_t left = rows.groups;
  double head_time = 0;
  for (std::int32_t rank = 0; rank < tiling.m_tiles; ++rank) {
    const std::int64_t groups = tiling.tile_groups + (rank >= tiling.first_tiles ? 1 : 0) +
                                (rank >= tiling.second_tiles ? 1 : 0);
    const double time = times.of(groups, rows.keys - missing_keys(rows, left));
    if (time >= most) return most;
    left -= groups;
    head_time += time;
    deal.times.push_back(time);
  }
  if (head_time * static_cast<double>(rows.heads) >= most * static_cast<double>(ctas)) return most;
  deal.loads.assign(static_cast<std::size_t>(ctas), 0);
  double busiest = 0;
  std::int64_t dealt = 0;  // in this turn
  bool fro = false;
  for (const double time : deal.times) {
    for (std::int64_t heads = rows.heads; heads > 0;) {
      const std::int64_t count = std::min(heads, ctas - dealt);
      const auto first = deal.loads.begin() + (fro ? ctas - dealt - count : dealt);
      std::for_each(first, first + count,
                    [&](double& load) { busiest = std::max(busiest, load += time); });
      heads -= count;
      dealt += count;
      if (dealt < ctas) continue;
      dealt = 0;
      fro = !fro;
    }
    if (busiest >= most) return most;
  }
  return busiest;
}

/// The time of all full tiles of a head.
double time_of_head(const Sm90Rows& rows, const TileTimes& times) {
  double head_time = 0;
  for (std::int64_t left = rows.groups; left > 0; left -= rows.consumers) {
    const double keys = rows.keys - missing_keys(rows, left);
    head_time += times.of(std::min<std::int64_t>(left, rows.consumers), keys);
  }
  return head_time;
}

QueryTiling best_of_growing_rows(const Sm90Rows& rows) {
  // Rounds of the CTAs from which on full tiles are even enough. The small-tile variant has up to
  // twice the tiles of the first that it is compared with.
  const std::int64_t many_rounds = rows.small_tiles ? 6 : 3;
  // Tiles of a head from which on pairs of them are worth it.
  constexpr std::int32_t kPairedTiles = 3;
  // Tiles of a head up to which those of the small-tile variant may be the better ones.
  constexpr std::int32_t kFewTiles = 4;
  const TileTimes times(rows);
  QueryTiling best = even_tiling(rows, rows.consumers);
  if (best.m_tiles * rows.heads < many_rounds * rows.ctas) {
    const double longest = times.of(rows.consumers, rows.keys);
    Deal deal;
    const double even =
        rising_time(rows, best, times, std::numeric_limits<double>::infinity(), deal);
    double least = even * kSm90Worthwhile;
    QueryTiling last;
    for (int step = 0; step < 8; ++step) {
      const double most = 0.66 + 0.04 * step;  // of the longest tile's time
      const QueryTiling tiling = rising_tiling(rows, most * longest, times);
      if (tiling == last) continue;
      last = tiling;
      const double time = rising_time(rows, tiling, times, least, deal);
      if (time >= least) continue;
      best = tiling;
      least = time;
    }
    best.time = least < even * kSm90Worthwhile ? least : even;
  } else if (rows.small_tiles || best.m_tiles <= kFewTiles) {
    // So many that all CTAs work as long.
    best.time = time_of_head(rows, times) * static_cast<double>(rows.heads) / rows.ctas;
  }
  if (best.m_tiles < kPairedTiles) best.order = Order::kHeads;
  return best;
}

}  // namespace

QueryTiling sm90_tiling(const Sm90Rows& rows) {
  if (rows.ctas == 0 || rows.consumers == 1 || rows.groups <= 1)
    return even_tiling(rows, rows.consumers);
  return rows.pair_tiles ? best_of_growing_rows(rows) : best_of_even_rows(rows);
}

double sm90_stream_k_time(const Sm90Rows& rows) {
  const TileTimes times(rows);
  const double head_time = rows.pair_tiles
                               ? time_of_head(rows, times)
                               : static_cast<double>(quotient_up(rows.groups, rows.consumers)) *
                                     times.of(rows.consumers, rows.keys);
  // A range begins and ends within a tile, and has a KV tile more than its share at most.
  return head_time * static_cast<double>(rows.heads) / std::max(rows.ctas, 1) +
         times.of(rows.consumers, rows.tile_keys);
}

}  // namespace attnjit

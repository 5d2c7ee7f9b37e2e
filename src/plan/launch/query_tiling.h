// SPDX-License-Identifier: Apache-2.0
// The query tiles of a launch, and how it deals them out to CTAs (templates/common/work_tiles.cuh).
#pragma once

#include <cstdint>

namespace attnjit {

/// The tiles of a head, counted from its last rows. There are up to three kinds, which follow one
/// another. Each has a group more than the kind before (growth 1), or less (-1).
struct QueryTiling {
  std::int32_t m_tiles = 0;
  std::int32_t tile_groups = 0;   ///< of a tile of the first kind; other consumers have no rows
  std::int32_t first_tiles = 0;   ///< of the first kind
  std::int32_t second_tiles = 0;  ///< of the first and second kind
  std::int32_t growth = 1;
  /// That the busiest CTA takes, in units of what a full tile of three groups takes per key. 0: not
  /// known, for tiles of the first body that are full because a head has many.
  double time = 0;
  /// How CTAs take them: head by head; in pairs of a long and a short tile; or the longest first.
  enum class Order : std::uint8_t { kHeads, kPairs, kLongest } order = Order::kHeads;
  bool operator==(const QueryTiling&) const = default;
};

/// The tiles of a launch, and whether the kernel's second body computes them.
struct LaunchTiles {
  bool small_tiles = false;
  QueryTiling tiling;
};

/// How a launch deals its query tiles out to CTAs.
struct TileShares {
  std::int32_t ctas = 0;
  std::int32_t paired_units = 0;  ///< pairs of tiles before the tail: whole rounds of the CTAs
};

/// The shares of `total_tiles` tiles, `m_tiles` per head, for `ctas` CTAs that run at once, which
/// load ahead over tile borders. pair_tiles: later tiles are longer.
TileShares deal_out(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// How a launch of sequences of one length cuts the query rows into tiles, and how it deals these
// out to CTAs (templates/common/work_tiles.cuh).
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>

namespace attnjit {

/// The rows of a consumer, and of a wgmma.
inline constexpr int kSm90ConsumerRows = 64;

/// The work of a launch, as far as it decides the tiles.
struct Sm90Rows {
  std::int64_t groups = 0;  ///< of a head (or of packed heads): the rows of a consumer each
  std::int64_t heads = 0;   ///< of all sequences
  double keys = 0;          ///< that the last rows see
  double fewer_keys = 0;    ///< that the first rows see less
  bool pair_tiles = false;  ///< later rows see more keys
  int consumers = 0;
  bool low_body = false;  ///< the kernel's second body
  int tile_keys = 1;      ///< of a KV tile
  int ctas = 1;           ///< that run at once; 0: full tiles are wanted
};

/// The tiles of a head, counted from its last rows. There are up to three kinds, which follow one
/// another. Each has a group more than the kind before (growth 1), or less (-1).
struct Sm90Tiling {
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
  bool operator==(const Sm90Tiling&) const = default;
};

/// The tiles of a launch, and whether the kernel's second body computes them.
struct Sm90Tiles {
  bool low_body = false;
  Sm90Tiling tiling;
};

/// What other tiles than full ones, or those of the second body, take at most of the time: the
/// model is no nearer.
inline constexpr double kSm90Worthwhile = 0.98;

/// The tiles that take the least time.
Sm90Tiling sm90_tiling(const Sm90Rows& rows);

/// Full tiles that are dealt out in runs, wherever these cut one (templates/common/work_runs.cuh).
struct Sm90Runs {
  double time = 0;         ///< as Sm90Tiling::time, without the merge
  std::int64_t parts = 1;  ///< of the longest tile, at most
};
Sm90Runs sm90_runs(const Sm90Rows& rows);

/// How a launch deals its query tiles out to CTAs.
struct Sm90Shares {
  std::int32_t ctas = 0;
  std::int32_t paired_units = 0;  ///< pairs of tiles before the tail: whole rounds of the CTAs
};

/// The shares of `total_tiles` tiles, `m_tiles` per head, for `ctas` CTAs that run at once, which
/// load ahead over tile borders. pair_tiles: later tiles are longer.
Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas);

}  // namespace attnjit

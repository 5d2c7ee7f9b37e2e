// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of the reference configurations.
#pragma once

#include <bit>
#include <cstdint>

namespace attnjit {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t align_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }
/// The multiple of b at or below a; 0 where a is negative.
constexpr std::int64_t align_down(std::int64_t a, std::int64_t b) { return a < 0 ? 0 : a / b * b; }

/// Where a depth is cut: beyond any that fits shared memory, and far from where a product of sizes
/// overflows.
inline constexpr std::int64_t kMaxDepth = std::int64_t{1} << 31;

/// A K tile must be whole pages, or a page whole tiles: otherwise the tile becomes a power of two.
constexpr std::int64_t fit_tile_to_pages(std::int64_t tile, std::int64_t page_size) {
  if (tile <= 0 || page_size <= 0) return tile;
  if (page_size % tile == 0 || tile % page_size == 0) return tile;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tile)));
}

}  // namespace attnjit

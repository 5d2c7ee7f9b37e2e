// SPDX-License-Identifier: Apache-2.0
// Compares what is said of tiles of scores with the scores, one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "spec/expression_ranges.h"

namespace attnjit::spec {

/// What a tile shows, found by asking about every score, or about some where there are many.
inline TileStatus status_by_scores(Evaluator& evaluator, const ScoreTile& tile,
                                   std::mt19937* some = nullptr) {
  TileStatus found{false, false};
  const auto ask = [&](std::int32_t h, std::int32_t q, std::int32_t k) {
    const bool visible =
        evaluator.visible({tile.b, h, tile.kv_h, q, k, tile.q_len, tile.kv_len, tile.first_row});
    (visible ? found.seen : found.hidden) = true;
  };
  if (some != nullptr) {
    const auto one_of = [&](const CoordRange& range) -> std::int32_t {
      switch ((*some)() % 4) {
        case 0:
          return range.lo;
        case 1:
          return range.hi;
        default:
          return std::uniform_int_distribution<std::int32_t>(range.lo, range.hi)(*some);
      }
    };
    for (int i = 0; i < 40; ++i) ask(one_of(tile.h), one_of(tile.q_idx), one_of(tile.kv_idx));
    return found;
  }
  for (std::int64_t h = tile.h.lo; h <= tile.h.hi; ++h) {
    for (std::int64_t q = tile.q_idx.lo; q <= tile.q_idx.hi; ++q) {
      for (std::int64_t k = tile.kv_idx.lo; k <= tile.kv_idx.hi; ++k) {
        ask(static_cast<std::int32_t>(h), static_cast<std::int32_t>(q),
            static_cast<std::int32_t>(k));
      }
    }
  }
  return found;
}

/// Whether what was said holds: what was seen may be seen, what was hidden may be hidden.
inline bool holds(const TileStatus& said, const TileStatus& found) {
  return (said.seen || !found.seen) && (said.hidden || !found.hidden);
}

inline bool is_partial(const TileStatus& said) { return said.seen && said.hidden; }

inline std::string text_of(const ScoreTile& tile) {
  const auto range = [](const CoordRange& of) {
    return std::to_string(of.lo) + ".." + std::to_string(of.hi);
  };
  return "b " + std::to_string(tile.b) + " kv_h " + std::to_string(tile.kv_h) + " h " +
         range(tile.h) + " q_idx " + range(tile.q_idx) + " kv_idx " + range(tile.kv_idx) +
         " q_len " + std::to_string(tile.q_len) + " kv_len " + std::to_string(tile.kv_len);
}

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Tries what is said of tiles on random expressions, as kernels of the mask say it and as kernels
// that interpret it do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "interpreted.h"
#include "random_expression.h"
#include "spec/expression_ranges.h"
#include "tile_check.h"

namespace attnjit::spec {

/// Random tiles, of a few scores or of very many, at the limits of i32 among other places.
class TileGenerator {
 public:
  explicit TileGenerator(std::uint32_t seed) : random_(seed) {}

  std::mt19937& random() { return random_; }

  ScoreTile tile(bool large) {
    ScoreTile made;
    made.b = number();
    made.kv_h = number();
    made.q_len = number();
    made.kv_len = number();
    made.h = range(large ? 40 : 2);
    made.q_idx = range(large ? 2000 : 6);
    made.kv_idx = range(large ? 2000 : 6);
    made.first_row = random::first_row(made.b, made.q_len);
    return made;
  }

 private:
  std::int32_t below(std::int32_t n) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(n));
  }
  std::int32_t number() {
    constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
    constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
    switch (below(8)) {
      case 0:
        return kMin + below(8);
      case 1:
        return kMax - below(8);
      case 2:
        return static_cast<std::int32_t>(random_());
      default:
        return below(40) - 12;
    }
  }
  CoordRange range(std::int32_t most) {
    const std::int32_t lo = number();
    const std::int64_t hi = std::int64_t{lo} + below(most);
    return {lo, static_cast<std::int32_t>(
                    std::min<std::int64_t>(hi, std::numeric_limits<std::int32_t>::max()))};
  }

  std::mt19937 random_;
};

/// How often a run said what.
struct TileCounts {
  std::int64_t pairs = 0, hidden = 0, full = 0;
  /// Pairs of code that can be interpreted: decided as a kernel of the mask decides, and by a
  /// kernel that interprets it.
  std::int64_t decided = 0, decided_interpreted = 0;
};

/// Tries random expressions, four random tiles each, until there are `pairs` pairs. Gives what is
/// wrong with the first of which too much was said; empty: nothing.
inline std::string try_random_tiles(std::uint32_t first_seed, std::int64_t pairs,
                                    TileCounts& counts) {
  const random::Params params;
  TileGenerator tiles(first_seed);
  for (std::uint32_t seed = first_seed; counts.pairs < pairs; ++seed) {
    const std::string text = random::Generator(seed).mask()->text();
    const Result<Expression> parsed =
        parse_expression(text, SnippetKind::kMask, random::Params::declared());
    if (!parsed) continue;
    Evaluator evaluator(*parsed, params.views());
    RangeEvaluator ranges(*parsed, params.views());
    RangeEvaluator with_arrays(*parsed, params.views(), ArrayRanges::kKnown);
    std::optional<Interpreted> interpreted;
    if (Interpreted::takes(*parsed, params.views())) interpreted.emplace(*parsed, params.views());
    for (int i = 0; i < 4; ++i) {
      const bool large = i == 3;
      const ScoreTile tile = tiles.tile(large);
      // What is known of arrays adds to what is said.
      const TileStatus without = ranges.status(tile);
      const TileStatus said = with_arrays.status(tile);
      if (!holds(without, said)) {
        return "seed " + std::to_string(seed) + ": " + text + "\nsays less with arrays over " +
               text_of(tile);
      }
      ++counts.pairs;
      counts.hidden += !said.seen;
      counts.full += !said.hidden;
      TileStatus by_interpreter, by_interpreter_with_arrays;
      if (interpreted) {
        by_interpreter = interpreted->status(tile);
        by_interpreter_with_arrays = interpreted->status(tile, ArrayRanges::kKnown);
        counts.decided += !is_partial(said);
        counts.decided_interpreted += !is_partial(by_interpreter_with_arrays);
      }
      if (is_partial(said) && is_partial(by_interpreter) &&
          is_partial(by_interpreter_with_arrays)) {
        continue;
      }
      const TileStatus found = status_by_scores(evaluator, tile, large ? &tiles.random() : nullptr);
      for (const auto& [status, who] :
           {std::pair{said, ""}, std::pair{by_interpreter, " (interpreted)"},
            std::pair{by_interpreter_with_arrays, " (interpreted, arrays known)"}}) {
        if (holds(status, found)) continue;
        return "seed " + std::to_string(seed) + ": " + text + "\nis not " +
               (status.seen ? "full" : "hidden") + " over " + text_of(tile) + who;
      }
    }
  }
  return {};
}

}  // namespace attnjit::spec

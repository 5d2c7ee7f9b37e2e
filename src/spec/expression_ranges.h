// SPDX-License-Identifier: Apache-2.0
// What a mask's expression says of a whole tile of scores: that it hides all of it, none of it, or
// neither for certain.
//
// It is an abstract interpretation over ranges (Cousot and Cousot, POPL 1977). A row of the table
// in expression_ranges.cpp gives each operation its meaning over ranges, as a function of
// templates/common/ranges.cuh: the evaluator here calls it, and the printed text names it.
//
// Thread rules: RangeEvaluator belongs to one thread at a time; the functions are pure.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spec/expression.h"

namespace attnjit::spec {

/// Integers lo <= i <= hi.
struct CoordRange {
  std::int32_t lo = 0, hi = 0;
};

/// A tile of scores: a rectangle of queries and keys, of some heads that share a key-value head.
struct ScoreTile {
  std::int32_t b = 0, kv_h = 0;
  CoordRange h, q_idx, kv_idx;
  std::int32_t q_len = 0, kv_len = 0;
  std::int32_t first_row = 0;  ///< rows of q before the sequence's
};

/// What a tile shows: nothing (seen = false), all (hidden = false), or perhaps a part.
struct TileStatus {
  bool seen = true;    ///< a score may be visible
  bool hidden = true;  ///< a score may be hidden
  bool operator==(const TileStatus&) const = default;
};

/// What is known of elements that differ within a tile.
enum class ArrayRanges : std::uint8_t {
  kUnknown,  ///< nothing: as a kernel asks that has no time to read them
  kKnown,    ///< what they are among, where they are no more than kMostElements: as the kernel that
             ///< makes a map of the mask asks (templates/maps/warp_tile.cuh)
};
inline constexpr std::int64_t kMostElements = 2048;

/// Evaluates a mask over tiles. Sound: where a tile is not `seen` every score in it is hidden, and
/// where it is not `hidden` every one is visible.
class RangeEvaluator {
 public:
  /// Borrows the expression and the arrays. @param params in the order of Expression::params.
  /// @pre the expression is a mask's.
  RangeEvaluator(const Expression& expression, std::vector<ParamView> params,
                 ArrayRanges arrays = ArrayRanges::kUnknown);
  /// Nothing is known of the parameters: they come with the launch.
  explicit RangeEvaluator(const Expression& expression);
  ~RangeEvaluator();

  TileStatus status(const ScoreTile& tile);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A mask over ranges as CUDA C++: an IntRange of the tile t. templates/common/ranges.cuh
/// defines what it names. Deterministic.
std::string print_cuda_ranges(const Expression& expression);

/// Whether a mask depends on elements of arrays that differ within a tile.
bool reads_arrays(const Expression& expression);

/// Whether a mask may hide tiles of keys again and again between others: a remainder, bits or an
/// element depends on kv_idx. Where it does not, two ends and a gap are most of what it hides.
bool hides_again(const Expression& expression);

/// The block that a mask looks up in arrays: what a coordinate is divided by where it is an index
/// of an element, as in p.blocks[q_idx / 128][kv_idx / 128]; the least of several, 0 where there is
/// none.
int looked_up_block(const Expression& expression, Coord coord);

/// Whether a mask names a coordinate.
bool names(const Expression& expression, Coord coord);

/// Whether a mask can be decided for whole tiles: not where all that it says depends on elements of
/// arrays that differ within a tile.
bool decides_tiles(const Expression& expression);

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// What a mask shows, tile by tile. Of a kernel's tiles: those that it does not load, those that it
// loads and masks, and those that it need not mask. Of tiles of any size: what the scores are.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/plan.h"
#include "spec/expression_ranges.h"
#include "verify/given_inputs.h"
#include "verify/problem.h"

namespace attnjit::cli {

/// Kinds of tiles, as they are counted and drawn.
struct TileKind {
  const char* name;         ///< in JSON, in text and of a class of CSS
  char sign;                ///< in text
  const char* kernel_does;  ///< what a kernel does with such a tile
  const char* scores_are;   ///< what the scores of such a tile are
};
inline constexpr TileKind kTileKinds[] = {
    {"hidden", '.', "hidden: not loaded", "hidden"},
    {"partial", '/', "partial: loaded and masked", "partial: some of its keys are seen"},
    {"full", '#', "full: loaded, and not masked", "seen"},
};
const TileKind& kind_of(const spec::TileStatus& tile);

/// A mask or a score modification in words: its name, its code, or its parts.
/// @param field "mask", "score_mod"
std::string title_of(const AttentionSpec& spec, const char* field);

/// The coordinates of a sequence's and a head's scores, but for the query and the key. Errors:
/// kInvalid of a sequence or a head that there is none of.
Result<spec::Coordinates> coordinates_of(const verify::Problem& problem, std::int64_t sequence,
                                         std::int64_t head);

struct MaskPicture {
  std::string title;  ///< the mask, in words
  bool shows_tiles = false;
  int tile_queries = 0, tile_keys = 0;
  int q_len = 0, kv_len = 0;
  std::vector<std::vector<spec::TileStatus>> rows;  ///< of tiles, the first queries first

  std::int64_t count(const TileKind& kind) const;
  /// A line a row of tiles, and how many there are of each kind.
  std::string text() const;
  std::string json() const;
  /// Queries and keys have one scale, and the colours follow the reader's light or dark mode.
  std::string svg() const;
};

/// The tiles of the kernel, of the first head of the first sequence. Errors: kInvalid where a
/// parameter or a number has no value, or there are too many tiles to draw; kUnsupported where the
/// spec is, or the mask is no expression.
Result<MaskPicture> draw_mask(const ResolvedSpec& spec, const KernelPlan& plan,
                              const verify::ProblemRequest& request);

/// Whose scores are asked, and how many to a tile.
struct ScoreTiles {
  int queries = 1, keys = 1;
  std::int64_t sequence = 0, head = 0;
  verify::NamedTensors tensors;  ///< that the mask reads
};

/// Tiles of that size, by asking about each score. Errors: kInvalid as draw_mask, and of a head or
/// a sequence that there is none of; kUnsupported for trusted code.
Result<MaskPicture> draw_scores(const ResolvedSpec& spec, ScoreTiles tiles,
                                const verify::ProblemRequest& request);

}  // namespace attnjit::cli

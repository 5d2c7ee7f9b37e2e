// SPDX-License-Identifier: Apache-2.0
// Answers what planning asks of a spec.
#include "spec/spec_facts.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "spec/expression_ranges.h"
#include "spec/interpreted_code.h"
#include "spec/names.h"

namespace attnjit {

bool contains(const MaskSpec& mask, MaskSpec::Kind kind) {
  if (mask.kind == kind) return true;
  for (const MaskSpec& child : mask.of) {
    if (contains(child, kind)) return true;
  }
  return false;
}

bool hides_nothing(const MaskSpec& mask) {
  switch (mask.kind) {
    case MaskSpec::Kind::kNull:
      return true;
    case MaskSpec::Kind::kMaterialized:
      return spec::adds_to_scores(mask);
    case MaskSpec::Kind::kAnd:
      return std::all_of(mask.of.begin(), mask.of.end(), hides_nothing);
    case MaskSpec::Kind::kOr:
      return std::any_of(mask.of.begin(), mask.of.end(), hides_nothing);
    default:
      return false;
  }
}

namespace {

/// SpecFacts::block_sparse of a mask. `next` is the custom code that comes next.
bool block_sparse_of(const MaskSpec& mask, spec::Snippets::const_iterator& next) {
  if (mask.kind == MaskSpec::Kind::kCustom) {
    const auto& snippet = *next++;
    return snippet && spec::decides_tiles(*snippet);
  }
  bool lists = false;
  for (const MaskSpec& part : mask.of) lists = block_sparse_of(part, next) || lists;
  return lists && !hides_nothing(mask);
}

/// Evaluators of a mask's custom code, in its order.
using Evaluators = std::deque<spec::RangeEvaluator>;

/// Empty where a trusted body is among it, of which nothing is known.
Evaluators evaluators_of(const AttentionSpec& spec, const spec::Snippets& snippets) {
  // The mask's come before the score modification's.
  const bool modifies = spec.score_mod.kind == ScoreModSpec::Kind::kCustom;
  Evaluators evaluators;
  for (std::size_t i = 0; i + (modifies ? 1 : 0) < snippets.size(); ++i) {
    if (!snippets[i]) return {};
    evaluators.emplace_back(*snippets[i]);
  }
  return evaluators;
}

/// What a mask shows of a tile: what its parts say. `next` is the evaluator of the custom code that
/// comes next. Numbers that come with the launch are not known.
spec::TileStatus status_of(const MaskSpec& mask, const spec::ScoreTile& tile,
                           Evaluators::iterator& next) {
  switch (mask.kind) {
    case MaskSpec::Kind::kNull:
      return {true, false};
    case MaskSpec::Kind::kCausal:
      return {tile.kv_idx.lo <= tile.q_idx.hi, tile.kv_idx.hi > tile.q_idx.lo};
    case MaskSpec::Kind::kCustom:
      return (next++)->status(tile);
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr: {
      const bool all = mask.kind == MaskSpec::Kind::kAnd;
      spec::TileStatus found{all, !all};
      for (const MaskSpec& operand : mask.of) {
        const spec::TileStatus one = status_of(operand, tile, next);
        found.seen = all ? found.seen && one.seen : found.seen || one.seen;
        found.hidden = all ? found.hidden || one.hidden : found.hidden && one.hidden;
      }
      return found;
    }
    default:
      return {};
  }
}

/// Tiles of a long sequence that a mask is asked about, kSide queries and keys each. NOTE: of short
/// ones a window or a chunk may look like causal.
constexpr std::int32_t kTiles = 8, kSide = 4096;
spec::ScoreTile tile_of(std::int32_t row, std::int32_t column) {
  const std::int32_t q = row * kSide, key = column * kSide;
  return {0, 0, {0, 0}, {q, q + kSide - 1}, {key, key + kSide - 1}, kTiles * kSide, kTiles * kSide};
}

/// Finds `rising` and `much_whole`. @pre the mask is not interpreted.
void look_at_long_sequence(const spec::Snippets& snippets, SpecFacts& spec) {
  const bool causal = spec.contains(MaskSpec::Kind::kCausal);
  spec.rising = causal;
  if (!spec.contains(MaskSpec::Kind::kCustom)) return;
  // NOTE: their numbers come with the launch.
  const bool ends_anywhere =
      spec.contains(MaskSpec::Kind::kSlidingWindow) || spec.contains(MaskSpec::Kind::kChunked);
  spec.rising = causal && !ends_anywhere;
  Evaluators evaluators = evaluators_of(spec, snippets);
  if (evaluators.empty()) return;
  // Tiles that show something of the first and of the second half of rows, and all that are whole.
  std::array<int, 2> seen{};
  int whole = 0;
  for (std::int32_t row = 0; row < kTiles; ++row) {
    for (std::int32_t column = 0; column < kTiles; ++column) {
      auto next = evaluators.begin();
      const spec::TileStatus status = status_of(spec.mask, tile_of(row, column), next);
      seen[2 * row / kTiles] += status.seen ? 1 : 0;
      whole += status.hidden ? 0 : 1;
    }
  }
  // Causal has 28 of 64, a window or documents none or few.
  spec.much_whole = whole > kTiles * kTiles / 4;
  const bool has_params = spec::any_of_mask(
      snippets, [](const spec::Expression& expression) { return !expression.params.empty(); });
  if (ends_anywhere || has_params || spec.contains(MaskSpec::Kind::kMaterialized)) return;
  // Causal has 26 to 10; a window, whose first rows lack some keys, has about as many.
  spec.rising = seen[1] > 2 * seen[0];
}

}  // namespace

bool has_separate_rope(const AttentionSpec& spec) {
  return spec.rope_dtype.value_or(spec.qkv_dtype) != spec.qkv_dtype;
}

int depth_of_rows(const AttentionSpec& spec) {
  return has_separate_rope(spec) ? spec.ov_depth : spec.qk_depth;
}

bool SpecFacts::contains(MaskSpec::Kind kind) const {
  return interprets_mask ? kind == MaskSpec::Kind::kCustom : attnjit::contains(mask, kind);
}

bool SpecFacts::decodes(int rows) const {
  return max_q_len > 0 && std::int64_t{max_q_len} * group <= rows;
}

SpecFacts::SpecFacts(AttentionSpec resolved, const spec::Snippets& snippets)
    : AttentionSpec(std::move(resolved)) {
  constexpr int kSwizzleRows = 8;  // of 128 bytes: the period of the swizzle
  constexpr int kDeepest = 256;
  interprets_mask = spec::interprets_mask(*this);
  interprets_score_mod = spec::interprets_score_mod(*this);
  interprets = interprets_mask || interprets_score_mod;
  has_page_table = page_size > 0 && topk == 0;
  lengths_differ = has_page_table || ragged || ragged_kv;
  has_kv_lens = lengths_differ && !ragged_kv && topk == 0;
  copies_rows = page_size % kSwizzleRows != 0;
  head_dim_above_256 = this->mla != Mla::kDecode && qk_depth > kDeepest;
  is_e4m3 = qkv_dtype == Dtype::kE4m3;
  upcasts_kv = type_of_kv() != qkv_dtype;
  key_scales = type_of_kv() == Dtype::kE4m3 && scales == Scales::kToken;
  pages_have_scales = page_size > 0 && key_scales;
  separate_rope = has_separate_rope(*this);
  o_dtype = output_dtype.value_or(qkv_dtype);
  // NOTE: the plan of a mask that is interpreted does not depend on what the mask says.
  if (interprets_mask) return;
  auto next = snippets.cbegin();
  block_sparse = block_sparse_of(mask, next);
  look_at_long_sequence(snippets, *this);
}

}  // namespace attnjit

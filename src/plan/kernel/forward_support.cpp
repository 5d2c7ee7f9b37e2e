// SPDX-License-Identifier: Apache-2.0
// What of a spec the forward templates of every architecture lack.
#include "plan/kernel/forward_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "spec/expression_ranges.h"
#include "spec/interpreted_code.h"
#include "spec/resolved_spec.h"

namespace attnjit {

bool contains(const AttentionSpec& spec, MaskSpec::Kind kind) {
  if (spec::interprets_mask(spec)) return kind == MaskSpec::Kind::kCustom;
  return contains(spec.mask, kind);
}

bool contains(const MaskSpec& mask, MaskSpec::Kind kind) {
  if (mask.kind == kind) return true;
  for (const MaskSpec& child : mask.of) {
    if (contains(child, kind)) return true;
  }
  return false;
}

bool interprets(const AttentionSpec& spec) {
  return spec::interprets_mask(spec) || spec::interprets_score_mod(spec);
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

/// As lists_tiles(). `next` is the custom code that comes next.
bool lists_tiles_of(const MaskSpec& mask, spec::Snippets::const_iterator& next) {
  if (mask.kind == MaskSpec::Kind::kCustom) {
    const auto& snippet = *next++;
    return snippet && spec::decides_tiles(*snippet);
  }
  bool lists = false;
  for (const MaskSpec& part : mask.of) lists = lists_tiles_of(part, next) || lists;
  return lists && !hides_nothing(mask);
}

}  // namespace

// NOTE: what is planned of a mask that is interpreted hangs on nothing that the mask says.
bool lists_tiles(const ResolvedSpec& spec) {
  if (spec::interprets_mask(spec)) return false;
  auto next = spec.state().snippets.cbegin();
  return lists_tiles_of(spec->mask, next);
}

namespace {

/// Evaluators of a mask's custom code, in its order.
using Evaluators = std::deque<spec::RangeEvaluator>;

/// Empty where a trusted body is among it, of which nothing is known.
Evaluators evaluators_of(const ResolvedSpec& spec) {
  const spec::Snippets& snippets = spec.state().snippets;
  // The mask's come before the score modification's.
  const bool modifies = spec->score_mod.kind == ScoreModSpec::Kind::kCustom;
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

}  // namespace

LongSequence shown_of_long_sequence(const ResolvedSpec& spec) {
  if (spec::interprets_mask(spec)) return {};
  const bool causal = contains(spec->mask, MaskSpec::Kind::kCausal);
  if (!contains(spec->mask, MaskSpec::Kind::kCustom)) return {causal, false};
  // NOTE: their numbers come with the launch.
  const bool ends_anywhere = contains(spec->mask, MaskSpec::Kind::kSlidingWindow) ||
                             contains(spec->mask, MaskSpec::Kind::kChunked);
  LongSequence shown{causal && !ends_anywhere, false};
  Evaluators evaluators = evaluators_of(spec);
  if (evaluators.empty()) return shown;
  // Tiles that show something of the first and of the second half of rows, and all that are whole.
  std::array<int, 2> seen{};
  int whole = 0;
  for (std::int32_t row = 0; row < kTiles; ++row) {
    for (std::int32_t column = 0; column < kTiles; ++column) {
      auto next = evaluators.begin();
      const spec::TileStatus status = status_of(spec->mask, tile_of(row, column), next);
      seen[2 * row / kTiles] += status.seen ? 1 : 0;
      whole += status.hidden ? 0 : 1;
    }
  }
  // Causal has 28 of 64, a window or documents none or few.
  shown.much_whole = whole > kTiles * kTiles / 4;
  const spec::Snippets& snippets = spec.state().snippets;
  const bool has_params = std::any_of(snippets.begin(), snippets.end(), [](const auto& snippet) {
    return snippet && snippet->kind == spec::SnippetKind::kMask && !snippet->params.empty();
  });
  if (ends_anywhere || has_params || contains(spec->mask, MaskSpec::Kind::kMaterialized)) {
    return shown;
  }
  // Causal has 26 to 10; a window, whose first rows lack some keys, has about as many.
  shown.rising = seen[1] > 2 * seen[0];
  return shown;
}

bool has_page_table(const AttentionSpec& spec) { return spec.page_size > 0 && spec.topk == 0; }

bool lengths_differ(const AttentionSpec& spec) {
  return has_page_table(spec) || spec.ragged || spec.ragged_kv;
}

bool has_kv_lens(const AttentionSpec& spec) {
  return lengths_differ(spec) && !spec.ragged_kv && spec.topk == 0;
}

bool copies_rows(const AttentionSpec& spec) {
  constexpr int kSwizzleRows = 8;  // of 128 bytes: the period of the swizzle
  return spec.page_size % kSwizzleRows != 0;
}

bool has_deep_heads(const AttentionSpec& spec) {
  constexpr int kDeepest = 256;
  return spec.mla != Mla::kDecode && spec.qk_depth > kDeepest;
}

int rows_shift(int group) { return std::bit_width(static_cast<std::uint32_t>(group - 1)); }

bool decodes(const AttentionSpec& spec, int rows) {
  return spec.max_q_len > 0 && std::int64_t{spec.max_q_len} * spec.group <= rows;
}

bool is_e4m3(const AttentionSpec& spec) { return spec.qkv_dtype == Dtype::kE4m3; }

bool upcasts_kv(const AttentionSpec& spec) { return spec.type_of_kv() != spec.qkv_dtype; }

bool keys_have_scales(const AttentionSpec& spec) {
  return spec.type_of_kv() == Dtype::kE4m3 && spec.scales == Scales::kToken;
}

bool pages_have_scales(const AttentionSpec& spec) {
  return spec.page_size > 0 && keys_have_scales(spec);
}

bool has_own_rope(const AttentionSpec& spec) {
  return spec.rope_dtype.value_or(spec.qkv_dtype) != spec.qkv_dtype;
}

int depth_of_rows(const AttentionSpec& spec) {
  return has_own_rope(spec) ? spec.ov_depth : spec.qk_depth;
}

bool has_output_scale(const AttentionSpec& spec) {
  return spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kE4m3;
}

std::string unsupported_everywhere(const AttentionSpec& spec) {
  const auto missing = [&](std::string_view what) {
    return fmt::format("the {} template has no {} yet", to_string(spec.arch), what);
  };
  if (interprets(spec)) {
    if (std::string reason = spec::why_not_interpreted(spec); !reason.empty()) return reason;
  }
  if (spec.v_layout != VLayout::kRow) {
    return "V lies in rows (v_layout row): no kernel takes it transposed";
  }
  if (spec.topk > 0 && spec.mla != Mla::kDecode) {
    return missing("lists of keys (topk) but those of absorbed MLA (mla: decode)");
  }
  if (has_own_rope(spec)) {
    const Dtype rope = *spec.rope_dtype;
    if (spec.arch == Arch::kSm90a) {
      return missing(
          fmt::format("rope part of another type than the rest (rope_dtype {} beside {})",
                      to_string(rope), to_string(spec.qkv_dtype)));
    }
    if (spec.mla != Mla::kPrefill || spec.qkv_dtype != Dtype::kE4m3 || size_of(rope) != 2) {
      return missing(
          fmt::format("rope part of {} beside {} (rope_dtype) but 16 bits in MLA's prefill of e4m3 "
                      "(mla: prefill)",
                      to_string(rope), to_string(spec.qkv_dtype)));
    }
  }
  const Dtype rope = spec.rope_dtype.value_or(spec.qkv_dtype);
  if (spec.rope_gmem_dtype.value_or(rope) != rope) {
    return fmt::format(
        "the rope part has one type in memory and in products: rope_gmem_dtype is to be {}",
        to_string(rope));
  }
  if (upcasts_kv(spec) && keys_have_scales(spec) && spec.mla == Mla::kDecode) {
    return missing("scales of rows (scales) of absorbed MLA's K (mla: decode)");
  }
  if (spec.scale_dtype && spec.scales != Scales::kToken) {
    return "scale_dtype is of per-token scales: it goes with `scales` token";
  }
  if (spec.scale_dtype.value_or(Dtype::kF32) != Dtype::kF32) {
    return fmt::format("per-token scales are f32; scale_dtype is {}", to_string(*spec.scale_dtype));
  }
  return {};
}

std::string unsupported_output(const AttentionSpec& spec) {
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  if (size_of(output) == 2) return {};
  return fmt::format("the {} template has no {} output (output_dtype) yet", to_string(spec.arch),
                     to_string(output));
}

std::string unsupported_accumulation(const AttentionSpec& spec) {
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  if (!spec.accumulate || size_of(output) == 2) return {};
  return fmt::format("a launch that accumulates takes o of bf16 or fp16, not {} (output_dtype)",
                     to_string(output));
}

std::string unsupported_e4m3(const AttentionSpec& spec, std::string_view why) {
  if (spec.type_of_kv() != Dtype::kE4m3) return {};
  return fmt::format("the {} template has no {} operands ({}) yet: {}", to_string(spec.arch),
                     to_string(spec.type_of_kv()), upcasts_kv(spec) ? "kv_dtype" : "qkv_dtype",
                     why);
}

std::string unsupported_partitions(const AttentionSpec& spec, int step) {
  if ((spec.num_partitions > 1 || spec.partition_keys > 0) && spec.accumulate) {
    return fmt::format("a launch that accumulates does not split the keys ({}) yet",
                       spec.partition_keys > 0 ? "partition_keys" : "num_partitions");
  }
  if (spec.partition_keys % step != 0) {
    return fmt::format(
        "partition_keys is {}; the {} template takes multiples of {} keys, the shortest tile",
        spec.partition_keys, to_string(spec.arch), step);
  }
  return {};
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Asks a mask about each tile of a kernel, and draws what it answers.
#include "cli/mask_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/mla/mla_tiles.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "spec/mask_expression.h"
#include "verify/custom.h"

namespace attnjit::cli {
namespace {

constexpr int kMaxTiles = 1024;  // in a row, and rows

/// Tiles of a kind, as they are counted and drawn.
struct Kind {
  const char* name;
  char sign;
  const char* colour;
  bool seen, hidden;
};
constexpr Kind kKinds[] = {
    {"hidden", '.', "#f4f4f4", false, true},
    {"partial", '/', "#e8a33d", true, true},
    {"full", '#', "#2f6f9f", true, false},
};

const Kind& kind_of(const spec::TileStatus& tile) {
  return !tile.seen ? kKinds[0] : tile.hidden ? kKinds[1] : kKinds[2];
}

std::string row_text(const std::vector<spec::TileStatus>& row) {
  std::string text;
  for (const spec::TileStatus& tile : row) text += kind_of(tile).sign;
  return text;
}

std::int64_t count(const MaskPicture& picture, const Kind& kind) {
  std::int64_t found = 0;
  for (const auto& row : picture.rows) {
    found += std::count_if(row.begin(), row.end(),
                           [&](const auto& tile) { return &kind_of(tile) == &kind; });
  }
  return found;
}

Result<std::vector<spec::ParamView>> views(const spec::Expression& expression,
                                           const verify::ProblemRequest& request) {
  std::vector<spec::ParamView> made;
  for (const ParamSpec& param : expression.params) {
    const auto given =
        std::find_if(request.params.begin(), request.params.end(),
                     [&](const verify::ParamArgument& one) { return one.name == param.name; });
    if (given == request.params.end()) {
      return make_error(ErrorCode::kInvalid, "the picture needs its value", "param " + param.name,
                        "give --param NAME=VALUE, or NAME=@FILE.npy");
    }
    made.push_back(verify::view(given->value));
  }
  return made;
}

/// What the scores of a tile are, up to a visible and a hidden one.
spec::TileStatus status_by_scores(spec::Evaluator& scores, const spec::ScoreTile& tile) {
  spec::TileStatus found{false, false};
  for (std::int32_t q = tile.q_idx.lo; q <= tile.q_idx.hi; ++q) {
    for (std::int32_t k = tile.kv_idx.lo; k <= tile.kv_idx.hi; ++k) {
      const bool visible =
          scores.visible({tile.b, tile.h.lo, tile.kv_h, q, k, tile.q_len, tile.kv_len});
      (visible ? found.seen : found.hidden) = true;
      if (found.seen && found.hidden) return found;
    }
  }
  return found;
}

/// The status of a tile that may end past the last key, where the kernel masks.
/// @param scores where a map is made of the mask, which asks what ranges do not decide
spec::TileStatus status(spec::RangeEvaluator& mask, spec::Evaluator* scores, spec::ScoreTile tile) {
  const bool whole = tile.kv_idx.hi < tile.kv_len;
  tile.kv_idx.hi = std::min(tile.kv_idx.hi, tile.kv_len - 1);
  spec::TileStatus said = mask.status(tile);
  if (scores != nullptr && said.seen && said.hidden) said = status_by_scores(*scores, tile);
  said.hidden |= !whole;
  return said;
}

}  // namespace

std::string MaskPicture::text() const {
  std::string text =
      fmt::format("what the mask says of tiles of {} queries and {} keys; queries go down\n",
                  tile_queries, tile_keys);
  for (const auto& row : rows) text += row_text(row) + '\n';
  for (const Kind& kind : kKinds) {
    text += fmt::format("{} {:<8}{}\n", kind.sign, kind.name, count(*this, kind));
  }
  return text;
}

std::string MaskPicture::json() const {
  nlohmann::ordered_json json;
  json["tile_queries"] = tile_queries;
  json["tile_keys"] = tile_keys;
  for (const Kind& kind : kKinds) json[kind.name] = count(*this, kind);
  json["rows"] = nlohmann::json::array();
  for (const auto& row : rows) json["rows"].push_back(row_text(row));
  return json.dump();
}

std::string MaskPicture::svg() const {
  constexpr int kSide = 8;
  const auto side = [](std::size_t tiles) { return kSide * static_cast<int>(tiles); };
  const int width = rows.empty() ? 0 : side(rows.front().size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n<title>tiles of {2} queries and {3} keys: hidden are light, "
      "partial are orange, full are blue</title>\n",
      width, side(rows.size()), tile_queries, tile_keys);
  for (std::size_t y = 0; y < rows.size(); ++y) {
    for (std::size_t x = 0; x < rows[y].size(); ++x) {
      svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                         side(x), side(y), kSide - 1, kSide - 1, kind_of(rows[y][x]).colour);
    }
  }
  return svg + "</svg>\n";
}

Result<MaskPicture> draw_mask(const ResolvedSpec& spec, const KernelPlan& plan,
                              const verify::ProblemRequest& request) {
  if (!plan.supported) return make_error(ErrorCode::kUnsupported, plan.reason, "spec");
  if (spec->merge) {
    return make_error(ErrorCode::kUnsupported, "a merge has no tiles of scores", "merge");
  }
  const Result<verify::Problem> problem = verify::shape_problem(spec, request);
  if (!problem) return problem.error();
  const Result<spec::Expression> mask = spec::mask_expression(problem->spec);
  if (!mask) return mask.error();
  const Result<std::vector<spec::ParamView>> params = views(*mask, request);
  if (!params) return params.error();

  MaskPicture picture;
  // The queries that one warpgroup has.
  if (plan.sm90) {
    picture.tile_queries = std::max(64 / sm90_packed_heads(*plan.sm90, spec), 1);
    picture.tile_keys = plan.sm90->BN;
  } else if (plan.sm90_mla || plan.sm100_mla) {
    picture.tile_queries = std::max(MlaTiles::kRows >> mla_head_shift(spec), 1);
    picture.tile_keys = MlaTiles::kKeys;
  } else {
    const Sm100Variant& variant = plan.sm100->variants.front();
    picture.tile_queries = variant.fuse_gqa ? 128 / spec->group : 128;
    picture.tile_keys = static_cast<int>(variant.BN);
  }
  picture.q_len = problem->q_lens.front();
  picture.kv_len = problem->kv_lens.front();
  const int first = picture.kv_len - picture.q_len;  // q_idx of row 0
  const int num_rows = (picture.q_len + picture.tile_queries - 1) / picture.tile_queries;
  const int num_columns = (picture.kv_len + picture.tile_keys - 1) / picture.tile_keys;
  if (num_rows > kMaxTiles || num_columns > kMaxTiles) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("{} by {} tiles; up to {} are drawn", num_rows, num_columns, kMaxTiles),
        num_rows > kMaxTiles ? "q_len" : "kv_len");
  }
  // The kernel that makes a map knows the elements of arrays.
  spec::RangeEvaluator evaluator(
      *mask, *params, plan.map ? spec::ArrayRanges::kKnown : spec::ArrayRanges::kUnknown);
  spec::Evaluator scores(*mask, *params);
  for (int row = 0; row < num_rows; ++row) {
    std::vector<spec::TileStatus>& tiles = picture.rows.emplace_back();
    const int last_row = std::min((row + 1) * picture.tile_queries, picture.q_len) - 1;
    for (int column = 0; column < num_columns; ++column) {
      const int key = column * picture.tile_keys;
      tiles.push_back(status(evaluator, plan.map ? &scores : nullptr,
                             {0,
                              0,
                              {0, 0},
                              {first + row * picture.tile_queries, first + last_row},
                              {key, key + picture.tile_keys - 1},
                              picture.q_len,
                              picture.kv_len}));
    }
  }
  return picture;
}

}  // namespace attnjit::cli

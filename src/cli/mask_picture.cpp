// SPDX-License-Identifier: Apache-2.0
// Asks a mask about each tile of a kernel, and draws what it answers.
#include "cli/mask_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "plan/mla/mla_tiles.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "spec/interpreted_code.h"
#include "verify/custom.h"
#include "verify/mask_and_score_mod.h"

namespace attnjit::cli {
namespace {

constexpr int kMaxTiles = 1024;                             // in a row, and rows
constexpr std::int64_t kMaxScores = std::int64_t{1} << 26;  // that are asked about

std::string words_of(const nlohmann::json& mask) {
  if (!mask.is_object()) return mask.is_string() ? mask.get<std::string>() : "null";
  if (mask.contains("code")) return mask.at("code").get<std::string>();
  const std::string kind = mask.value("kind", "null");
  std::string text;
  if (mask.contains("of")) {
    for (const nlohmann::json& part : mask.at("of")) {
      if (!text.empty()) text += kind == "and" ? " & " : " | ";
      text += words_of(part);
    }
    return "(" + text + ")";
  }
  for (const auto& [name, value] : mask.items()) {
    if (name == "kind") continue;
    text += (text.empty() ? " of " : ", ") + name + " " +
            (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return kind + text;
}

Status check_tiles(const MaskPicture& picture, std::int64_t rows, std::int64_t columns) {
  if (picture.shows_tiles ? rows <= kMaxTiles && columns <= kMaxTiles
                          : rows * columns <= kMaxScores / 4) {
    return {};
  }
  const std::string most =
      picture.shows_tiles ? fmt::format("{}", kMaxTiles) : fmt::format("{} in all", kMaxScores / 4);
  return make_error(ErrorCode::kInvalid,
                    fmt::format("{} by {} tiles; up to {} are drawn", rows, columns, most),
                    rows > columns ? "q_len" : "kv_len");
}

std::string row_text(const std::vector<spec::TileStatus>& row) {
  std::string text;
  for (const spec::TileStatus& tile : row) text += kind_of(tile).sign;
  return text;
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

const TileKind& kind_of(const spec::TileStatus& tile) {
  return !tile.seen ? kTileKinds[0] : tile.hidden ? kTileKinds[1] : kTileKinds[2];
}

std::string title_of(const AttentionSpec& spec, const char* field) {
  const auto json = nlohmann::json::parse(spec_to_json(spec), nullptr, false);
  return json.contains(field) ? words_of(json.at(field)) : "none";
}

Result<spec::Coordinates> coordinates_of(const verify::Problem& problem, std::int64_t sequence,
                                         std::int64_t head) {
  for (const auto& [name, index, count] : {std::tuple{"sequence", sequence, problem.batch},
                                           std::tuple{"head", head, problem.spec.num_q_heads}}) {
    if (index < 0 || index >= count) {
      return make_error(ErrorCode::kInvalid, fmt::format("is {}; there are {}", index, count), name,
                        "they are counted from 0");
    }
  }
  const auto b = static_cast<std::size_t>(sequence);
  spec::Coordinates at;
  at.b = static_cast<std::int32_t>(sequence);
  at.h = static_cast<std::int32_t>(head);
  at.kv_h = at.h / problem.spec.group;
  at.q_len = problem.q_lens[b];
  at.kv_len = problem.kv_lens[b];
  for (std::size_t i = 0; i < b; ++i) at.first_row += problem.q_lens[i];
  return at;
}

std::int64_t MaskPicture::count(const TileKind& kind) const {
  std::int64_t found = 0;
  for (const auto& row : rows) {
    found += std::count_if(row.begin(), row.end(),
                           [&](const auto& tile) { return &kind_of(tile) == &kind; });
  }
  return found;
}

std::string MaskPicture::text() const {
  std::string text =
      fmt::format("what the mask says of tiles of {} queries and {} keys; queries go down\n",
                  tile_queries, tile_keys);
  if (!shows_tiles) {
    text = fmt::format("{} queries (down) and {} keys (across), {} by {} to a sign\n", q_len,
                       kv_len, tile_queries, tile_keys);
  }
  for (const auto& row : rows) text += row_text(row) + '\n';
  for (const TileKind& kind : kTileKinds) {
    text += fmt::format("{} {:<8}{}\n", kind.sign, kind.name, count(kind));
  }
  return text;
}

std::string MaskPicture::json() const {
  nlohmann::ordered_json json;
  json["tile_queries"] = tile_queries;
  json["tile_keys"] = tile_keys;
  json["q_len"] = q_len;
  json["kv_len"] = kv_len;
  for (const TileKind& kind : kTileKinds) json[kind.name] = count(kind);
  json["rows"] = nlohmann::json::array();
  for (const auto& row : rows) json["rows"].push_back(row_text(row));
  return json.dump();
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
  picture.title = title_of(problem->spec, "mask");
  picture.shows_tiles = true;
  // The queries that one warpgroup has.
  if (plan.sm90) {
    picture.tile_queries = std::max(64 / plan.sm90->packed_heads(), 1);
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
  if (Status s = check_tiles(picture, num_rows, num_columns); !s) return std::move(s).error();
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

Result<MaskPicture> draw_scores(const ResolvedSpec& spec, ScoreTiles tiles,
                                const verify::ProblemRequest& request) {
  if (spec->merge) {
    return make_error(ErrorCode::kUnsupported, "a merge has no scores", "merge");
  }
  Result<verify::Problem> problem = verify::shape_problem(spec, request);
  if (!problem) return std::move(problem).error();
  Result<spec::Coordinates> at = coordinates_of(*problem, tiles.sequence, tiles.head);
  if (!at) return std::move(at).error();
  MaskPicture picture;
  picture.title = title_of(problem->spec, "mask");
  picture.tile_queries = tiles.queries;
  picture.tile_keys = tiles.keys;
  const int q_len = picture.q_len = at->q_len, kv_len = picture.kv_len = at->kv_len;
  const std::int64_t rows = (std::int64_t{q_len} + tiles.queries - 1) / tiles.queries;
  const std::int64_t columns = (std::int64_t{kv_len} + tiles.keys - 1) / tiles.keys;
  if (Status s = check_tiles(picture, rows, columns); !s) return std::move(s).error();
  if (std::int64_t{q_len} * kv_len > kMaxScores) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("{} queries and {} keys have more than {} scores", q_len, kv_len, kMaxScores),
        q_len > kv_len ? "q_len" : "kv_len");
  }
  if (Status s = verify::give_modification_tensors(std::move(tiles.tensors), request, *problem);
      !s) {
    return std::move(s).error();
  }
  const Result<verify::MaskAndScoreMod> rules = verify::MaskAndScoreMod::of(*problem);
  if (!rules) return rules.error();
  picture.rows.assign(static_cast<std::size_t>(rows),
                      std::vector<spec::TileStatus>(static_cast<std::size_t>(columns),
                                                    spec::TileStatus{false, false}));
  for (int row = 0; row < q_len; ++row) {
    auto& picture_row = picture.rows[static_cast<std::size_t>(row / tiles.queries)];
    for (int key = 0; key < kv_len; ++key) {
      spec::TileStatus& tile = picture_row[static_cast<std::size_t>(key / tiles.keys)];
      if (tile.seen && tile.hidden) continue;
      at->q_idx = row + kv_len - q_len;
      at->kv_idx = key;
      const bool visible = rules->visible(*at);
      (visible ? tile.seen : tile.hidden) = true;
    }
  }
  return picture;
}

}  // namespace attnjit::cli

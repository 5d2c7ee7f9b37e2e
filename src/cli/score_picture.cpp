// SPDX-License-Identifier: Apache-2.0
// Asks a score modification about scores, and says what it answers in text and in JSON.
#include "cli/score_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "cli/json.h"
#include "cli/mask_picture.h"
#include "verify/mask_and_score_mod.h"

namespace attnjit::cli {
namespace {

constexpr int kColumns = 64;  // cells in a row, at most
constexpr int kMaxRows = 1024;
constexpr double kFarthest = 100;  // of the scores that the curves begin and end with
constexpr int kSteps = 101;        // points of a curve
constexpr std::string_view kShades = ".:-=+*#%@";

/// The least and the greatest of the cells' answers that are numbers.
std::pair<double, double> range_of(const ScorePicture& picture) {
  double least = INFINITY, most = -INFINITY;
  for (const auto& row : picture.rows) {
    for (const std::optional<double>& cell : row) {
      if (!cell || !std::isfinite(*cell)) continue;
      least = std::min(least, *cell);
      most = std::max(most, *cell);
    }
  }
  return {least, most};
}

}  // namespace

std::string ScorePicture::text() const {
  const auto [least, most] = range_of(*this);
  std::string text = fmt::format(
      "{}: what becomes of a score of {:g}; {} queries (down) and {} keys (across), {} by {} to a "
      "sign\n",
      title, score, q_len, kv_len, cell_queries, cell_keys);
  for (const auto& row : rows) {
    for (const std::optional<double>& cell : row) {
      if (!cell || !std::isfinite(*cell)) {
        text += ' ';
        continue;
      }
      const double share = most > least ? (*cell - least) / (most - least) : 1;
      text += kShades[static_cast<std::size_t>(share * (kShades.size() - 1) + 0.5)];
    }
    text += '\n';
  }
  if (least <= most)
    text += fmt::format("{} is {:.4g}   @ is {:.4g}", kShades.front(), least, most);
  text += "   a blank is hidden\n";
  for (const Curve& curve : curves) {
    text += curves.size() == 1 ? "at every key of the last query:"
                               : fmt::format("at key {} of the last query:", curve.kv_idx);
    for (std::size_t i = 0; i < before.size(); i += (before.size() - 1) / 4) {
      text += fmt::format("  {:g} -> {:.4g}", before[i], curve.after[i]);
    }
    text += '\n';
  }
  return text;
}

std::string ScorePicture::json() const {
  Json json;
  json["score"] = score;
  json["cell_queries"] = cell_queries;
  json["cell_keys"] = cell_keys;
  json["q_len"] = q_len;
  json["kv_len"] = kv_len;
  json["rows"] = Json::array();
  for (const auto& row : rows) {
    Json values = Json::array();
    for (const std::optional<double>& cell : row) values.push_back(cell ? Json(*cell) : Json());
    json["rows"].push_back(std::move(values));
  }
  json["before"] = before;
  json["curves"] = Json::array();
  for (const Curve& curve : curves) {
    Json one;
    one["kv_idx"] = curve.kv_idx;
    one["after"] = curve.after;
    json["curves"].push_back(std::move(one));
  }
  json["text"] = text();
  return json.dump();
}

Result<ScorePicture> draw_score_mod(const ResolvedSpec& spec, ScoreQuestion question,
                                    const verify::ProblemRequest& request) {
  if (spec->merge) {
    return make_error(ErrorCode::kUnsupported, "a merge has no scores", "merge");
  }
  Result<verify::Problem> problem = verify::shape_problem(spec, request);
  if (!problem) return std::move(problem).error();
  const Result<spec::Coordinates> first =
      coordinates_of(*problem, question.sequence, question.head);
  if (!first) return first.error();
  ScorePicture picture;
  picture.title = title_of(problem->spec, "score_mod");
  picture.score = question.score;
  const int q_len = picture.q_len = first->q_len, kv_len = picture.kv_len = first->kv_len;
  if (q_len == 0 || kv_len == 0) {
    return make_error(ErrorCode::kInvalid, "there is no score to draw",
                      q_len == 0 ? "q_len" : "kv_len");
  }
  picture.cell_keys = (kv_len + kColumns - 1) / kColumns;
  // Signs are twice as high as wide.
  picture.cell_queries = picture.cell_keys == 1 ? 1 : 2 * picture.cell_keys;
  if ((q_len + picture.cell_queries - 1) / picture.cell_queries > kMaxRows) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("up to {} rows of {} queries are drawn", kMaxRows, picture.cell_queries),
        "q_len");
  }
  if (Status s = verify::give_modification_tensors(std::move(question.tensors), request, *problem);
      !s) {
    return std::move(s).error();
  }
  const Result<verify::MaskAndScoreMod> rules = verify::MaskAndScoreMod::of(*problem);
  if (!rules) return rules.error();
  const auto place = [&](int row, int key) {
    spec::Coordinates at = *first;
    at.q_idx = row + kv_len - q_len;
    at.kv_idx = key;
    return at;
  };
  for (int row = 0; row < q_len; row += picture.cell_queries) {
    auto& cells = picture.rows.emplace_back();
    for (int key = 0; key < kv_len; key += picture.cell_keys) {
      const spec::Coordinates at = place(std::min(row + picture.cell_queries / 2, q_len - 1),
                                         std::min(key + picture.cell_keys / 2, kv_len - 1));
      cells.push_back(rules->visible(at) ? std::optional(rules->modify(question.score, at))
                                         : std::nullopt);
    }
  }
  for (int i = 0; i < kSteps; ++i) {
    picture.before.push_back(kFarthest * (2 * i - (kSteps - 1)) / (kSteps - 1));
  }
  // The last key, and those that are further and further back.
  for (const int key : {kv_len - 1, kv_len - 1 - kv_len / 4, kv_len - 1 - kv_len / 2, 0}) {
    const spec::Coordinates at = place(q_len - 1, key);
    if (!rules->visible(at)) continue;
    ScorePicture::Curve curve{key, {}};
    for (const double score : picture.before) curve.after.push_back(rules->modify(score, at));
    const bool known = std::any_of(picture.curves.begin(), picture.curves.end(),
                                   [&](const auto& one) { return one.after == curve.after; });
    if (!known) picture.curves.push_back(std::move(curve));
  }
  return picture;
}

}  // namespace attnjit::cli

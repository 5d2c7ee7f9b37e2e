// SPDX-License-Identifier: Apache-2.0
// attnjit plan: prints a spec's plan as JSON or as text with maps of the memories, or what the
// kernel makes of its mask.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "cli/files.h"
#include "cli/mask_picture.h"
#include "cli/report.h"
#include "cli/score_picture.h"
#include "cli/spec_source.h"
#include "plan/print/plan_document.h"

namespace attnjit::cli {

namespace {

/// QUERIESxKEYS
std::optional<ScoreTiles> read_tile(const std::string& text) {
  ScoreTiles tiles;
  const char* const end = text.data() + text.size();
  const auto [cross, first] = std::from_chars(text.data(), end, tiles.queries);
  if (first != std::errc{} || cross == end || *cross != 'x') return {};
  const auto [stop, second] = std::from_chars(cross + 1, end, tiles.keys);
  if (second != std::errc{} || stop != end || tiles.queries < 1 || tiles.keys < 1) return {};
  return tiles;
}

Status read_tensors(const PlanArguments& arguments, verify::NamedTensors& tensors) {
  if (arguments.inputs.empty()) return {};
  Result<verify::NamedTensors> found = verify::read_inputs(arguments.inputs);
  if (!found) return std::move(found).error();
  tensors = std::move(*found);
  return {};
}

/// Tiles of a size that was asked for.
Result<MaskPicture> drawn_scores(const PlanArguments& arguments, const ResolvedSpec& spec,
                                 const verify::ProblemRequest& request) {
  std::optional<ScoreTiles> tiles = read_tile(arguments.tile);
  if (!tiles) {
    return invalid("tile", fmt::format("is '{}'; allowed: QUERIESxKEYS, as in 1x1 or 64x128",
                                       arguments.tile.substr(0, 64)));
  }
  tiles->sequence = arguments.sequence;
  tiles->head = arguments.head;
  if (Status s = read_tensors(arguments, tiles->tensors); !s) return std::move(s).error();
  return draw_scores(spec, std::move(*tiles), request);
}

/// A picture as text and JSON, and as SVG in a file where one is named.
template <class Picture>
Result<Report> report_of(const PlanArguments& arguments, const Result<Picture>& picture) {
  if (!picture) return picture.error();
  if (!arguments.picture.empty()) {
    if (Status written = write_file(arguments.picture, picture->svg()); !written) {
      return written.error();
    }
  }
  Report report;
  report.json = picture->json();
  report.text = picture->text();
  return report;
}

/// What is drawn of the mask, or of the score modification.
Result<Report> drawn(const PlanArguments& arguments, const ResolvedSpec& spec,
                     const Tuning* tuning) {
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, spec);
  if (!request) return std::move(request).error();
  request->batch = arguments.batch;
  request->all_scalars = true;  // a picture with numbers that nobody gave would be of another spec
  if (arguments.draw_score_mod) {
    ScoreQuestion question{arguments.sequence, arguments.head, arguments.score, {}};
    if (Status s = read_tensors(arguments, question.tensors); !s) return std::move(s).error();
    return report_of(arguments, draw_score_mod(spec, std::move(question), *request));
  }
  if (!arguments.tile.empty()) return report_of(arguments, drawn_scores(arguments, spec, *request));
  const Result<KernelPlan> made = plan(spec, tuning);
  if (!made) return made.error();
  return report_of(arguments, draw_mask(spec, *made, *request));
}

/// Arguments that are of another picture, or of none.
Status check_picture(const PlanArguments& arguments) {
  const bool drawn = arguments.draw_mask || arguments.draw_score_mod;
  if (arguments.draw_mask && arguments.draw_score_mod) {
    return invalid("draw_score_mod", "is a picture of its own; --draw-mask is another");
  }
  if (arguments.tile.empty() && !arguments.draw_score_mod &&
      (arguments.sequence != 0 || arguments.head != 0 || !arguments.inputs.empty())) {
    return invalid("tile", "is missing; --sequence, --head and --inputs are of its scores");
  }
  if (!arguments.picture.empty() && !drawn) return invalid("output", "is the file of a picture");
  if (!arguments.tile.empty() && !arguments.draw_mask) {
    return invalid("tile", "is the size of --draw-mask's tiles");
  }
  if (arguments.score != 0 && !arguments.draw_score_mod) {
    return invalid("score", "is what --draw-score-mod asks about");
  }
  return {};
}

}  // namespace

Result<Report> run_plan(const PlanArguments& arguments) {
  const std::optional<ConfigKind> kind = config_kind_from_string(arguments.config);
  if (!kind) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is '{}'; allowed: auto, fa4, mla, depth512, sm90",
                                  arguments.config.substr(0, 64)),
                      "config");
  }
  if (Status s = check_picture(arguments); !s) return std::move(s).error();
  // Of scores no architecture says more than another.
  const bool needs_scores = !arguments.tile.empty() || arguments.draw_score_mod;
  Result<ResolvedSpec> spec = read_spec(arguments.spec, needs_scores ? "sm_100a" : "");
  if (!spec) return std::move(spec).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.spec.tuning);
  if (!tuning) return std::move(tuning).error();
  if (arguments.draw_mask || arguments.draw_score_mod) {
    return drawn(arguments, *spec, tuning->get());
  }
  const LaunchQuery query{arguments.max_prompt_len, arguments.batch, arguments.sm_count};
  const Result<PlanDocument> document = plan_document(*spec, *kind, query, tuning->get());
  if (!document) return document.error();
  Report report;
  report.json = plan_to_json(*document);
  report.text = plan_to_text(*document);
  return report;
}

}  // namespace attnjit::cli

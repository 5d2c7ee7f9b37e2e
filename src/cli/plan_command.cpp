// SPDX-License-Identifier: Apache-2.0
// attnjit plan: prints a spec's plan as JSON or as text with maps of the memories, or what the
// kernel makes of its mask.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "cli/files.h"
#include "cli/mask_picture.h"
#include "cli/report.h"
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
  if (!arguments.inputs.empty()) {
    Result<verify::NamedTensors> tensors = verify::read_inputs(arguments.inputs);
    if (!tensors) return std::move(tensors).error();
    tiles->tensors = std::move(*tensors);
  }
  return draw_scores(spec, std::move(*tiles), request);
}

/// The mask's tiles, and their picture in a file where one is named.
Result<Report> drawn(const PlanArguments& arguments, const ResolvedSpec& spec,
                     const Tuning* tuning) {
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, spec);
  if (!request) return std::move(request).error();
  request->batch = arguments.batch;
  Result<MaskPicture> picture = MaskPicture();
  if (arguments.tile.empty()) {
    const Result<KernelPlan> made = plan(spec, tuning);
    if (!made) return made.error();
    picture = draw_mask(spec, *made, *request);
  } else {
    picture = drawn_scores(arguments, spec, *request);
  }
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

}  // namespace

Result<Report> run_plan(const PlanArguments& arguments) {
  const std::optional<ConfigKind> kind = config_kind_from_string(arguments.config);
  if (!kind) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is '{}'; allowed: auto, fa4, mla, depth512, sm90",
                                  arguments.config.substr(0, 64)),
                      "config");
  }
  // Of scores no architecture says more than another.
  Result<ResolvedSpec> spec = read_spec(arguments.spec, arguments.tile.empty() ? "" : "sm_100a");
  if (!spec) return std::move(spec).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.spec.tuning);
  if (!tuning) return std::move(tuning).error();
  if (arguments.tile.empty() &&
      (arguments.sequence != 0 || arguments.head != 0 || !arguments.inputs.empty())) {
    return invalid("tile", "is missing; --sequence, --head and --inputs are of its scores");
  }
  if (arguments.draw_mask) return drawn(arguments, *spec, tuning->get());
  if (!arguments.picture.empty()) return invalid("output", "is the file of --draw-mask's picture");
  if (!arguments.tile.empty()) return invalid("tile", "is the size of --draw-mask's tiles");
  const LaunchQuery query{arguments.max_prompt_len, arguments.batch, arguments.sm_count};
  const Result<PlanDocument> document = plan_document(*spec, *kind, query, tuning->get());
  if (!document) return document.error();
  Report report;
  report.json = plan_to_json(*document);
  report.text = plan_to_text(*document);
  return report;
}

}  // namespace attnjit::cli

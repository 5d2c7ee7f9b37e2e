// SPDX-License-Identifier: Apache-2.0
// attnjit plan: prints a spec's plan as JSON or as text with maps of the memories, or what the
// kernel makes of its mask.
#include <fmt/format.h>

#include "cli/files.h"
#include "cli/mask_picture.h"
#include "cli/report.h"
#include "cli/spec_source.h"
#include "plan/print/plan_json.h"
#include "plan/print/plan_text.h"

namespace attnjit::cli {

namespace {

/// The mask's tiles, and their picture in a file where one is named.
Result<Report> drawn(const PlanArguments& arguments, const ResolvedSpec& spec,
                     const Tuning* tuning) {
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, spec);
  if (!request) return std::move(request).error();
  const Result<KernelPlan> made = plan(spec, tuning);
  if (!made) return made.error();
  const Result<MaskPicture> picture = draw_mask(spec, *made, *request);
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
  Result<ResolvedSpec> spec = read_spec(arguments.spec);
  if (!spec) return std::move(spec).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.spec.tuning);
  if (!tuning) return std::move(tuning).error();
  if (arguments.draw_mask) return drawn(arguments, *spec, tuning->get());
  if (!arguments.picture.empty()) {
    return make_error(ErrorCode::kInvalid, "is the file of --draw-mask's picture", "output");
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

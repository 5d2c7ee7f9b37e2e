// SPDX-License-Identifier: Apache-2.0
// attnjit plan: prints a spec's plan as JSON or as text with maps of the memories.
#include <fmt/format.h>

#include "cli/report.h"
#include "cli/spec_source.h"
#include "plan/print/plan_json.h"
#include "plan/print/plan_text.h"

namespace attnjit::cli {

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
  const LaunchQuery query{arguments.max_prompt_len, arguments.batch, arguments.sm_count};
  const Result<PlanDocument> document = plan_document(*spec, *kind, query, tuning->get());
  if (!document) return document.error();
  Report report;
  report.json = plan_to_json(*document);
  report.text = plan_to_text(*document);
  return report;
}

}  // namespace attnjit::cli

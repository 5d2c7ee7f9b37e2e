// attnjit plan
#include <fmt/format.h>

#include "cli/report.h"
#include "cli/spec_source.h"
#include "plan/plan_json.h"
#include "plan/plan_text.h"

namespace attnjit::cli {

Result<Report> run_plan(const PlanArguments& arguments) {
  const std::optional<ConfigKind> kind = config_kind_from_string(arguments.config);
  if (!kind) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is '{}'; allowed: auto, fa4, mla, depth512, sm90",
                                  arguments.config.substr(0, 64)),
                      "config");
  }
  Result<SpecDocument> document = read_spec(arguments.spec);
  if (!document) return std::move(document).error();
  Tuning tuning;
  if (!arguments.tuning.empty()) {
    Result<Tuning> read = read_tuning(arguments.tuning);
    if (!read) return std::move(read).error();
    tuning = std::move(*read);
  }
  const LaunchQuery query{arguments.max_prompt_len, arguments.batch, arguments.sm_count};
  Report report;
  Result<std::string> json = plan_to_json(document->spec, document->options, *kind, query, &tuning);
  if (!json) return std::move(json).error();
  Result<std::string> text = plan_to_text(document->spec, document->options, *kind, query, &tuning);
  if (!text) return std::move(text).error();
  report.json = std::move(*json);
  report.text = std::move(*text);
  return report;
}

}  // namespace attnjit::cli

#include "plan/plan_text.h"

namespace attnjit {

Result<std::string> plan_to_text(const AttentionSpec& spec, const PlanOptions& options,
                                 ConfigKind kind, const LaunchQuery& query, const Tuning* tuning) {
  return plan_to_json(spec, options, kind, query, tuning);
}

}  // namespace attnjit

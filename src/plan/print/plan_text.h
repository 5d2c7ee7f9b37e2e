// SPDX-License-Identifier: Apache-2.0
// A plan for people: a table, and the shared-memory and tensor-memory maps drawn to scale.
//
// Thread rules: pure functions.
#pragma once

#include <string>

#include "plan/print/plan_json.h"

namespace attnjit {

/// UTF-8 text of several lines, no colours. Errors: as plan_to_json's.
Result<std::string> plan_to_text(const AttentionSpec& spec, const PlanOptions& options,
                                 ConfigKind kind = ConfigKind::kAuto, const LaunchQuery& query = {},
                                 const Tuning* tuning = nullptr);

}  // namespace attnjit

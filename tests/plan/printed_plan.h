// SPDX-License-Identifier: Apache-2.0
// A spec's plan as JSON text and as text for people, for tests that start from an AttentionSpec.
#pragma once

#include <string>

#include "plan/print/plan_json.h"
#include "plan/print/plan_text.h"

namespace attnjit {

inline Result<PlanDocument> document_of(const AttentionSpec& spec, const PlanOptions& options = {},
                                        ConfigKind kind = ConfigKind::kAuto,
                                        const LaunchQuery& query = {}) {
  const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec, options);
  if (!resolved) return resolved.error();
  return plan_document(*resolved, kind, query);
}

}  // namespace attnjit

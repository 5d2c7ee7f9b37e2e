// SPDX-License-Identifier: Apache-2.0
// A spec's plan as JSON text and as text for people, for tests that start from an AttentionSpec.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan/print/plan_document.h"

namespace attnjit {

inline Result<PlanDocument> document_of(const AttentionSpec& spec, const PlanOptions& options = {},
                                        ConfigKind kind = ConfigKind::kAuto,
                                        const LaunchQuery& query = {}) {
  const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec, options);
  if (!resolved) return resolved.error();
  return plan_document(*resolved, kind, query);
}

/// The plan of a spec's JSON text, as JSON; an empty object where there is none, which is told.
inline nlohmann::json plan_of(const std::string& spec, ConfigKind kind = ConfigKind::kAuto,
                              const LaunchQuery& query = {}) {
  const Result<SpecDocument> document = spec_from_json(spec);
  if (!document) {
    ADD_FAILURE() << document.error().to_string();
    return nlohmann::json::object();
  }
  const Result<PlanDocument> plan = document_of(document->spec, document->options, kind, query);
  if (!plan) {
    ADD_FAILURE() << plan.error().to_string();
    return nlohmann::json::object();
  }
  return nlohmann::json::parse(plan_to_json(*plan));
}

}  // namespace attnjit

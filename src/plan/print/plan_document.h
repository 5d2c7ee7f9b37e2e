// SPDX-License-Identifier: Apache-2.0
// PlanDocument: a plan with everything that is shown of it; its JSON and its text are made of this.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "plan/print/plan_json.h"

namespace attnjit {

struct PlanDocument {
  KernelPlan plan;
  nlohmann::ordered_json json;
};

/// The configuration's fields and methods under their names, `config`, `supported` and `reason`
/// beside them, and under `kernel` what the kernel really uses. An unsupported configuration is
/// shown all the same. Errors: kInvalid as plan()'s, and for a query out of range.
Result<PlanDocument> plan_document(const AttentionSpec& spec, const PlanOptions& options,
                                   ConfigKind kind, const LaunchQuery& query, const Tuning* tuning);

}  // namespace attnjit

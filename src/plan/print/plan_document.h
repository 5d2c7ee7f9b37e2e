// SPDX-License-Identifier: Apache-2.0
// PlanDocument: a plan with everything that is shown of it, for programs as JSON, for people as
// text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/reference/reference_json.h"

namespace attnjit {

/// A launch that the 1Q or 2Q choice is asked for. Without max_prompt_len there is no answer;
/// batch defaults to 1, sm_count to what the architecture's GPU has.
struct LaunchQuery {
  std::optional<std::int64_t> max_prompt_len;
  std::optional<std::int64_t> batch;
  std::optional<std::int64_t> sm_count;
};

struct PlanDocument {
  KernelPlan plan;
  nlohmann::ordered_json json;
};

/// The configuration's fields and methods under their names, `config`, `supported` and `reason`
/// beside them, and under `kernel` what the kernel really uses. An unsupported configuration is
/// shown all the same. `tuning` may be null. Errors: kInvalid as plan()'s, and for a query out of
/// range.
Result<PlanDocument> plan_document(const ResolvedSpec& spec, ConfigKind kind = ConfigKind::kAuto,
                                   const LaunchQuery& query = {}, const Tuning* tuning = nullptr);

/// One JSON object.
std::string plan_to_json(const PlanDocument& document);
/// UTF-8 text of several lines, no colours: a table, and the shared-memory and tensor-memory maps
/// drawn to scale.
std::string plan_to_text(const PlanDocument& document);

}  // namespace attnjit

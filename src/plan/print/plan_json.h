// SPDX-License-Identifier: Apache-2.0
// A plan for programs: one JSON object.
#pragma once

#include <string>

#include "plan/print/plan_document.h"

namespace attnjit {

/// The document's JSON as text.
std::string plan_to_json(const PlanDocument& document);

}  // namespace attnjit

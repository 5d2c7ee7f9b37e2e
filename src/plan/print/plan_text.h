// SPDX-License-Identifier: Apache-2.0
// A plan for people: a table, and the shared-memory and tensor-memory maps drawn to scale.
#pragma once

#include <string>

#include "plan/print/plan_document.h"

namespace attnjit {

/// UTF-8 text of several lines, no colours.
std::string plan_to_text(const PlanDocument& document);

}  // namespace attnjit

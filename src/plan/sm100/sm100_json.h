// SPDX-License-Identifier: Apache-2.0
// An Sm100Plan's own fields in the JSON of a plan.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attnjit/plan.h"

namespace attnjit {

/// Adds the fields by their names in Sm100Plan.
void add_sm100(const Sm100Plan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

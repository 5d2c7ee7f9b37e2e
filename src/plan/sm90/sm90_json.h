// SPDX-License-Identifier: Apache-2.0
// An Sm90Plan's own fields in the JSON of a plan.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attnjit/plan.h"

namespace attnjit {

/// Adds the fields by their names in Sm90Plan.
void add_sm90(const Sm90Plan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

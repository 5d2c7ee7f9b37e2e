// SPDX-License-Identifier: Apache-2.0
// An Sm90MlaPlan's own fields in the JSON of a plan.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attnjit/plan.h"

namespace attnjit {

/// Adds the fields of an Sm90Plan, by their names there; what only that kernel has is off.
void add_sm90_mla(const Sm90MlaPlan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// An Sm100MlaPlan's own fields in the JSON of a plan.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attnjit/plan.h"

namespace attnjit {

/// Adds what it chose, and its warps.
void add_sm100_mla(const Sm100MlaPlan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

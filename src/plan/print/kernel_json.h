// SPDX-License-Identifier: Apache-2.0
// A KernelPlan as a JSON object: what `attnjit plan --json` shows under `kernel`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "attnjit/plan.h"

namespace attnjit {

nlohmann::ordered_json kernel_to_json(const KernelPlan& plan);

}  // namespace attnjit

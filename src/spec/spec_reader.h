// SPDX-License-Identifier: Apache-2.0
// Turns a JSON object into a ResolvedSpec, collecting every problem.
#pragma once

#include <string>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/json_value.h"

namespace attnjit::spec {

/// Reads and validates. `path` prefixes the fields of errors ("specs[3].").
/// Errors carry the JSON position, or, for a snippet, the position within its code.
Result<ResolvedSpec> read_spec(const JsonValue& root, const std::string& path = {});

}  // namespace attnjit::spec

// SPDX-License-Identifier: Apache-2.0
// Turns a JSON object into a ResolvedSpec, collecting every problem.
#pragma once

#include <optional>
#include <string>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/json_value.h"
#include "spec/spec_fields.h"

namespace attnjit::spec {

/// Reads and validates. `path` prefixes the fields of errors ("specs[3].").
/// Errors carry the JSON position, or, for a snippet, the position within its code.
Result<ResolvedSpec> read_spec(const JsonValue& root, const std::string& path = {});

/// What field_text() is of specs that have this value; nothing where none can have it. Of a mask or
/// a score modification it is the name of a kind.
std::optional<std::string> field_text_of(const SpecField& field, const JsonValue& value);

}  // namespace attnjit::spec

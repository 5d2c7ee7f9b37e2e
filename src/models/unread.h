// SPDX-License-Identifier: Apache-2.0
// Which fields of a configuration may change attention, and were not read.
//
// Thread rules: pure functions.
#pragma once

#include "attnjit/result.h"
#include "models/fields.h"
#include "spec/json_value.h"

namespace attnjit::models {

/// Refuses the first field of `object` whose name says that it concerns attention, unless it was
/// read, is known to decide no kernel, or has the value that the class has without it. `place`
/// stands before the name in the error.
/// Errors: kInvalid, with the field.
Status refuse_unread(const spec::JsonValue& object, std::string_view model_type,
                     const Fields& fields, std::string_view place = {});

}  // namespace attnjit::models

// SPDX-License-Identifier: Apache-2.0
// Reads --param NAME=VALUE and NAME=@FILE.npy.
#pragma once

#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// One argument against the parameters that the spec declares: a number becomes the declared scalar
/// type; a file must have the declared element type (i64 that fits i32, and f64, are converted) and
/// rank. Errors: kInvalid, field "param NAME".
Result<ParamArgument> parse_param(std::string_view text, const std::vector<ParamSpec>& declared);

}  // namespace attnjit::verify

// SPDX-License-Identifier: Apache-2.0
// Reads --param NAME=VALUE and NAME=@FILE.npy, and gives files' elements the types of a spec.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// A file's elements as another type: f64 as f32, f32 as bf16, i64 as i32 or u32 where that holds
/// each. Errors: kInvalid with `field`.
Result<Tensor> converted(Tensor tensor, Dtype want, const std::string& field);

/// One argument against the parameters that the spec declares: a number becomes the declared scalar
/// type; a file must have the declared element type (i64 that fits i32, and f64, are converted) and
/// rank. Errors: kInvalid, field "param NAME".
Result<ParamArgument> parse_param(std::string_view text, const std::vector<ParamSpec>& declared);

}  // namespace attnjit::verify

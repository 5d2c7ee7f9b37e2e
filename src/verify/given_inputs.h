// SPDX-License-Identifier: Apache-2.0
// A Problem over tensors that somebody gives, in place of random ones.
//
// Thread rules: pure functions.
#pragma once

#include <map>
#include <string>

#include "attnjit/result.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// Tensors by the names of Problem::tensors.
using NamedTensors = std::map<std::string, Tensor>;

/// Each NAME.npy of a folder, as dump() writes them; what dump() adds to the inputs (o, lse and
/// scale) is left out. Errors: kInvalid, field the file or the folder.
Result<NamedTensors> read_inputs(const std::string& folder);

/// The Problem of a whole call: its lengths are those of the tensors, and each index is checked, so
/// that the reference reads nothing else. q, k and v may also be f32 or f64, whatever the spec
/// says. Of `request` the scale, the scalars and the parameters count. Errors: kInvalid with the
/// tensor's name and what is allowed; kUnsupported for a merge, a format of the cache other than
/// plain, and rope parts of their own.
Result<Problem> given_problem(const AttentionSpec& spec, NamedTensors given,
                              const ProblemRequest& request);

/// What the mask and the score modification read of a problem that has its shapes: the materialized
/// mask, slopes, the parameters and the lists of blocks. Errors: as given_problem, also where one
/// of the first three is missing.
Status give_modification_tensors(NamedTensors given, const ProblemRequest& request,
                                 Problem& problem);

}  // namespace attnjit::verify

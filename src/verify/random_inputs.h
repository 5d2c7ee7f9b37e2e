// SPDX-License-Identifier: Apache-2.0
// Makes the input tensors of a Problem from a seed.
#pragma once

#include "verify/problem.h"

namespace attnjit::verify {

/// Fills problem.tensors. Values depend on the seed and on the logical position (sequence, row,
/// head, element) alone: a paged problem holds the same keys as the one that is not. Memory that no
/// valid row occupies (rows past kv_len, spare pages, pages behind a window) is NaN with normal
/// inputs, so that a value that was multiplied by a weight of 0 shows, and large with the others,
/// so that a key that was not hidden shows also where a kernel loses a NaN in a maximum.
/// @pre shapes and scalars are set and were checked
void fill_random_inputs(Problem& problem, const ProblemRequest& request);

}  // namespace attnjit::verify

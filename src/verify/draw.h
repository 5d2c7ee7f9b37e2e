// SPDX-License-Identifier: Apache-2.0
// Draws the tensors of a Problem from a seed.
#pragma once

#include "verify/problem.h"

namespace attnjit::verify {

/// Fills problem.tensors. Values depend on the seed and on the logical position (sequence, row,
/// head, element) alone: a paged problem holds the same keys as the one that is not. Memory that no
/// valid row occupies (rows past kv_len, spare pages) holds large finite values.
/// @pre shapes and scalars are set and were checked
void draw_tensors(Problem& problem, const ProblemRequest& request);

}  // namespace attnjit::verify

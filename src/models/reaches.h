// SPDX-License-Identifier: Apache-2.0
// Which keys the rows of each layer see, as a configuration says it or as its architecture has it.
//
// Thread rules: pure functions.
#pragma once

#include <vector>

#include "models/architectures.h"
#include "models/fields.h"

namespace attnjit::models {

/// How far the rows of a layer see.
enum class Reach { kAll, kWindow, kChunk, kIndexed, kNoAttention };

/// One for each layer; empty where `fields` has an error.
std::vector<Reach> reaches_of(const Architecture& architecture, Fields& fields);

}  // namespace attnjit::models

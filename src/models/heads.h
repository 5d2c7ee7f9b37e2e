// SPDX-License-Identifier: Apache-2.0
// The heads and depths of one layer, as a configuration says them.
//
// Thread rules: pure functions.
#pragma once

#include <cstddef>

#include "models/architectures.h"
#include "models/fields.h"
#include "models/layers.h"
#include "models/reaches.h"

namespace attnjit::models {

/// Heads, depths and MLA's latent of layer `index`.
LayerKind heads_of(const Architecture& architecture, Fields& fields, Reach reach,
                   std::size_t index);

}  // namespace attnjit::models

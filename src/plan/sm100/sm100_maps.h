// SPDX-License-Identifier: Apache-2.0
// The tensor maps through which the sm_100 kernels load Q, K and V, and store O.
#pragma once

#include <cstdint>

#include "plan/sm100/sm100_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Adds the maps of a body to the plan: boxes of a block of columns, `swizzle_bytes` wide, and of a
/// query tile's rows, or of what a CTA has of a tile of K or V. There are none of K and V where
/// threads load them.
void add_tensor_maps(const SpecFacts& spec, const Sm100Variant& variant, std::int64_t swizzle_bytes,
                     Sm100Plan& plan);

}  // namespace attnjit

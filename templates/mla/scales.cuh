// SPDX-License-Identifier: Apache-2.0
// What the elements of K, and so of V, are to be multiplied by, where they are e4m3 with scales.
#pragma once

#include "common/scales.cuh"
#include "common/work_tiles.cuh"

namespace attnjit::mla {

/// Whether K has scales (Config::kScales): one, or of each sequence, whose one head it is.
template <class Config>
constexpr bool kHasScales = Config::kScales != kNoScales;

/// The scale of a work tile's keys.
template <class Config, class Arguments>
ATTNJIT_DEVICE float key_scale(const WorkTile& work, const Arguments& arguments) {
  return scale_of<Config>(arguments.k_scale, work.batch, 1, 0);
}

/// What its rows' sums of values are to be multiplied by.
template <class Config, class Arguments>
ATTNJIT_DEVICE float value_scale(const WorkTile& work, const Arguments& arguments) {
  if constexpr (!kHasScales<Config>) {
    return 1.0f;
  } else {
    return key_scale<Config>(work, arguments);
  }
}

}  // namespace attnjit::mla

// SPDX-License-Identifier: Apache-2.0
// What the elements of Q, K and V are to be multiplied by, where they are e4m3 with scales.
#pragma once

#include "common/key_scales.cuh"
#include "sm90/layout.cuh"
#include "sm90/softmax.cuh"

namespace attnjit::sm90 {

/// The scales of a thread's two rows, which are 8 apart: one, or one each where rows have scales of
/// their own, or are of two heads that have.
template <class Config>
constexpr int kRowScales = Config::kE4m3&& Config::kScales == kTokenScales ? 2
                           : Config::kScales == kHeadScales&& Config::kE4m3 &&
                                   (Config::kGqaShift > 3 || packs_units<Config>())
                               ? 2
                               : 1;

/// The scale of a tensor's elements in a sequence's head.
template <class Config>
ATTNJIT_DEVICE float scale_of(const float* scales, int batch, int heads, int head) {
  return scales[Config::kScales == kHeadScales ? static_cast<i64>(batch) * heads + head : 0];
}

/// What the products of a head's row with the keys are to be multiplied by, without what keys have
/// of their own. `position` is one of the sequence.
template <class Config, class Arguments>
ATTNJIT_DEVICE float row_scale(const WorkTile& work, int head, int position,
                               const Arguments& arguments) {
  if constexpr (Config::kE4m3) {
    const i64 row =
        (Config::kRagged ? work.q_begin : static_cast<i64>(work.batch) * arguments.q_len) +
        position;
    return arguments.scale * arguments.q_scale[row * arguments.num_q_heads + head];
  } else {
    return arguments.scale;
  }
}

/// The same of a head's rows, where scales are of tensors or heads.
template <class Config, class Arguments>
ATTNJIT_DEVICE float score_scale(const WorkTile& work, int head, const Arguments& arguments) {
  if constexpr (Config::kScales == kNoScales) {
    return arguments.scale;
  } else {
    const int heads = arguments.num_q_heads;
    float scale = arguments.scale;
    if constexpr (Config::kE4m3) {
      scale *= scale_of<Config>(arguments.q_scale, work.batch, heads, head);
    }
    return scale * scale_of<Config>(arguments.k_scale, work.batch, heads / Config::kGroup,
                                    work.head / Config::kGroup);
  }
}

/// What the sums of values are to be multiplied by.
template <class Config, class Arguments>
ATTNJIT_DEVICE float value_scale(const WorkTile& work, const Arguments& arguments) {
  if constexpr (Config::kScales == kNoScales || keys_have_scales<Config>()) {
    return 1.0f;
  } else {
    return scale_of<Config>(arguments.v_scale, work.batch, arguments.num_q_heads / Config::kGroup,
                            work.head / Config::kGroup);
  }
}

}  // namespace attnjit::sm90

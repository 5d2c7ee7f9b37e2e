// SPDX-License-Identifier: Apache-2.0
// What the elements of Q, K and V are to be multiplied by, where K and V are e4m3 with scales, and
// Q perhaps, too.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Who has a scale of its own (Config::kScales).
constexpr int kNoScales = 0, kTensorScales = 1, kHeadScales = 2, kTokenScales = 3;

/// The scale of a tensor's elements in a sequence's head.
template <class Config>
ATTNJIT_DEVICE float scale_of(const float* scales, int batch, int heads, int head) {
  return scales[Config::kScales == kHeadScales ? static_cast<i64>(batch) * heads + head : 0];
}

/// What the products of a head's row with the keys are to be multiplied by, without what keys have
/// of their own. `position` is one of the sequence. Work: a work tile.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE float row_scale(const Work& work, int head, int position,
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

/// The key-value head of a work tile.
template <class Config, class Work>
ATTNJIT_DEVICE int kv_head_in(const Work& work) {
  if constexpr (requires { work.kv_head; }) {
    return work.kv_head;
  } else {
    return work.head / Config::kGroup;
  }
}

/// The same of a head's rows, where scales are of tensors or heads.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE float score_scale(const Work& work, int head, const Arguments& arguments) {
  if constexpr (Config::kScales == kNoScales) {
    return arguments.scale;
  } else {
    const int heads = arguments.num_q_heads;
    float scale = arguments.scale;
    if constexpr (Config::kE4m3) {
      scale *= scale_of<Config>(arguments.q_scale, work.batch, heads, head);
    }
    return scale * scale_of<Config>(arguments.k_scale, work.batch, heads / Config::kGroup,
                                    kv_head_in<Config>(work));
  }
}

/// What the sums of values are to be multiplied by.
template <class Config, class Work, class Arguments>
ATTNJIT_DEVICE float value_scale(const Work& work, const Arguments& arguments) {
  if constexpr (Config::kScales == kNoScales || Config::kScales == kTokenScales) {
    return 1.0f;
  } else {
    return scale_of<Config>(arguments.v_scale, work.batch, arguments.num_q_heads / Config::kGroup,
                            kv_head_in<Config>(work));
  }
}

}  // namespace attnjit

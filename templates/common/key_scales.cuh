// SPDX-License-Identifier: Apache-2.0
// The scales that each key of e4m3 has of its own, of K and of V: where they lie, and what scores
// and weights take of them.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Where a key's scales lie in k_scale and v_scale, those of head 0; -1 where it has none.
/// `first_row`: of key 0 in k and v, where there are no pages.
template <class Config, class Arguments>
ATTNJIT_DEVICE i64 scales_of_key(int batch, int kv_len, i64 first_row, int key,
                                 const Arguments& arguments) {
  if (key >= kv_len) return -1;
  if constexpr (Config::kPageSize > 0) {
    const int page =
        arguments
            .page_table[static_cast<i64>(batch) * arguments.max_pages + key / Config::kPageSize];
    // A page past the last has no memory.
    if (page < 0 || page >= arguments.num_pages) return -1;
    return page * arguments.scale_page_stride +
           key % Config::kPageSize * arguments.scale_row_stride;
  } else {
    return (first_row + key) * (arguments.num_q_heads / Config::kGroup);
  }
}

/// The scales of one key, of K and of V, as they lie in memory.
struct ScalesOfKey {
  float k, v;

  /// Begins to load them. `first`: where those of head 0 lie; -1: the key has none. Past the end
  /// the mask hides what comes of it.
  template <class Config, class Arguments>
  ATTNJIT_DEVICE void load(i64 first, int kv_head, const Arguments& arguments) {
    i64 at = first + kv_head;
    if constexpr (Config::kPageSize > 0) at = first + kv_head * arguments.scale_head_stride;
    k = first < 0 ? 1.0f : arguments.k_scale[at];
    v = first < 0 ? 1.0f : arguments.v_scale[at];
  }

  /// put(k_scale, log2 of v_scale, 1 / v_scale).
  ///
  /// NOTE: v_scale is made an exponent. P times v_scale might exceed what P's type holds, or
  /// vanish. So what is exponentiated is the score and the logarithm of v_scale, relative to the
  /// row's greatest such number: P is the weight that V's elements have as they are stored. The
  /// row's sum is of P / v_scale. A v_scale is 2^-60 at least, so that one of 0 makes no NaN: the
  /// key then still counts in the sum of the row.
  template <class Put>
  ATTNJIT_DEVICE void put_factors(const Put& put) const {
    const float value = fmaxf(v, 0x1p-60f);
    put(k, log2_approx(value), reciprocal_approx(value));
  }
};

}  // namespace attnjit

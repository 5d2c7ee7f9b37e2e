// SPDX-License-Identifier: Apache-2.0
// Merges two partial attentions over different keys: O = sum_i exp(lse_i - lse) O_i with
// lse = log(sum_i exp(lse_i)).
#pragma once

#include "common/ptx.cuh"

namespace attnjit::partials {

/// A factor's share of an element. NOTE: what a pair that saw no key holds in O may be anything, a
/// NaN too: it must not be multiplied by the factor 0.
ATTNJIT_DEVICE float share(float factor, float value) {
  return factor == 0.0f ? 0.0f : factor * value;
}

/// A warp merges row after row of `partial_o` into `o`. Rows are numbered as LSE is: batch, head,
/// position; partial_o is packed as [batch, position, head, depth].
template <class Config, class Arguments>
ATTNJIT_DEVICE void merge(const Arguments& arguments) {
  constexpr float kLog2e = 1.4426950408889634f;
  constexpr float kLn2 = 0.6931471805599453f;
  constexpr int kWarps = Config::kThreads / 32;
  constexpr int kWords = Config::kDepth / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const long long step = static_cast<long long>(gridDim.x) * kWarps;
  for (long long row = static_cast<long long>(blockIdx.x) * kWarps + warp; row < arguments.rows;
       row += step) {
    const long long position = row % arguments.rows_per_head;
    const long long head_and_batch = row / arguments.rows_per_head;
    const long long head = head_and_batch % Config::kHeads;
    const long long batch = head_and_batch / Config::kHeads;
    u32* const o =
        reinterpret_cast<u32*>(arguments.o + batch * arguments.o_batch_bytes +
                               position * arguments.o_row_bytes + head * arguments.o_head_bytes);
    const u32* const partial =
        reinterpret_cast<const u32*>(arguments.partial_o) +
        ((batch * arguments.rows_per_head + position) * Config::kHeads + head) * kWords;

    const float old_lse = arguments.lse[row];
    const float new_lse = arguments.partial_lse[row];
    const float top = fmaxf(old_lse, new_lse);
    const bool nothing = top == -infinity();
    const float old_weight = nothing ? 0.0f : exp2_approx((old_lse - top) * kLog2e);
    const float new_weight = nothing ? 0.0f : exp2_approx((new_lse - top) * kLog2e);
    const float sum = old_weight + new_weight;
    const float scale = nothing ? 0.0f : 1.0f / sum;
    for (int word = lane; word < kWords; word += 32) {
      const FloatPair a = unpack_pair<Config::kBf16>(o[word]);
      const FloatPair b = unpack_pair<Config::kBf16>(partial[word]);
      o[word] =
          pack_pair<Config::kBf16>(share(old_weight * scale, a.x) + share(new_weight * scale, b.x),
                                   share(old_weight * scale, a.y) + share(new_weight * scale, b.y));
    }
    // Every lane has read the row's old LSE before one writes the new.
    __syncwarp();
    if (lane == 0) arguments.lse[row] = nothing ? -infinity() : top + kLn2 * log2_approx(sum);
  }
}

}  // namespace attnjit::partials

// SPDX-License-Identifier: Apache-2.0
// A consumer's O on its way to global memory, straight from its registers, so that Q's memory is
// free for the next work tile before this one ends.
#pragma once

#include "sm90_mla/layout.cuh"

namespace attnjit::sm90_mla {

/// Deals words out over a quad: of words 0 to 3 of each lane, lane i gets word i of every lane, in
/// their order.
ATTNJIT_DEVICE void transpose_quad(u32 (&words)[4], int lane) {
  const bool odd = (lane & 1) != 0;
  const bool upper = (lane & 2) != 0;
  const auto trade = [](u32& first, u32& second, bool swap, int lanes) {
    // A lane keeps one of the two and gives the other.
    const u32 kept = swap ? second : first;
    const u32 got = __shfl_xor_sync(0xffffffffu, swap ? first : second, lanes);
    first = swap ? got : kept;
    second = swap ? kept : got;
  };
  trade(words[0], words[1], odd, 1);
  trade(words[2], words[3], odd, 1);
  trade(words[0], words[2], upper, 2);
  trade(words[1], words[3], upper, 2);
}

/// Writes a block of 64 columns of a thread's row. `column` is its first; `address` of the row's.
template <class Config>
ATTNJIT_DEVICE void store_block(const float (&o)[32], int half, unsigned char* address, int column,
                                bool real, int lane) {
#pragma unroll
  for (int group = 0; group < 8; group += 4) {
    u32 words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * (group + i) + 2 * half;
      words[i] = pack_pair<Config::kOutputBf16>(o[at], o[at + 1]);
    }
    transpose_quad(words, lane);
    if (real) {
      store_global_v4(address + 2 * (column + 8 * (group + (lane & 3))), words[0], words[1],
                      words[2], words[3]);
    }
  }
}

/// Writes a block of a thread's row of the O of a partition, which is f32.
ATTNJIT_DEVICE void store_partial_block(const float (&o)[32], int half, float* address, int column,
                                        int lane) {
#pragma unroll
  for (int i = 2 * half; i < 32; i += 4) {
    store_global_v2(address + column + 8 * (i >> 2) + 2 * (lane & 3), o[i], o[i + 1]);
  }
}

}  // namespace attnjit::sm90_mla

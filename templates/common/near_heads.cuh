// SPDX-License-Identifier: Apache-2.0
// The order of tiles that share L2: those of one rank come together, of as many heads as it holds
// the keys of.
#pragma once

#include "common/integers.cuh"
#include "common/ptx.cuh"

namespace attnjit {

/// Bytes of K and V of the heads whose tiles come together, at most: half of an H200's L2, because
/// half of it is far.
constexpr int kNearL2Bytes = 25'000'000;

/// Of a key of a head and its value.
template <class Config>
inline constexpr int kKeyBytes = (Config::kQkDepth + Config::kOvDepth) *
                                 (Config::kE4m3 || Config::kUpcastsKv ? 1 : 2);

/// A tile's place among those of a run of heads that share L2, sorted by their rank.
struct NearHeads {
  int first, count;  ///< of the run
  int place;         ///< from 0 on

  /// Of the tile `index` of `heads` heads, each of which has `tiles` tiles and `kv_len` keys.
  template <class Config>
  ATTNJIT_DEVICE static NearHeads of(int index, int tiles, int heads, int kv_len) {
    const int fit = quotient(kNearL2Bytes / kKeyBytes<Config>, max(kv_len, 1));
    const int together = max(1, min(fit, heads));
    const int first = quotient(index, together * tiles) * together;
    return {first, min(together, heads - first), index - first * tiles};
  }
  ATTNJIT_DEVICE int rank() const { return quotient(place, count); }
  ATTNJIT_DEVICE int head(int rank) const { return first + place - rank * count; }
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Deals query tiles out to CTAs.
#include "plan/launch/query_tiling.h"

#include <algorithm>

namespace attnjit {

TileShares deal_out(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas) {
  // Whole rounds of pairs that are left to the tail, beside the last that is none: as few as even
  // out the rest to 2 %, because the tail's tiles are of many heads, whose K and V share L2.
  constexpr std::int32_t kTailRounds = 1;
  TileShares shares;
  shares.ctas = std::min(total_tiles, std::max(ctas, 1));
  if (!pair_tiles) return shares;
  const std::int32_t pairs = total_tiles / m_tiles * (m_tiles - m_tiles / 2);
  shares.paired_units = std::max(pairs / shares.ctas - kTailRounds, 0) * shares.ctas;
  return shares;
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// The ring of K and V tiles in the shared memory of an sm_100 kernel.
#pragma once

#include <cstdint>
#include <optional>

#include "attnjit/result.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {

struct Sm100Ring {
  std::int64_t slots = 0;
  bool fused = false;
  std::int64_t qk_stages = 1;
  bool capped_by_barriers = false;

  /// Of K and V.
  std::int64_t stages() const { return fused ? slots : slots / 2; }
};

/// Chooses the ring as the reference does: as many K and V tiles as fit, an odd count in one ring,
/// an even count in two with K staged where that fits too; then as few as the barriers allow.
/// `only_fused`: the one kind or the other.
Sm100Ring sm100_choose_ring(const Sm100LayoutRequest& tile,
                            std::optional<bool> only_fused = std::nullopt);

/// A tuned ring: what the row leaves open stays as chosen.
/// Errors: kInvalid for a choice that cannot be.
Result<Sm100Ring> sm100_tune_ring(const Sm100LayoutRequest& tile, Sm100Ring ring,
                                  const Sm100Tuning& tuned);

/// The ring beside O's buffers. K comes whole, unless it is tuned: in chunks of its columns it is
/// another copy of the code for its loads and products (2.5 % of a compile, for 1 % by the clock).
Sm100Ring sm100_ring_beside_o(Sm100LayoutRequest tile);

/// Whether O has buffers beside Q: where they leave two query tiles' K and V a ring of four tiles
/// at least, of six where they are upcast (with four a decode of depth 128 was 2.5 % slower by the
/// clock). Not where a query tile of O has more blocks than there are buffers, or K a rope part.
bool sm100_has_own_o(Sm100LayoutRequest tile, const Sm100Tuning& tuned);

}  // namespace attnjit

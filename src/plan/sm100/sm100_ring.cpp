// SPDX-License-Identifier: Apache-2.0
// Chooses the ring of K and V tiles.
#include "plan/sm100/sm100_ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/reference/config_math.h"

namespace attnjit {

Sm100Ring sm100_choose_ring(const Sm100LayoutRequest& tile, std::optional<bool> only_fused) {
  const std::int64_t slot_bytes = lay_out_fa4(tile, 2, false, 1).v_stage_bytes;
  const std::int64_t most = std::min<std::int64_t>(128, kSm100SmemBytes / slot_bytes);
  auto in_memory = [&](std::int64_t slots, bool fused, std::int64_t qk_stages) {
    return lay_out_fa4(tile, slots, fused, qk_stages).smem_bytes() <= kSm100SmemBytes;
  };
  const bool even_only = tile.exact_qk_stages && tile.max_qk_stages > 1;
  Sm100Ring ring;
  for (std::int64_t slots = most; slots >= 2 && ring.slots == 0; --slots) {
    const bool fused = only_fused.value_or(slots % 2 != 0);
    if (fused && even_only) continue;
    if (!fused && slots % 2 != 0) continue;
    if (!fused && in_memory(slots, false, tile.max_qk_stages)) {
      ring = {slots, false, tile.max_qk_stages, false};
    } else if (!even_only && in_memory(slots, fused, 1)) {
      ring = {slots, fused, 1, false};
    }
  }
  while (ring.slots > 0 && !fits(lay_out_fa4(tile, ring.slots, ring.fused, ring.qk_stages))) {
    ring.capped_by_barriers = true;
    ring.slots -= ring.fused ? 1 : 2;
  }
  return ring;
}

Result<Sm100Ring> sm100_tune_ring(const Sm100LayoutRequest& tile, Sm100Ring ring,
                                  const Sm100Tuning& tuned) {
  const std::optional<std::int64_t> fused = tuned.use_fused_kv;
  const std::optional<std::int64_t> stages = tuned.num_kv_stages;
  const std::optional<std::int64_t> qk_stages = tuned.num_qk_stages;
  if (!fused && !stages && !qk_stages) return ring;
  if (fused) {
    if (*fused != 0 && *fused != 1) {
      return bad_choice(&Sm100Tuning::use_fused_kv, "is {}; allowed: 0, 1", *fused);
    }
    ring.slots = stages || ring.fused == (*fused == 1) ? ring.slots : align_down(ring.slots, 2);
    ring.fused = *fused == 1;
  }
  if (stages) {
    if (*stages < 2 || *stages > 64) {
      return bad_choice(&Sm100Tuning::num_kv_stages, "is {}; allowed: 2 to 64", *stages);
    }
    ring.slots = ring.fused ? *stages : 2 * *stages;
  }
  if (ring.fused) ring.qk_stages = 1;
  if (qk_stages) {
    if (*qk_stages != 1 && (ring.fused || *qk_stages != tile.max_qk_stages)) {
      return bad_choice(&Sm100Tuning::num_qk_stages, "is {}; allowed: 1{}", *qk_stages,
                        ring.fused || tile.max_qk_stages == 1
                            ? std::string()
                            : fmt::format(", {}", tile.max_qk_stages));
    }
    ring.qk_stages = *qk_stages;
  }
  ring.capped_by_barriers = false;
  const Sm100Variant variant = lay_out_fa4(tile, ring.slots, ring.fused, ring.qk_stages);
  if (variant.num_kv_stages < 2 || !fits(variant)) {
    return bad_choice(&Sm100Tuning::num_kv_stages,
                      "is {}: takes {} bytes of shared memory and {} barriers; "
                      "allowed: {} and {}",
                      variant.num_kv_stages, variant.smem_bytes(), variant.barriers.size(),
                      kSm100SmemBytes, kSm100MaxBarriers);
  }
  return ring;
}

Sm100Ring sm100_ring_beside_o(Sm100LayoutRequest tile) {
  tile.max_qk_stages = 1;
  return sm100_choose_ring(tile);
}

bool sm100_has_own_o(Sm100LayoutRequest tile, const Sm100Tuning& tuned) {
  tile.separate_o = true;
  const Sm100Variant body = lay_out_fa4(tile, 4, false, 1);
  if (tile.num_qo != 2 || body.rope_depth() > 0 ||
      tile.spec->ov_depth * size_of(tile.spec->o_dtype) > 128 * kSm100OBuffers) {
    return false;
  }
  const Result<Sm100Ring> ring = sm100_tune_ring(tile, sm100_ring_beside_o(tile), tuned);
  return ring && ring->slots >= (tile.spec->upcasts_kv ? 6 : 4);
}

}  // namespace attnjit

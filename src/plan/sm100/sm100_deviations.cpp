// SPDX-License-Identifier: Apache-2.0
// Records where an sm_100 plan leaves its reference configuration.
#include "plan/sm100/sm100_deviations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <utility>

#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_layout.h"

namespace attnjit {
namespace {

constexpr const char* kAnyGroup =
    "keys of decodes (max_q_len) and of sequences that differ in length are loaded once for all "
    "the "
    "heads of a group";
constexpr const char* kRowEnds = "a softmax thread ends a row with its sum and its maximum";
constexpr const char* kWholeGroups =
    "a CTA's Q tile holds no whole group of heads, and a TMA box takes whole groups";

// Why a ring is not the reference's. `rope_uncounted`: this counts no bytes of the rope part.
std::string ring_reason(const Sm100Ring& ring, const Fa4Config& reference,
                        const Sm100Variant& variant, bool rope_uncounted) {
  std::vector<std::string> reasons;
  if (reference.BN != variant.BN) {
    reasons.push_back(fmt::format("a tile has {} keys", variant.BN));
  }
  if (rope_uncounted) {
    reasons.emplace_back(
        "the reference counts no bytes for K's rope part where rope_dtype is unset");
  }
  if (ring.capped_by_barriers) {
    reasons.push_back(
        fmt::format("more than {} barriers are not initialised by one warp in two "
                    "waves (the reference has {})",
                    kSm100MaxBarriers, reference.num_mbarriers()));
  }
  for (const PlacedRegion& region : variant.smem) {
    if (region.region == Region::kO) {
      reasons.push_back(fmt::format(
          "O has buffers of {} bytes beside Q, which is then free for the next; K comes whole",
          region.size));
    }
  }
  if (reasons.empty()) {
    reasons.emplace_back("the exact layout, without the reference's over-reserved barriers");
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

// Records what a body's ring is, under names that begin with `prefix`.
void record_ring(const Fa4Config& reference, const Sm100Variant& variant, const std::string& prefix,
                 const std::string& reason, std::vector<Deviation>& deviations) {
  auto record = [&](const char* name, auto expected, auto actual) {
    deviate(deviations, (prefix + name).c_str(), expected, actual, reason);
  };
  record("use_fused_kv", reference.use_fused_kv, variant.use_fused_kv);
  record("num_kv_stages", reference.num_kv_stages, variant.num_kv_stages);
  record("num_qk_stages", reference.num_qk_stages, variant.num_qk_stages);
  record("num_rope_buffers", reference.num_rope_buffers(), variant.num_rope_buffers);
  record("BK0", reference.BK0, variant.BK0);
  record("BK1", reference.BK1, variant.BK1);
  record("k_rows_per_cta", reference.k_rows_per_cta(), variant.k_rows_per_cta);
  record("tmem_used", reference.tmem_used, variant.tmem_used);
  record("num_mbarriers", reference.num_mbarriers(), variant.barriers.size());
  record("smem_used", reference.smem_used, variant.smem_bytes);
  deviate(deviations, (prefix + "num_pv_stages").c_str(), reference.num_pv_stages,
          variant.num_pv_stages, "tuned");
  deviate(deviations, (prefix + "num_k_scale_bufs").c_str(), reference.num_k_scale_bufs(),
          variant.num_k_scale_bufs, "a softmax warpgroup brings the scales of its own KV tiles");
}

}  // namespace

const char* sm100_why_groups(const Sm100Variant& body) {
  return body.fuse_gqa ? kAnyGroup : kWholeGroups;
}

void sm100_deviate(const ResolvedSpec& resolved, const Fa4Config& config, const Sm100Ring& ring,
                   bool ring_is_tuned, Sm100Plan& plan) {
  const AttentionSpec& given = resolved.given();
  const PlanOptions& asked = resolved.options();
  const Fa4Config reference = plan.reference == ConfigKind::kMla
                                  ? Fa4Config(MlaConfig(mla_args(given, asked)))
                                  : Fa4Config(fa4_args(given, asked));
  const Sm100Variant& main = plan.variants.front();
  const std::vector<Deviation> of_keys = std::exchange(plan.deviations, {});
  if (asked.swizzle_bytes) {
    deviate(plan.deviations, "swizzle_bytes", std::int64_t{*asked.swizzle_bytes},
            config.swizzle_mode, "mla fixes its swizzles");
  } else {
    deviate(plan.deviations, "swizzle_bytes", reference.swizzle_mode, config.swizzle_mode,
            kSm100WholeLines);
  }
  plan.deviations.insert(plan.deviations.end(), of_keys.begin(), of_keys.end());
  const bool other_tile =
      config.num_qo() != reference.num_qo() || config.pair_cta != reference.pair_cta;
  const char* why_tile =
      other_tile ? "tuned" : "two query tiles leave no room for two stages of K and V";
  deviate(plan.deviations, "num_qo", reference.num_qo(), main.num_qo, why_tile);
  deviate(plan.deviations, "BM", reference.BM, main.BM, why_tile);
  deviate(plan.deviations, "MMA_M", reference.MMA_M, main.MMA_M, "tuned");
  deviate(plan.deviations, "v_cols_per_cta", reference.v_cols_per_cta(), main.v_cols_per_cta,
          "tuned");
  const bool rope_uncounted = config.rope_depth() > 0 && !reference.args.rope_dtype;
  record_ring(
      reference, main, "",
      ring_is_tuned || other_tile ? "tuned" : ring_reason(ring, reference, main, rope_uncounted),
      plan.deviations);
  const char* why_groups = sm100_why_groups(main);
  deviate(plan.deviations, "fuse_gqa", reference.fuse_gqa, main.fuse_gqa, why_groups);
  deviate(plan.deviations, "BM_eff", reference.BM_eff(), main.BM_eff,
          main.num_qo != reference.num_qo() ? why_tile : why_groups);
  deviate(plan.deviations, "correction_smem_elements", reference.correction_smem_elements(),
          std::int64_t{512}, kRowEnds);
  if (plan.can_switch_to_1q) {
    record_ring(reference.switch_1q_config(), plan.variants.back(), "switch_1q_",
                "it shares the code of the body with two query tiles: a ring of the same kind, one "
                "list of barriers",
                plan.deviations);
  }
}

void sm100_deviate(const Depth512Config& reference, const Sm100Variant& body,
                   const Sm100Tuning& tuned, std::vector<Deviation>& deviations) {
  const auto record = [&](const char* name, auto expected, auto actual, const char* why) {
    deviate(deviations, name, std::int64_t{expected}, std::int64_t{actual}, why);
  };
  const char* one_cta =
      tuned.pair_cta ? "tuned" : "one CTA serves decodes, ragged batches and uneven masks, too";
  record("cluster", Depth512Config::cta_group, body.MMA_M / kSm100TileRows, one_cta);
  record("MMA_M", reference.MMA_M, body.MMA_M, one_cta);
  record("k_rows_per_cta", reference.k_rows_per_cta(), body.k_rows_per_cta, one_cta);
  record("v_cols_per_cta", reference.v_cols_per_cta, body.v_cols_per_cta, one_cta);
  const bool pair = body.MMA_M > kSm100TileRows;
  const char* in_tmem =
      pair ? "P is read from tensor memory, which two S of 128 keys fill beside O"
           : "Q and P are read from tensor memory, which S of a pair's tile would fill";
  record("BN", reference.BN, body.BN, in_tmem);
  record("BK1", reference.BK1, body.BK1, in_tmem);
  record("p_buffer_bytes", reference.p_buffer_bytes, std::int64_t{0}, in_tmem);
  record("tmem_used", reference.tmem_used, body.tmem_used, in_tmem);
  const char* whole = "a stage is a whole tile of K or V";
  record("num_kv_stages", reference.num_kv_stages, body.num_kv_stages,
         tuned.num_kv_stages ? "tuned" : whole);
  record("num_qk_stages", reference.num_qk_stages, body.num_qk_stages, whole);
  record("BK0", reference.BK0, body.BK0, whole);
  record("smem_used", reference.smem_used, body.smem_bytes, whole);
  record("num_mbarriers", reference.num_mbarriers(), body.barriers.size(), whole);
}

void sm100_deviate(const Fa4Config& reference, const Sm100Variant& body, const Sm100Tuning& tuned,
                   std::vector<Deviation>& deviations) {
  const char* why = "one query tile has one O, which leaves S and Q room in tensor memory";
  const char* in_pairs =
      tuned.pair_cta ? "tuned"
                     : "prompts of one O are computed by pairs of CTAs, others by CTAs alone";
  deviate(deviations, "MMA_M", reference.MMA_M, body.MMA_M, in_pairs);
  deviate(deviations, "v_cols_per_cta", reference.v_cols_per_cta(), body.v_cols_per_cta, in_pairs);
  deviate(deviations, "num_qo", reference.num_qo(), body.num_qo, why);
  deviate(deviations, "BM", reference.BM, body.BM, why);
  deviate(deviations, "BN", reference.BN, body.BN, why);
  record_ring(reference, body, "", tuned.num_kv_stages ? "tuned" : why, deviations);
  deviate(deviations, "correction_smem_elements", reference.correction_smem_elements(),
          std::int64_t{512}, kRowEnds);
}

}  // namespace attnjit

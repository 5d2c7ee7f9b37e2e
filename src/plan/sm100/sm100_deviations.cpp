// SPDX-License-Identifier: Apache-2.0
// Records where an sm_100 plan leaves its reference configuration.
#include "plan/sm100/sm100_deviations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_heuristics.h"

namespace attnjit {
namespace {

constexpr const char* kAnyGroup =
    "keys of decodes (max_q_len) and of sequences that differ in length are loaded once for all "
    "the heads of a group";
constexpr const char* kWholeGroups =
    "a CTA's Q tile holds no whole group of heads, and a TMA box takes whole groups";
constexpr const char* kWholeLines = "a row of a TMA box is a whole line of L2";

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

#define FA4(name) ATTNJIT_BOTH(Fa4Config, Sm100Variant, name)
#define D512(name) ATTNJIT_BOTH(Depth512Config, Sm100Variant, name)
#define SMEM_USED(Reference) \
  std::tuple { "smem_used", &Reference::smem_used, &Sm100Variant::smem_bytes }

// Compares rings of K and V, and what is said of P and of scales.
void compare_rings(const Fa4Config& reference, const Sm100Variant& body, const std::string& prefix,
                   const std::string& why, std::vector<Deviation>& deviations) {
  compare(reference, body, prefix, why, deviations, FA4(use_fused_kv), FA4(num_kv_stages),
          FA4(num_qk_stages), FA4(num_rope_buffers), FA4(BK0), FA4(BK1), FA4(k_rows_per_cta),
          FA4(tmem_used), FA4(num_mbarriers), SMEM_USED(Fa4Config));
  compare(reference, body, prefix, "tuned", deviations, FA4(num_pv_stages));
  compare(reference, body, prefix, "a softmax warpgroup brings the scales of its own KV tiles",
          deviations, FA4(num_k_scale_bufs));
}

void compare_correction(const Fa4Config& reference, const Sm100Variant& body,
                        std::vector<Deviation>& deviations) {
  compare(reference, body, "", "a softmax thread ends a row with its sum and its maximum",
          deviations,
          std::tuple{"correction_smem_elements", &Fa4Config::correction_smem_elements, 512});
}

// What the roles have of registers, where the reference's have these.
void compare_roles(const std::array<int, 3>& reference_registers, Sm100Plan& plan) {
  const auto registers = [&](Sm100Role::Id id) { return registers_of(plan, id); };
  using Id = Sm100Role::Id;
  compare(0, plan, "registers of the ", "what the roles use: no role spills", plan.deviations,
          std::tuple{"softmax warps", reference_registers[0], registers_of(plan, std::nullopt)},
          std::tuple{"correction warps", reference_registers[1], registers(Id::kCorrection)},
          std::tuple{"MMA and load warps", reference_registers[2], registers(Id::kMma)});
  compare(0, plan, "registers of the ",
          plan.softmax_warpgroups == 2 ? "they are in the warpgroup of the MMA and load warps, and "
                                         "setmaxnreg wants one value for a warpgroup"
                                       : "what the roles use: no role spills",
          plan.deviations, std::tuple{"scheduler warps", 24, registers(Id::kScheduler)});
}

const char* why_groups(const Sm100Variant& body) {
  return body.fuse_gqa ? kAnyGroup : kWholeGroups;
}

}  // namespace

void sm100_deviate(const ResolvedSpec& resolved, const Fa4Config& config,
                   const Sm100Reasons& reasons, Sm100Plan& plan) {
  const AttentionSpec& given = resolved.given();
  const PlanOptions& asked = resolved.options();
  const Fa4Config reference = plan.reference == ConfigKind::kMla
                                  ? Fa4Config(MlaConfig(mla_args(given, asked)))
                                  : Fa4Config(fa4_args(given, asked));
  const Sm100Variant& main = plan.variants.front();
  std::vector<Deviation>& deviations = plan.deviations;
  deviate(deviations, "swizzle_bytes",
          asked.swizzle_bytes ? std::int64_t{*asked.swizzle_bytes} : reference.swizzle_mode,
          config.swizzle_mode, asked.swizzle_bytes ? "mla fixes its swizzles" : kWholeLines);
  const bool other_tile =
      config.num_qo() != reference.num_qo() || config.pair_cta != reference.pair_cta;
  const char* why_tile =
      other_tile ? "tuned" : "two query tiles leave no room for two stages of K and V";
  const bool rope_uncounted = config.rope_depth() > 0 && !reference.args.rope_dtype;
  compare(reference, main, "", reasons.keys, deviations, FA4(BN));
  compare(reference, main, "", why_tile, deviations, FA4(num_qo), FA4(BM));
  compare(reference, main, "", "tuned", deviations, FA4(MMA_M), FA4(v_cols_per_cta));
  compare_rings(reference, main, "",
                reasons.ring_is_tuned || other_tile
                    ? "tuned"
                    : ring_reason(reasons.ring, reference, main, rope_uncounted),
                deviations);
  compare(reference, main, "", why_groups(main), deviations, FA4(fuse_gqa));
  compare(reference, main, "", main.num_qo != reference.num_qo() ? why_tile : why_groups(main),
          deviations, FA4(BM_eff));
  compare_correction(reference, main, deviations);
  if (plan.can_switch_to_1q) {
    compare_rings(reference.switch_1q_config(), plan.variants.back(), "switch_1q_",
                  "it shares the code of the body with two query tiles: a ring of the same kind, "
                  "one list of barriers",
                  deviations);
  }
  const bool deep = config.args.is_mla || config.rope_depth() > 0;
  compare_roles(deep ? std::array{184, 96, 48} : std::array{192, 88, 40}, plan);
}

void sm100_deviate(const ResolvedSpec& resolved, const Sm100Tuning& tuned, Sm100Plan& plan) {
  const SpecFacts& spec = resolved;
  const Depth512Config reference(depth512_args(spec, sm100_options(resolved, tuned)));
  const Sm100Variant& body = plan.variants.front();
  std::vector<Deviation>& deviations = plan.deviations;
  deviate(deviations, "swizzle_bytes", reference.swizzle_mode, plan.swizzle_bytes, kWholeLines);
  if (plan.reference == ConfigKind::kDepth512) {
    compare(
        reference, body, "",
        tuned.pair_cta ? "tuned" : "one CTA serves decodes, ragged batches and uneven masks, too",
        deviations, std::tuple{"cluster", Depth512Config::cta_group, &Sm100Variant::cta_group},
        D512(MMA_M), D512(k_rows_per_cta), D512(v_cols_per_cta));
    compare(reference, body, "",
            plan.cluster > 1
                ? "P is read from tensor memory, which two S of 128 keys fill beside O"
                : "Q and P are read from tensor memory, which S of a pair's tile would fill",
            deviations, D512(BN), D512(BK1),
            std::tuple{"p_buffer_bytes", &Depth512Config::p_buffer_bytes, 0}, D512(tmem_used));
    const char* whole = "a stage is a whole tile of K or V";
    compare(reference, body, "", tuned.num_kv_stages ? "tuned" : whole, deviations,
            D512(num_kv_stages));
    compare(reference, body, "", whole, deviations, D512(num_qk_stages), D512(BK0),
            SMEM_USED(Depth512Config), D512(num_mbarriers));
    compare(reference, body, "", why_groups(body), deviations, D512(fuse_gqa), D512(BM_eff));
    return compare_roles({256, 184, 64}, plan);
  }
  const Fa4Config fa4(fa4_args(resolved.given(), resolved.options()));
  const char* why = "a single accumulator leaves S and Q room in tensor memory";
  const char* pairs = "only prompts with a single accumulator are computed by pairs of CTAs";
  compare(fa4, body, "", tuned.pair_cta ? "tuned" : pairs, deviations, FA4(MMA_M),
          FA4(v_cols_per_cta));
  compare(fa4, body, "", why, deviations, FA4(num_qo), FA4(BM), FA4(BN));
  compare_rings(fa4, body, "", tuned.num_kv_stages ? "tuned" : why, deviations);
  compare_correction(fa4, body, deviations);
  compare(fa4, body, "", why_groups(body), deviations, FA4(fuse_gqa));
  compare(fa4, body, "", fa4.num_qo() == 1 ? why_groups(body) : "a single accumulator", deviations,
          FA4(BM_eff));
  compare_roles({192, 88, 40}, plan);
}

#undef SMEM_USED
#undef D512
#undef FA4

}  // namespace attnjit

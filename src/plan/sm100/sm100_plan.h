// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: what the sm_100a and sm_103a kernel really uses. It takes its tiles from a reference
// configuration (Fa4Config, MlaConfig, Depth512Config), owns every size, offset, barrier and
// register budget of the kernel, and records each deviation with its reason. Its knobs are what a
// tuning row may choose of it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/result.h"
#include "attnjit/tuning.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/knobs.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_variant.h"
#include "spec/spec_facts.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names where it has one.

struct Sm100Plan {
  const SpecFacts* spec = nullptr;          ///< that it is of: the KernelPlan's
  ConfigKind reference = ConfigKind::kFa4;  ///< where its tiles come from
  std::vector<Sm100Variant> variants;  ///< the launched one first; its 1Q sibling where it switches
  bool can_switch_to_1q = false;       ///< the 2Q body may branch to the 1Q body for short prompts
  int threads = 512;
  std::int64_t swizzle_bytes = 128;  ///< of Q, K and V: a row of a block of columns
  /// 2: each has S and O of its own. 1: all KV tiles of a query tile are one's, and O is one.
  int softmax_warpgroups = 2;
  int cluster = 1;
  std::vector<Sm100Role> roles;
  std::vector<Sm100TensorMap> tensor_maps;
  std::int64_t pv_first_quarters = 3;  ///< of a tile's P, that the first part of P V waits for
  std::int64_t exp2_pairs = 0;         ///< f32x2 exponentials of a row of a tile
  std::int64_t exp2_fma_pairs = 0;     ///< of them, computed by polynomial on the FMA pipes
  double rescale_threshold = 8;        ///< log2: O is rescaled when the maximum grows by more
  double p_bias = 0;  ///< log2: P is scaled by 2^this, so that e4m3 keeps small ones
  /// A warp finds the work tiles and publishes them to the others; a CTA has several.
  bool published = false;
  bool counted = false;            ///< of those that are published: they are counted off
  bool can_persist = false;        ///< a CTA may walk several work tiles that it counts off itself
  bool can_steal_tiles = false;    ///< .. or steal those of CTAs that have not started
  bool can_pair = false;           ///< a tuning row may choose whether CTAs multiply in pairs
  bool can_choose_num_qo = false;  ///< .. and the query tiles of a CTA
  /// 0: a CTA has one work tile; 1: a CTA per SM walks several; 2: there is a CTA for each, and one
  /// that runs steals those of CTAs that have not started (cluster launch control).
  std::int64_t persistent = 0;
  bool block_mask = false;   ///< it walks lists of a block mask (templates/maps)
  bool skips_tiles = false;  ///< an expression says which tiles are walked (seen_tiles.cuh)
  bool many_gaps = false;    ///< .. and may hide tiles again and again
  bool split = false;        ///< launches may split the keys into partitions
  /// Launches of several partitions cut long tiles where the device finds it best
  /// (templates/common/cuts.cuh, of decodes decode_ranges.cuh). Partitions are then the CTAs.
  bool cuts = false;
  std::int64_t partition_tiles = 0;  ///< KV tiles of each; 0: the launch says how many there are
  std::vector<Deviation> deviations;

  /// K and V are copied row by row: pages do not hold whole TMA boxes.
  bool row_copies() const { return spec->copies_rows && !spec->upcasts_kv; }
  /// Of a launch: the largest of the variants.
  std::int64_t smem_bytes() const {
    return std::ranges::max_element(variants, {}, &Sm100Variant::smem_bytes)->smem_bytes();
  }
  /// A launch has a CTA for each work tile, and the kernel nothing for a second one.
  bool one_work_tile() const { return persistent == 0 && !published; }
  bool steals_tiles() const { return persistent == 2; }
};

#define FIELD(member, constant) ATTNJIT_FIELD(Sm100Plan, member, constant)
#define CONSTANT(member, constant) ATTNJIT_CONSTANT(Sm100Plan, member, constant)
/// The fields of a plan, but for those of its bodies, in the order in which JSON shows them.
inline constexpr Field<Sm100Plan> kSm100Fields[] = {
    FIELD(can_switch_to_1q, "kSwitchTo1Q"),
    FIELD(persistent, nullptr),
    FIELD(exp2_pairs, nullptr),
    FIELD(exp2_fma_pairs, "kExp2FmaPairs"),
    FIELD(rescale_threshold, "kRescaleThreshold"),
    FIELD(p_bias, "kPBias"),
    FIELD(row_copies, "kRowCopies"),
    {"upcasts_kv", nullptr, &fact_of<&SpecFacts::upcasts_kv>},
    FIELD(published, "kPublished"),
    FIELD(skips_tiles, "kSkipsTiles"),
    FIELD(many_gaps, "kManyGaps"),
    FIELD(block_mask, "kBlockMask"),
    FIELD(split, "kSplit"),
    FIELD(cuts, "kCuts"),
    FIELD(partition_tiles, "kPartitionTiles"),
    CONSTANT(threads, "kThreads"),
    CONSTANT(softmax_warpgroups, "kSoftmaxWarpgroups"),
    CONSTANT(cluster, "kCluster"),
    CONSTANT(swizzle_bytes, "kSwizzleBytes"),
    CONSTANT(counted, "kCounted"),
    CONSTANT(one_work_tile, "kOneWorkTile"),
    CONSTANT(steals_tiles, "kLaunchControl"),
    CONSTANT(smem_bytes, "kSmemBytes"),
};
#undef CONSTANT
#undef FIELD

/// A row's choices by name; what it leaves open is unset.
struct Sm100Tuning {
  using Choice = std::optional<std::int64_t>;
  Choice BN;
  Choice use_fused_kv;
  Choice num_kv_stages;
  Choice num_qk_stages;
  Choice pv_first_quarters;
  Choice num_pv_stages;
  Choice exp2_fma_pairs;
  Choice persistent;
  Choice pair_cta;
  Choice num_qo;
  Choice softmax_registers;
  Choice correction_registers;
  Choice other_registers;

  /// Errors: kInvalid for a name that the kernel has no choice of. `one_tile`: the kernel with one
  /// O, whose tile and kind of ring are fixed.
  static Result<Sm100Tuning> read(const TuningValues* values, bool one_tile);

  /// Takes a choice within bounds and on a grid into `target`; nothing where it is unset. Errors:
  /// kInvalid.
  Status take(Choice Sm100Tuning::*choice, std::int64_t least, std::int64_t most, std::int64_t step,
              std::int64_t& target) const;
};

/// An error of a choice: kInvalid, under its name.
Error bad_choice_of(Sm100Tuning::Choice Sm100Tuning::*choice, std::string message);
template <class... Args>
Error bad_choice(Sm100Tuning::Choice Sm100Tuning::*choice, fmt::format_string<Args...> message,
                 Args&&... args) {
  return bad_choice_of(choice, fmt::format(message, std::forward<Args>(args)...));
}

struct Sm100Knob {
  using Values = std::vector<std::int64_t>;
  std::string_view name;
  Sm100Tuning::Choice Sm100Tuning::*choice;
  bool any_kernel;  ///< also the kernel with a single accumulator has it
  std::int64_t (*chosen)(const Sm100Plan&);
  Values (*to_try)(const Sm100Plan&);  ///< null: a row may choose it, `attnjit tune` does not
  /// Where the plan has it, with nothing that follows from it: its place, and the most that a row
  /// may choose.
  std::int64_t Sm100Plan::*place = nullptr;
  std::int64_t (*most)(const Sm100Plan&) = nullptr;
};

/// An eighth of a row's exponentials at a time, to a half.
Sm100Knob::Values polynomial_shares(const Sm100Plan& plan);
/// The registers per thread of the first role that is `id`, or whatever the first role is.
std::int64_t registers_of(const Sm100Plan& plan, std::optional<Sm100Role::Id> id);

/// What the first body has.
template <auto kMember>
std::int64_t body_value(const Sm100Plan& plan) {
  return std::int64_t{std::invoke(kMember, plan.variants.front())};
}
template <auto kMember>
std::int64_t plan_value(const Sm100Plan& plan) {
  return std::int64_t{plan.*kMember};
}

// NOTE: `attnjit tune` tries what stands here and nothing else, in this order.
inline constexpr Sm100Knob kSm100Knobs[] = {
    {"BN", &Sm100Tuning::BN, false, &body_value<&Sm100Variant::BN>, &tries<64, 96, 128, 160>},
    {"use_fused_kv", &Sm100Tuning::use_fused_kv, false, &body_value<&Sm100Variant::use_fused_kv>,
     &tries<0, 1>},
    {"num_kv_stages", &Sm100Tuning::num_kv_stages, true, &body_value<&Sm100Variant::num_kv_stages>,
     &tries<2, 3, 4, 5, 6, 8, 10, 12>},
    {"exp2_fma_pairs", &Sm100Tuning::exp2_fma_pairs, true, &plan_value<&Sm100Plan::exp2_fma_pairs>,
     &polynomial_shares, &Sm100Plan::exp2_fma_pairs, &plan_value<&Sm100Plan::exp2_pairs>},
    {"persistent", &Sm100Tuning::persistent, true, &plan_value<&Sm100Plan::persistent>,
     [](const Sm100Plan& plan) {
       // In pairs no tile is stolen, but where a row may choose pairs it may choose none.
       const bool steals_tiles = plan.can_steal_tiles || (plan.can_persist && plan.can_pair);
       return steals_tiles       ? Sm100Knob::Values{0, 1, 2}
              : plan.can_persist ? Sm100Knob::Values{0, 1}
                                 : Sm100Knob::Values{};
     },
     &Sm100Plan::persistent,
     [](const Sm100Plan& plan) -> std::int64_t {
       return plan.can_steal_tiles ? 2 : plan.can_persist ? 1 : 0;
     }},
    {"pair_cta", &Sm100Tuning::pair_cta, true,
     [](const Sm100Plan& plan) { return std::int64_t{plan.cluster > 1}; },
     [](const Sm100Plan& plan) {
       return plan.can_pair ? Sm100Knob::Values{0, 1} : Sm100Knob::Values{};
     }},
    {"num_qo", &Sm100Tuning::num_qo, false, &body_value<&Sm100Variant::num_qo>,
     [](const Sm100Plan& plan) {
       return plan.can_choose_num_qo ? Sm100Knob::Values{1, 2} : Sm100Knob::Values{};
     }},
    {"pv_first_quarters", &Sm100Tuning::pv_first_quarters, true,
     &plan_value<&Sm100Plan::pv_first_quarters>,
     // By the clock one and two quarters gain nowhere (docs/performance-sm100.md).
     &tries<3, 4>},
    {"num_pv_stages", &Sm100Tuning::num_pv_stages, true, &body_value<&Sm100Variant::num_pv_stages>,
     nullptr},
    {"num_qk_stages", &Sm100Tuning::num_qk_stages, false, &body_value<&Sm100Variant::num_qk_stages>,
     nullptr},
    {"softmax_registers", &Sm100Tuning::softmax_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, std::nullopt); }, nullptr},
    {"correction_registers", &Sm100Tuning::correction_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, Sm100Role::Id::kCorrection); }, nullptr},
    {"other_registers", &Sm100Tuning::other_registers, true,
     [](const Sm100Plan& plan) { return registers_of(plan, Sm100Role::Id::kMma); }, nullptr},
};

// NOLINTEND(readability-identifier-naming)

/// What shared memory a CTA may have on sm_100 and sm_103, and how many barriers one warp
/// initialises in two waves.
inline constexpr std::int64_t kSm100SmemBytes = DeviceShape{}.max_smem_bytes;
inline constexpr std::int64_t kSm100MaxBarriers = 64;

/// Work tiles that are published at a time, and the bytes of each, and of the only one of a CTA
/// (templates/sm100/layout.cuh).
inline constexpr std::int64_t kSm100WorkSlots = 2;
inline constexpr std::int64_t kSm100WorkBytes = 64;
/// What a CTA is answered that asks for another's work.
inline constexpr std::int64_t kSm100AnswerBytes = 16;
/// What a CTA knows of cut tiles: kCutBytes of templates/common/cuts.cuh.
inline constexpr std::int64_t kSm100CutBytes = 32;

/// A block of O, which a TMA store takes: 128 bytes of each of 128 rows. Where O has memory of its
/// own that is two of them, by turns.
inline constexpr std::int64_t kSm100OBlockBytes = 128 * 128;
inline constexpr std::int64_t kSm100OBuffers = 2;

/// Warps that upcast K and V, where they are e4m3 beside a Q of 16 bits.
inline constexpr int kSm100UpcastWarps = 4;

/// Plans the kernel. Errors: kUnsupported with the reason where no configuration serves the spec;
/// kInvalid for a tuned name or value that cannot be.
Result<Sm100Plan> make_sm100_plan(const ResolvedSpec& spec, const TuningValues* tuned);

/// Why the template does not serve a spec; empty: it does.
std::string sm100_unsupported_reason(const ResolvedSpec& spec, const Sm100Plan& sm100);

// What a KernelFamily has (plan/family.h).
Status plan_sm100(const TuningValues* tuned, KernelPlan& plan);
std::int32_t sm100_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                              const DeviceShape& device);
std::int32_t sm100_rows_per_list(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const DeviceShape& device);
struct LaunchRequest;
Status plan_sm100_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe);
std::vector<TuningKnob> sm100_knobs(const Sm100Plan& plan);
void add_sm100(const SpecFacts& spec, const Sm100Plan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

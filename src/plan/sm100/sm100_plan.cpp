// SPDX-License-Identifier: Apache-2.0
// Plans the sm_100a and sm_103a kernels: it chooses tiles, stages, roles and registers.
#include "plan/sm100/sm100_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/forward_support.h"
#include "plan/map/map_plan.h"
#include "plan/merge/merge_plan.h"
#include "plan/reference/config_math.h"
#include "plan/reference/deviate.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_knobs.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_maps.h"
#include "plan/sm100/sm100_ring.h"
#include "plan/sm100/sm100_roles.h"

namespace attnjit {
namespace {

// A softmax thread holds a row of S: at 192 keys it spills (428 bytes were seen under 192
// registers), at 160 and below it does not.
constexpr std::int64_t kMaxRowKeys = 160;
// Where keys have scales of their own the thread reads those, too: at 128 keys half of the kernels
// that were looked at spilt (112 to 240 bytes), at 96 none.
constexpr std::int64_t kMostScaledKeys = 96;
// Beside the warps that widen K and V it has 136 registers, in which 96 keys do not spill. A thread
// of these holds its part of a tile of each, which is to be no more than at depth 128.
constexpr std::int64_t kMostWidenedKeys = 96;
constexpr std::int64_t kMostWidenedBlocks = 4;  // of 64 columns, of K and V
constexpr std::int64_t kMostTwoODepth = 192;    // of K, whose blocks are widened beside two O
// FA4's tile at every depth; four steps of 32 columns, so that P splits three to one.
constexpr std::int64_t kLoweredKeys = 128;
constexpr std::int64_t kColumnBatch = 32;  // columns per tcgen05.ld, and bits per mask word
constexpr std::int64_t kLeastDepth = 64;   // that the reference serves

Error unsupported(std::string reason) {
  return make_error(ErrorCode::kUnsupported, std::move(reason));
}

constexpr const char* kDecodes =
    "a sequence has few rows (max_q_len): those of all the heads of a group fit a Q tile";
constexpr const char* kWholeLines = "a row of a TMA box is a whole line of L2";
constexpr const char* kWholeGroups =
    "a CTA's Q tile holds no whole group of heads, and a TMA box takes whole groups";

// --- what no layout can serve --------------------------------------------------------------------

std::optional<Error> check_shape(const AttentionSpec& spec) {
  const Dtype of_kv = spec.type_of_kv();
  if (spec.ov_depth > spec.qk_depth) {
    return unsupported(
        fmt::format("ov_depth {} is above qk_depth {}", spec.ov_depth, spec.qk_depth));
  }
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  for (const auto& [depth, dtype] :
       {std::pair{spec.qk_depth, spec.qkv_dtype}, std::pair{spec.ov_depth, spec.qkv_dtype},
        std::pair{spec.qk_depth, of_kv}, std::pair{spec.ov_depth, of_kv},
        std::pair{spec.ov_depth, output}}) {
    const int step = 16 / size_of(dtype);
    if (depth % step != 0) {
      return unsupported(
          fmt::format("depth {} of {} is no multiple of {}: a row is no multiple of 16 bytes, in "
                      "which it is loaded",
                      depth, to_string(dtype), step));
    }
  }
  return std::nullopt;
}

// Whether a tile is whole pages, or a page whole tiles: the fewest boxes.
bool fits_pages(std::int64_t keys, const AttentionSpec& spec) {
  const std::int64_t page_size = spec.page_size;
  return page_size == 0 || copies_rows(spec) || widens_kv(spec) || page_size % keys == 0 ||
         keys % page_size == 0;
}

// The swizzle that the caller or this plan chooses; unset: the reference's. That is 64 bytes for
// e4m3, where 128 take half of the TMA's lines; but they pad a row to 128 columns.
std::optional<int> swizzle_of(const AttentionSpec& spec, const PlanOptions& options) {
  if (options.swizzle_bytes || spec.qkv_dtype != Dtype::kE4m3) return options.swizzle_bytes;
  // NOTE: a CTA of a pair with two O has half of 128 columns of V, in whole blocks.
  if (options.pair_cta.value_or(false) && spec.ov_depth <= 128) return std::nullopt;
  if (spec.qk_depth % 128 != 0 || spec.ov_depth % 128 != 0) return std::nullopt;
  return 128;
}

// --- the kernels of Fa4Config and MlaConfig ------------------------------------------------------

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
  for (const Sm100SmemRegion& region : variant.smem) {
    if (region.region == Sm100Region::kO) {
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

// How CTAs come to their work tiles. What a row chooses is checked when there is a plan.
void choose_work(const AttentionSpec& spec, const Sm100Tuning& tuned, Sm100Plan& plan) {
  plan.announced = splits(spec) || spec.ragged_kv || spec.kv_lens_exclude_new;
  plan.can_persist = !plan.announced && !lengths_differ(spec);
  // NOTE: what interprets is one kernel for all masks, even ones and others.
  const bool even = !spec.interpreted && even_work(spec.mask);
  plan.persistent = tuned.persistent.value_or(plan.can_persist && even ? 1 : 0);
}

// The keys per tile that registers hold where K and V are widened; elsewhere no bound.
std::int64_t most_widened_keys(const AttentionSpec& spec) {
  if (!widens_kv(spec)) return kMaxRowKeys;
  const std::int64_t blocks = ceil_div(spec.qk_depth, 64) + ceil_div(spec.ov_depth, 64);
  return blocks <= kMostWidenedBlocks ? kMostWidenedKeys : kMostWidenedKeys - kColumnBatch;
}

// The keys per tile, lowered to what a thread's row fits and to whole batches of columns.
Result<std::int64_t> choose_keys(const AttentionSpec& spec, const Fa4Config& config,
                                 const Sm100Tuning& tuned, Sm100Plan& plan) {
  const auto divides_blocks = [&](std::int64_t tile) {
    return !plan.mapped || kMapBlock % tile == 0;
  };
  std::int64_t keys = config.BN;
  std::string reason;
  if (keys > kMaxRowKeys) {
    keys = kLoweredKeys;
    reason = fmt::format(
        "a softmax thread holds a row of S: {} keys spill under its registers, {} and fewer do "
        "not; {} is the largest that P V can start on three quarters of",
        config.BN, kMaxRowKeys, kLoweredKeys);
  } else if (keys % kColumnBatch != 0) {
    keys = align_down(keys, kColumnBatch);
    reason = fmt::format("S is read and masked in whole batches of {} columns", kColumnBatch);
  }
  if (spec.scales == Scales::kToken && keys > kMostScaledKeys) {
    if (!reason.empty()) reason += "; ";
    reason +=
        fmt::format("{} keys with scales of their own spill, {} do not", keys, kMostScaledKeys);
    keys = kMostScaledKeys;
  }
  if (const std::int64_t most = most_widened_keys(spec); keys > most) {
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("beside warps that widen K and V registers hold {} keys", most);
    keys = most;
  }
  // A tile is whole pages, or a page whole tiles, if one can be.
  const std::int64_t lowered = keys;
  while (keys > 64 && !fits_pages(keys, spec)) keys -= kColumnBatch;
  if (!fits_pages(keys, spec)) keys = lowered;
  if (keys != lowered) {
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("{} keys fit pages of {}, {} do not", keys, spec.page_size, lowered);
  }
  const std::int64_t unsplit = keys;
  while (keys > 64 && spec.partition_keys % keys != 0) keys -= kColumnBatch;
  if (keys != unsplit) {
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("{} keys divide partitions of {}, {} do not", keys, spec.partition_keys,
                          unsplit);
  }
  const std::int64_t unmapped = keys;
  while (keys > 64 && !divides_blocks(keys)) keys -= kColumnBatch;
  if (keys != unmapped) {
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("{} keys divide a block of the mask's map, {} do not", keys, unmapped);
  }
  const std::optional<std::int64_t> asked = tuned.BN;
  if (asked) {
    const std::int64_t most =
        std::min(most_widened_keys(spec), align_down(256 - config.padded_ov_depth, 32));
    if (*asked < 64 || *asked > most || *asked % kColumnBatch != 0) {
      return bad_choice(&Sm100Tuning::BN, fmt::format("is {}; allowed: 64 to {} in steps of {}",
                                                      *asked, most, kColumnBatch));
    }
    if (spec.partition_keys % *asked != 0) {
      return bad_choice(&Sm100Tuning::BN, fmt::format("is {}; partition_keys {} is no multiple",
                                                      *asked, spec.partition_keys));
    }
    if (!divides_blocks(*asked)) {
      return bad_choice(
          &Sm100Tuning::BN,
          fmt::format("is {}; a block of the mask's map has {} keys", *asked, kMapBlock));
    }
    keys = *asked;
    reason = "tuned";
  }
  if (keys < 64) {
    return unsupported(fmt::format("{} keys per tile are left; the least is 64", keys));
  }
  deviate(plan.deviations, "BN", config.BN, keys, reason);
  return keys;
}

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
  record("num_mbarriers", reference.num_mbarriers(),
         static_cast<std::int64_t>(variant.barriers.size()));
  record("smem_used", reference.smem_used, variant.smem_bytes);
  deviate(deviations, (prefix + "num_k_scale_bufs").c_str(), reference.num_k_scale_bufs(),
          variant.num_k_scale_bufs, "a softmax warpgroup brings the scales of its own KV tiles");
}

// The pairs of a row's exponentials that are polynomials on the FMA pipe (the table of
// docs/sm100.md). By cycles of 128 keys: 1024 of MUFU, less 16 a pair, against the tensor cores' 4
// a column of Q K^T and of P V, 2 where they are e4m3. Where the MUFU is the bound, three in 16,
// which is the most that leaves a softmax thread registers enough (two in 16 where a kernel has one
// query tile alone: causal spilt 40 bytes with three); where the tensor cores are, a share that
// gives the MUFU an eighth of slack or so, as FlashAttention-4's. sm_103 doubled the MUFU.
std::int64_t polynomial_pairs(const AttentionSpec& spec, const Sm100Plan& plan,
                              const Sm100Variant& variant) {
  if (spec.arch == Arch::kSm103a) return 0;
  const std::int64_t tensor_cycles =
      64 * (variant.qk_mma_depth + align_up(variant.ov_depth, variant.MMA_K)) / variant.MMA_K;
  const std::int64_t pairs = variant.BN / 2;
  // A caller's code for each score takes registers, of which there are few beside warps that widen,
  // and so many instructions that the MUFU is the bound no more.
  const bool modified = spec.score_mod.kind == ScoreModSpec::Kind::kCustom;
  if (widens_kv(spec) && modified) return pairs / 16;
  // P of e4m3 takes fewer registers: four in 16 spill nowhere, but beside what reads announcements
  // and a map, where 28 bytes spilt.
  if (variant.MMA_K == 32 && variant.num_qo == 2 && !(plan.announced && plan.mapped)) {
    return pairs / 4;
  }
  if (tensor_cycles < 896 && variant.num_qo == 2) return pairs * 3 / 16;
  return tensor_cycles <= 1024 ? pairs / 8 : pairs / 16;
}

// Why the reference has no tiles, of any number of keys; empty: it has.
std::string why_no_tiles(const Fa4Config& config) {
  if (!config.pair_cta || config.qk_depth <= 128 || config.num_qo() == 1) {
    return config.unsupported_with_any_keys();
  }
  // FlashAttention-4 has pairs of K's depth 192 with V of 128, too.
  Fa4Config::Args alone = config.args;
  alone.pair_cta = false;
  return Fa4Config(alone).unsupported_with_any_keys();
}

// The reference's tiles, with the swizzle that is chosen here.
Fa4Config fa4_config_of(const AttentionSpec& spec, PlanOptions options) {
  options.swizzle_bytes = swizzle_of(spec, options);
  return Fa4Config(fa4_args(spec, options));
}

Result<Sm100Plan> plan_fa4(const ResolvedSpec& resolved, ConfigKind kind,
                           const Sm100Tuning& tuned) {
  const AttentionSpec& spec = *resolved;
  const PlanOptions& options = resolved.options();
  Sm100Plan plan;
  plan.reference = kind;
  // Sizes count what the kernel loads; deviations are from what the reference counts.
  const bool mla = kind == ConfigKind::kMla;
  if (mla && options.pair_cta.value_or(false)) return unsupported("pair_cta is not for mla");
  const Fa4Config config =
      mla ? MlaConfig(mla_args(spec, options)).fa4_config : fa4_config_of(spec, options);
  const Fa4Config reference = mla ? MlaConfig(mla_args(resolved.given(), options)).fa4_config
                                  : Fa4Config(fa4_args(resolved.given(), options));
  if (config.ov_depth != spec.ov_depth) {
    return unsupported(fmt::format("ov_depth is {}; mla has qk_depth less the rope part's 64, {}",
                                   spec.ov_depth, config.ov_depth));
  }
  // Lesser depths have the same tiles, which TMA fills up with zeros.
  Fa4Config::Args least = config.args;
  least.qk_depth = kLeastDepth;
  const Fa4Config tiles = config.qk_depth < kLeastDepth ? Fa4Config(least) : config;
  // NOTE: stages are of this kernel's keys, which are fewer: sm100_choose_ring says how many there
  // are.
  if (std::string reason = why_no_tiles(tiles); !reason.empty()) {
    return unsupported(std::move(reason));
  }
  plan.swizzle_bytes = config.swizzle_mode;
  if (options.swizzle_bytes) {
    deviate(plan.deviations, "swizzle_bytes", std::int64_t{*options.swizzle_bytes},
            config.swizzle_mode, "mla fixes its swizzles");
  } else {
    deviate(plan.deviations, "swizzle_bytes", reference.swizzle_mode, config.swizzle_mode,
            kWholeLines);
  }
  const bool rope_uncounted = config.rope_depth() > 0 && !reference.args.rope_dtype;

  plan.widens_kv = widens_kv(spec);
  plan.mapped = walks_map(resolved);
  const Result<std::int64_t> keys = choose_keys(spec, config, tuned, plan);
  if (!keys) return keys.error();
  choose_work(spec, tuned, plan);
  Sm100LayoutRequest tile = sm100_layout_request(spec, plan, config);
  tile.BN = *keys;
  Sm100Ring ring = sm100_choose_ring(tile);
  // Two query tiles may leave K and V no room, as with O of 4-byte elements.
  if (ring.stages() < 2 && !options.num_qo && !config.pair_cta && spec.partition_keys == 0) {
    tile.num_qo = 1;
    ring = sm100_choose_ring(tile);
    constexpr const char* kWhy = "two query tiles leave no room for two stages of K and V";
    deviate(plan.deviations, "num_qo", config.num_qo(), tile.num_qo, kWhy);
    deviate(plan.deviations, "BM", config.BM, std::int64_t{kSm100TileRows} * tile.num_qo, kWhy);
  }
  if (sm100_has_own_o(tile, tuned)) {
    tile.own_o = true;
    ring = sm100_ring_beside_o(tile);
  }
  const Result<Sm100Ring> chosen = sm100_tune_ring(tile, ring, tuned);
  if (!chosen) return chosen.error();
  const bool ring_is_tuned = chosen->slots != ring.slots || chosen->fused != ring.fused ||
                             chosen->qk_stages != ring.qk_stages;
  ring = *chosen;
  Sm100Variant main = lay_out_fa4(tile, ring.slots, ring.fused, ring.qk_stages);
  if (main.num_kv_stages < 2) {
    return unsupported(
        fmt::format("{} K/V stages fit the shared memory; the least is 2", main.num_kv_stages));
  }
  // The 1Q sibling shares its code: its ring is of the same kind, its K is staged alike, and the
  // barriers are one list.
  std::optional<Sm100Variant> sibling;
  Sm100Ring sibling_ring;
  // NOTE: where partitions have fixed keys a row's bits are its own: a warpgroup has a query tile
  // to itself in every launch.
  if (tile.num_qo == 2 && !config.pair_cta && config.qk_depth <= 256 && spec.partition_keys == 0) {
    Sm100LayoutRequest one = tile;
    one.num_qo = 1;
    one.max_qk_stages = main.num_qk_stages;
    one.exact_qk_stages = true;
    one.barrier_num_qo = 2;
    sibling_ring = sm100_choose_ring(one, ring.fused);
    Sm100LayoutRequest both = tile;
    both.barrier_stages = one.barrier_stages = std::max(ring.stages(), sibling_ring.stages());
    Sm100Variant two = lay_out_fa4(both, ring.slots, ring.fused, ring.qk_stages);
    sibling = lay_out_fa4(one, sibling_ring.slots, sibling_ring.fused, sibling_ring.qk_stages);
    share_small_regions(two, *sibling);
    if (sibling->num_kv_stages >= 2 && fits(two) && fits(*sibling)) {
      main = std::move(two);
    } else {
      sibling.reset();
    }
  }
  record_ring(reference, main, "",
              ring_is_tuned ? "tuned" : ring_reason(ring, reference, main, rope_uncounted),
              plan.deviations);
  const char* why_groups = main.fuse_gqa ? kDecodes : kWholeGroups;
  deviate(plan.deviations, "fuse_gqa", config.fuse_gqa, main.fuse_gqa, why_groups);
  deviate(plan.deviations, "BM_eff", config.BM_eff(), main.BM_eff, why_groups);
  deviate(plan.deviations, "correction_smem_elements", config.correction_smem_elements(),
          std::int64_t{512}, "a softmax thread ends a row with its sum and its maximum");
  if (sibling) {
    const Fa4Config one_reference = reference.switch_1q_config();
    record_ring(one_reference, *sibling, "switch_1q_",
                "it shares the code of the body with two query tiles: a ring of the same kind, one "
                "list of barriers",
                plan.deviations);
    plan.can_switch_to_1q = true;
    plan.variants.push_back(*std::move(sibling));
  }
  plan.variants.insert(plan.variants.begin(), std::move(main));

  const bool deep = config.args.is_mla || config.rope_depth() > 0;
  const Sm100Budgets of_reference = deep ? Sm100Budgets{184, 96, 48} : Sm100Budgets{192, 88, 40};
  if (Status status = sm100_assign_roles(of_reference, two_o_budgets(spec), tuned, plan); !status) {
    return status.error();
  }
  plan.cluster = static_cast<int>(config.cta_group());
  add_tensor_maps(spec, plan.variants.front(), config.swizzle_mode, plan);
  plan.exp2_pairs = *keys / 2;
  plan.exp2_fma_pairs = polynomial_pairs(spec, plan, plan.variants.front());
  plan.row_copies = tile.row_copies;
  plan.split = splits(spec);
  plan.partition_tiles = spec.partition_keys / *keys;
  return plan;
}

// --- the kernel with one O -----------------------------------------------------------------------

// Whether two O take all of tensor memory: depths of V above 192, and those of Depth512Config. And
// of K above 192 where two softmax warpgroups leave no registers for the rows that are widened, or
// two query tiles no room for two stages of the keys that a V of 128 and less goes with; a pair of
// CTAs would have the room.
bool takes_one_o(const AttentionSpec& spec, const PlanOptions& options, ConfigKind kind) {
  if (kind != ConfigKind::kFa4) return kind == ConfigKind::kDepth512;
  if (spec.ov_depth > 192) return true;
  if (spec.qk_depth <= kMostTwoODepth) return false;
  return widens_kv(spec) || options.pair_cta.value_or(false) ||
         fa4_config_of(spec, options).num_kv_stages < 2;
}

// Beside an O of 256 columns and a Q of 128, S has room for two buffers of 64 keys. A pair of CTAs,
// of which each has half of a tile's keys, keeps Q in shared memory.
constexpr std::int64_t kOneOKeys = 64;
constexpr std::int64_t kPairOneOKeys = 128;

// Whether two CTAs multiply together where the caller does not say (docs/sm100.md, "Pairs of
// CTAs"): in batches of one length, for whose K and V the shared memory of CTAs that multiply alone
// is too slow. Not where a sequence's rows fit a CTA's tile, whose pair would have a CTA without
// rows; so decodes among the prompts of a ragged batch would.
bool pairs_by_default(const ResolvedSpec& resolved, const Sm100Plan& plan,
                      const Sm100LayoutRequest& tile) {
  // V's columns of whole blocks, of which each CTA has half.
  PlanOptions in_pairs = resolved.options();
  in_pairs.pair_cta = true;
  const std::int64_t bytes =
      swizzle_of(*resolved, in_pairs).value_or(depth512_args(*resolved, in_pairs).swizzle_mode);
  const bool halves = ceil_div(resolved->ov_depth * size_of(resolved->qkv_dtype), bytes) % 2 == 0;
  return halves && !tile.decodes && !lengths_differ(*resolved) && !plan.announced &&
         !tile.widens_kv && !walks_map(resolved);
}

// Where the kernel leaves Depth512Config, which is a pair of CTAs.
void deviate_from(const Depth512Config& reference, const Sm100Variant& body, bool stages_are_tuned,
                  std::vector<Deviation>& deviations) {
  const auto record = [&](const char* name, auto expected, auto actual, const char* why) {
    deviate(deviations, name, std::int64_t{expected}, std::int64_t{actual}, why);
  };
  const char* one_cta = "one CTA serves decodes, ragged batches and uneven masks, too";
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
         stages_are_tuned ? "tuned" : whole);
  record("num_qk_stages", reference.num_qk_stages, body.num_qk_stages, whole);
  record("BK0", reference.BK0, body.BK0, whole);
  record("smem_used", reference.smem_used, body.smem_bytes, whole);
  record("num_mbarriers", reference.num_mbarriers(),
         static_cast<std::int64_t>(body.barriers.size()), whole);
}

// Where it leaves Fa4Config, of which two O take all of tensor memory.
void deviate_from(const Fa4Config& reference, const Sm100Variant& body, bool stages_are_tuned,
                  std::vector<Deviation>& deviations) {
  const char* why = "one query tile has one O, which leaves S and Q room in tensor memory";
  const char* in_pairs = "prompts of one O are computed by pairs of CTAs, others by CTAs alone";
  deviate(deviations, "MMA_M", reference.MMA_M, body.MMA_M, in_pairs);
  deviate(deviations, "v_cols_per_cta", reference.v_cols_per_cta(), body.v_cols_per_cta, in_pairs);
  deviate(deviations, "num_qo", reference.num_qo(), body.num_qo, why);
  deviate(deviations, "BM", reference.BM, body.BM, why);
  deviate(deviations, "BN", reference.BN, body.BN, why);
  record_ring(reference, body, "", stages_are_tuned ? "tuned" : why, deviations);
  deviate(deviations, "correction_smem_elements", reference.correction_smem_elements(),
          std::int64_t{512}, "a softmax thread ends a row with its sum and its maximum");
}

Result<Sm100Plan> plan_one_o(const ResolvedSpec& resolved, ConfigKind kind,
                             const Sm100Tuning& tuned) {
  const AttentionSpec& spec = *resolved;
  const PlanOptions& options = resolved.options();
  if (options.num_qo.value_or(1) != 1) {
    const char* nothing_left = spec.ov_depth > 192 ? "S no tensor memory"
                               : widens_kv(spec)   ? "the widening no registers"
                                                   : "K and V no room for two stages";
    return unsupported(
        fmt::format("num_qo is {}; two O of depth {} leave {}, and one query tile has one",
                    *options.num_qo, spec.ov_depth, nothing_left));
  }
  Sm100Plan plan;
  plan.reference = kind;
  plan.softmax_warpgroups = 1;
  plan.widens_kv = widens_kv(spec);
  plan.mapped = walks_map(resolved);
  choose_work(spec, tuned, plan);
  Sm100LayoutRequest tile = sm100_layout_request(spec, plan);
  tile.num_qo = 1;
  tile.one_o = true;
  tile.pair_cta = options.pair_cta.value_or(pairs_by_default(resolved, plan, tile));
  plan.cluster = tile.pair_cta ? 2 : 1;
  const std::int64_t of_reference = depth512_args(spec, options).swizzle_mode;
  PlanOptions chosen = options;
  chosen.pair_cta = tile.pair_cta;
  tile.swizzle_bytes = swizzle_of(spec, chosen).value_or(of_reference);
  plan.swizzle_bytes = tile.swizzle_bytes;
  deviate(plan.deviations, "swizzle_bytes", of_reference, tile.swizzle_bytes, kWholeLines);
  tile.BN = tile.pair_cta ? kPairOneOKeys : kOneOKeys;
  Result<Sm100Ring> ring = sm100_tune_ring(tile, sm100_choose_ring(tile), tuned);
  if (!ring) return ring.error();
  Sm100Variant body = lay_out_fa4(tile, ring->slots, ring->fused, ring->qk_stages);
  if (body.num_kv_stages < 2) {
    return unsupported(
        fmt::format("{} K/V stages fit the shared memory; the least is 2", body.num_kv_stages));
  }
  const auto record = [&](const char* name, auto expected, auto actual, const char* why) {
    deviate(plan.deviations, name, expected, actual, why);
  };
  const char* why_groups = body.fuse_gqa ? kDecodes : kWholeGroups;
  Sm100Budgets reference_budgets{192, 88, 40};
  if (kind == ConfigKind::kDepth512) {
    const Depth512Config reference(depth512_args(spec, options));
    deviate_from(reference, body, tuned.num_kv_stages.has_value(), plan.deviations);
    record("fuse_gqa", reference.fuse_gqa, body.fuse_gqa, why_groups);
    record("BM_eff", reference.BM_eff(), body.BM_eff, why_groups);
    reference_budgets = {256, 184, 64};
  } else {
    const Fa4Config reference(fa4_args(resolved.given(), options));
    deviate_from(reference, body, tuned.num_kv_stages.has_value(), plan.deviations);
    record("fuse_gqa", reference.fuse_gqa, body.fuse_gqa, why_groups);
    record("BM_eff", reference.BM_eff(), body.BM_eff,
           reference.num_qo() == 1 ? why_groups : "one query tile has one O");
  }

  if (Status status = sm100_assign_roles(reference_budgets, one_o_budgets(plan), tuned, plan);
      !status) {
    return status.error();
  }
  plan.exp2_pairs = body.BN / 2;
  plan.exp2_fma_pairs = polynomial_pairs(spec, plan, body);
  plan.row_copies = tile.row_copies;
  plan.split = splits(spec);
  plan.partition_tiles = spec.partition_keys / body.BN;
  plan.variants = {std::move(body)};
  add_tensor_maps(spec, plan.variants.front(), tile.swizzle_bytes, plan);
  return plan;
}

}  // namespace

Result<Sm100Plan> make_sm100_plan(const ResolvedSpec& resolved, const TuningValues* values) {
  const AttentionSpec& spec = *resolved;
  if (std::optional<Error> error = check_shape(spec)) return *std::move(error);
  const ConfigKind kind = resolve_config_kind(ConfigKind::kAuto, spec, resolved.options());
  const bool one_o = takes_one_o(spec, resolved.options(), kind);
  const Result<Sm100Tuning> tuned = Sm100Tuning::read(values, one_o);
  const Sm100Tuning choices = tuned ? *tuned : Sm100Tuning();
  Result<Sm100Plan> plan =
      one_o ? plan_one_o(resolved, kind, choices) : plan_fa4(resolved, kind, choices);
  if (!plan) return plan;
  // A spec that no tiles serve is unsupported, whatever a row chooses for it.
  if (!tuned) return tuned.error();
  Status status =
      choices.take(&Sm100Tuning::exp2_fma_pairs, 0, plan->exp2_pairs, 1, plan->exp2_fma_pairs);
  if (!status) return status.error();
  status =
      choices.take(&Sm100Tuning::persistent, 0, plan->can_persist ? 1 : 0, 1, plan->persistent);
  if (!status) return status.error();
  if (spec.qkv_dtype == Dtype::kE4m3) {
    // The greatest power of two below e4m3's 448, so that nothing of P that can be kept is lost,
    // and the most that a maximum may grow: 2^(8 + 0.75) = 431 (docs/sm100.md).
    plan->p_bias = 8;
    plan->rescale_threshold = 0.75;
  } else if (plan->widens_kv) {
    // P is fp16, whose small numbers are kept: with what a maximum may grow by it is 2^15 at most,
    // half of what fp16 holds.
    plan->p_bias = 7;
  }
  for (const Sm100Variant& variant : plan->variants) {
    plan->smem_bytes = std::max(plan->smem_bytes, variant.smem_bytes);
  }
  return plan;
}

}  // namespace attnjit

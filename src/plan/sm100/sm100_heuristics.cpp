// SPDX-License-Identifier: Apache-2.0
// Chooses the tiles of the sm_100 kernels.
#include "plan/sm100/sm100_heuristics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/kernel/partials.h"
#include "plan/map/map_plan.h"
#include "plan/reference/config_math.h"
#include "plan/reference/reference_json.h"
#include "spec/expression_ranges.h"
#include "spec/resolved_spec.h"

namespace attnjit {
namespace {

// Whether a warp walks the launch's sequences to find the work tiles, or their parts.
bool lists_sequences(const SpecFacts& spec) {
  return splits(spec) || spec.ragged_kv || spec.kv_lens_exclude_new;
}

// A softmax thread holds a row of S: at 192 keys it spills (428 bytes were seen under 192
// registers), at 160 and below it does not.
constexpr std::int64_t kMaxRowKeys = 160;
// Where keys have scales of their own the thread reads those, too: at 128 keys half of the kernels
// that were looked at spilt (112 to 240 bytes), at 96 none.
constexpr std::int64_t kMostScaledKeys = 96;
// Beside the warps that upcast K and V it has 136 registers, in which 96 keys do not spill. A
// thread of these holds its part of a tile of each, which is to be no more than at depth 128. With
// scales of keys 96 spilt 100 to 128 bytes.
constexpr std::int64_t kMostUpcastKeys = 96;
constexpr std::int64_t kMostUpcastBlocks = 4;  // of 64 columns, of K and V
constexpr std::int64_t kMostDualDepth = 192;   // of K, whose blocks are upcast beside two O
// FA4's tile at every depth; four steps of 32 columns, so that P splits three to one.
constexpr std::int64_t kLoweredKeys = 128;
constexpr std::int64_t kColumnBatch = 32;  // columns per tcgen05.ld, and bits per mask word

// Whether a tile is whole pages, or a page whole tiles: the fewest boxes.
bool fits_pages(std::int64_t keys, const SpecFacts& spec) {
  const std::int64_t page_size = spec.page_size;
  return page_size == 0 || spec.copies_rows || spec.upcasts_kv || page_size % keys == 0 ||
         keys % page_size == 0;
}

// The keys per tile that registers hold where K and V are upcast; elsewhere no bound.
std::int64_t most_upcast_keys(const SpecFacts& spec) {
  if (!spec.upcasts_kv) return kMaxRowKeys;
  const std::int64_t blocks = ceil_div(spec.qk_depth, 64) + ceil_div(spec.ov_depth, 64);
  const bool fits = blocks <= kMostUpcastBlocks && !spec.key_scales;
  return fits ? kMostUpcastKeys : kMostUpcastKeys - kColumnBatch;
}

}  // namespace

bool sm100_has_single_accumulator(const SpecFacts& spec, const PlanOptions& options,
                                  ConfigKind kind) {
  if (kind != ConfigKind::kFa4) return kind == ConfigKind::kDepth512;
  if (spec.ov_depth > 192) return true;
  if (spec.qk_depth <= kMostDualDepth) return false;
  return spec.upcasts_kv || options.pair_cta.value_or(false) ||
         sm100_fa4_config(spec, options).num_kv_stages < 2;
}

std::optional<int> sm100_swizzle(const SpecFacts& spec, const PlanOptions& options) {
  if (options.swizzle_bytes || spec.qkv_dtype != Dtype::kE4m3) return options.swizzle_bytes;
  // NOTE: a CTA of a pair with two O has half of 128 columns of V, in whole blocks.
  if (options.pair_cta.value_or(false) && spec.ov_depth <= 128) return std::nullopt;
  if (spec.qk_depth % 128 != 0 || spec.ov_depth % 128 != 0) return std::nullopt;
  return 128;
}

Fa4Config sm100_fa4_config(const SpecFacts& spec, PlanOptions options) {
  options.swizzle_bytes = sm100_swizzle(spec, options);
  return Fa4Config(fa4_args(spec, options));
}

void sm100_choose_work(const ResolvedSpec& resolved, bool pair, const Sm100Tuning& tuned,
                       Sm100Plan& plan) {
  const SpecFacts& spec = resolved;
  plan.block_mask = walks_block_mask(resolved);
  plan.published = lists_sequences(spec);
  const bool decodes = !spec.ragged && spec.lengths_differ && spec.decodes(kSm100TileRows);
  plan.cuts = splits(spec) && spec.num_partitions == 0 && spec.partition_keys == 0 &&
              (cuts_ragged(spec) || decodes) && !plan.block_mask;
  plan.can_persist = !plan.published && !spec.lengths_differ;
  // A warp publishes what is stolen, which is not there for pairs.
  plan.can_steal_tiles = plan.can_persist && !pair && !plan.block_mask && !plan.spec->upcasts_kv;
  // NOTE: what interprets is one kernel for all masks, even ones and others. What an expression
  // hides may make its work uneven, but never longer than where nothing is hidden.
  const bool even = !spec.interpreted && !contains(spec.mask, MaskSpec::Kind::kCausal);
  // NOTE: where each role counts work tiles for itself, as in pairs, each would ask the expression.
  // With a single accumulator pairs gain nothing by walking several; with two they do, and walk all
  // KV tiles.
  const bool asks = spec.block_sparse && !plan.block_mask;
  const bool single_accumulator = plan.softmax_warpgroups == 1;
  const bool persists = plan.can_persist && even && !(asks && pair && single_accumulator);
  plan.persistent = tuned.persistent.value_or(persists ? 1 : 0);
  plan.counted = (asks && plan.can_persist && plan.persistent == 1 && !pair) ||
                 (plan.can_steal_tiles && plan.steals_tiles());
  plan.published = plan.published || plan.counted;
  plan.skips_tiles = asks && (plan.published || plan.one_work_tile());
  plan.many_gaps =
      plan.skips_tiles && spec::any_of_mask(resolved.state().snippets, spec::hides_again);
}

Result<std::int64_t> sm100_choose_keys(const SpecFacts& spec, const Fa4Config& config,
                                       const Sm100Tuning& tuned, bool block_mask,
                                       std::string& why) {
  const auto divides_blocks = [&](std::int64_t tile) {
    return !block_mask || kMaskBlock % tile == 0;
  };
  std::int64_t keys = config.BN;
  const auto lower = [&](std::int64_t to, const std::string& reason) {
    if (to == keys) return;
    why += (why.empty() ? "" : "; ") + reason;
    keys = to;
  };
  // The most keys that are no more than these, in steps of columns, of which something holds; 64
  // where it does of none.
  const auto most_that = [&](const auto& holds) {
    std::int64_t most = keys;
    while (most > 64 && !holds(most)) most -= kColumnBatch;
    return most;
  };
  if (keys > kMaxRowKeys) {
    lower(kLoweredKeys,
          fmt::format("a softmax thread holds a row of S: {} keys spill under its registers, {} "
                      "and fewer do not; {} is the largest that P V can start on three quarters of",
                      config.BN, kMaxRowKeys, kLoweredKeys));
  }
  lower(align_down(keys, kColumnBatch),
        fmt::format("S is read and masked in whole batches of {} columns", kColumnBatch));
  if (spec.key_scales && keys > kMostScaledKeys) {
    lower(kMostScaledKeys,
          fmt::format("{} keys with scales of their own spill, {} do not", keys, kMostScaledKeys));
  }
  const std::int64_t upcast = std::min(keys, most_upcast_keys(spec));
  lower(upcast, fmt::format("beside warps that upcast K and V registers hold {} keys", upcast));
  // A tile is whole pages, or a page whole tiles, if one can be.
  const std::int64_t paged = most_that([&](std::int64_t tile) { return fits_pages(tile, spec); });
  if (fits_pages(paged, spec)) {
    lower(paged, fmt::format("{} keys fit pages of {}, {} do not", paged, spec.page_size, keys));
  }
  const std::int64_t split =
      most_that([&](std::int64_t tile) { return spec.partition_keys % tile == 0; });
  lower(split, fmt::format("{} keys divide partitions of {}, {} do not", split, spec.partition_keys,
                           keys));
  const std::int64_t dividing = most_that(divides_blocks);
  lower(dividing,
        fmt::format("{} keys divide a block of the mask's map, {} do not", dividing, keys));
  if (const std::optional<std::int64_t> asked = tuned.BN) {
    const std::int64_t most =
        std::min(most_upcast_keys(spec), align_down(256 - config.padded_ov_depth, 32));
    if (*asked < 64 || *asked > most || *asked % kColumnBatch != 0) {
      return bad_choice(&Sm100Tuning::BN, "is {}; allowed: 64 to {} in steps of {}", *asked, most,
                        kColumnBatch);
    }
    if (spec.partition_keys % *asked != 0) {
      return bad_choice(&Sm100Tuning::BN, "is {}; partition_keys {} is no multiple", *asked,
                        spec.partition_keys);
    }
    if (!divides_blocks(*asked)) {
      return bad_choice(&Sm100Tuning::BN, "is {}; a block of the mask's map has {} keys", *asked,
                        kMaskBlock);
    }
    keys = *asked;
    why = "tuned";
  }
  if (keys < 64) {
    return sm100_unsupported("{} keys per tile are left; the least is 64", keys);
  }
  return keys;
}

Result<Sm100SplitOfP> sm100_choose_split_of_p(const SpecFacts& spec, std::int64_t keys,
                                              const Sm100Tuning& tuned) {
  const std::int64_t step_keys = 32 / size_of(spec.qkv_dtype);
  Sm100SplitOfP split;
  Status status = tuned.take(&Sm100Tuning::pv_first_quarters, 1, 4, 1, split.first_quarters);
  if (!status) return status.error();
  // Where a tile has no quarters of whole steps, less than all of it is half.
  const bool has_quarters = keys / step_keys % 4 == 0;
  if (!has_quarters && split.first_quarters != 4) split.first_quarters = 2;
  split.parts = split.first_quarters == 4 ? 1 : split.first_quarters == 1 ? 4 : 2;
  status = tuned.take(&Sm100Tuning::num_pv_stages, 1, 4, 1, split.parts);
  if (!status) return status.error();
  if (split_of_p(split, keys, step_keys).empty()) {
    return bad_choice(&Sm100Tuning::num_pv_stages,
                      "is {}; beside pv_first_quarters {} the {} keys of a tile have "
                      "no parts of whole steps of {}",
                      split.parts, split.first_quarters, keys, step_keys);
  }
  return split;
}

std::int64_t sm100_single_accumulator_keys(bool pair_cta) { return pair_cta ? 128 : 64; }

bool sm100_pairs_by_default(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  // V's columns of whole blocks, of which each CTA has half.
  PlanOptions in_pairs = resolved.options();
  in_pairs.pair_cta = true;
  const std::int64_t bytes =
      sm100_swizzle(spec, in_pairs).value_or(depth512_args(spec, in_pairs).swizzle_mode);
  const bool halves = ceil_div(spec.ov_depth * size_of(spec.qkv_dtype), bytes) % 2 == 0;
  return halves && !spec.decodes(kSm100TileRows) && !spec.lengths_differ &&
         !lists_sequences(spec) && !spec.upcasts_kv && !walks_block_mask(resolved);
}

bool sm100_may_choose_pairs(const ResolvedSpec& resolved, ConfigKind kind,
                            bool single_accumulator) {
  const SpecFacts& spec = resolved;
  const PlanOptions& options = resolved.options();
  const bool dual_in_pairs = spec.qk_depth > kSm100Pairless && kind != ConfigKind::kMla;
  PlanOptions in_pairs = options;
  in_pairs.pair_cta = true;
  return !options.pair_cta && !options.num_qo && !spec.separate_rope &&
         sm100_has_single_accumulator(spec, in_pairs, kind) == single_accumulator &&
         !splits(spec) && (single_accumulator || dual_in_pairs) && sm100_pairs_by_default(resolved);
}

PlanOptions sm100_options(const ResolvedSpec& resolved, const Sm100Tuning& tuned) {
  PlanOptions options = resolved.options();
  if (tuned.pair_cta) options.pair_cta = *tuned.pair_cta != 0;
  if (tuned.num_qo) options.num_qo = static_cast<int>(*tuned.num_qo);
  return options;
}

std::int64_t sm100_polynomial_pairs(const SpecFacts& spec, const Sm100Plan& plan,
                                    const Sm100Variant& variant) {
  if (spec.arch == Arch::kSm103a) return 0;
  const std::int64_t tensor_cycles =
      64 * (variant.qk_mma_depth + align_up(variant.ov_depth, variant.MMA_K)) / variant.MMA_K;
  const std::int64_t pairs = variant.BN / 2;
  // A caller's code for each score takes registers, of which there are few beside warps that
  // upcast, and so many instructions that the MUFU is the bound no more.
  const bool modified = spec.score_mod.kind == ScoreModSpec::Kind::kCustom;
  if (spec.upcasts_kv && modified) return pairs / 16;
  // P of e4m3 takes fewer registers: four in 16 spill nowhere, but beside what reads what is
  // published and a map, where 28 bytes spilt.
  if (variant.MMA_K == 32 && variant.num_qo == 2 && !(plan.published && plan.block_mask)) {
    return pairs / 4;
  }
  if (tensor_cycles < 896 && variant.num_qo == 2) return pairs * 3 / 16;
  return tensor_cycles <= 1024 ? pairs / 8 : pairs / 16;
}

}  // namespace attnjit

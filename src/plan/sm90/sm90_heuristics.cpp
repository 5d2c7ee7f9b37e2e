// SPDX-License-Identifier: Apache-2.0
// Chooses the tiles of the sm_90a forward kernel.
#include "plan/sm90/sm90_heuristics.h"

#include <algorithm>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "plan/launch/row_tiles.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_knobs.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/expression_ranges.h"
#include "spec/resolved_spec.h"
#include "spec/small_window.h"

namespace attnjit {
namespace {

/// The tile of a launch of few rows, which waits for K and V: 64 rows, and two CTAs per SM where
/// they fit, so that one loads while the other begins or ends a work tile.
void choose_decode(const AttentionSpec& spec, Sm90Plan& plan) {
  // Bytes per CTA. More at a time cost bandwidth; copies of rows take longer to arrive.
  const int loaded_ahead = plan.row_copies ? 98304 : 65536;
  plan.BN = 64;
  plan.pair_tiles = false;
  plan.claims_work = false;
  // NOTE: 256 cost 3 % of the memory's bandwidth: nobody comes back for what was not asked for.
  plan.l2_bytes = 128;
  const Sm90KvBytes kv = sm90_kv_bytes(spec, plan.BN);
  const std::int64_t q_bytes = kv.k * kSm90ConsumerRows / plan.BN;
  if (widens_kv(spec)) {
    // What is widened waits for nothing: as many tiles are copied ahead as there is room for.
    const std::int64_t scales_bytes =
        plan.key_scales ? sm90_key_scales_bytes(plan.BN, 2, kSm90MaxRowStages) : 0;
    const auto left = [&](std::int64_t room, int consumers) {
      return room - 2048 - 2 * (kv.k + kv.v) - consumers * q_bytes - scales_bytes;
    };
    const bool two = left(kSm90SmSmemBytes / 2, 1) >= kv.k_rows + kv.v_rows;
    plan.num_consumers = two ? 1 : 2;
    plan.ctas_per_sm = two ? 2 : 1;
    plan.num_q_stages = 1;
    plan.ping_pong = !two;
    const std::int64_t room = two ? left(kSm90SmSmemBytes / 2, 1) : left(kSm90SmSmemBytes, 2);
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): tiles that are widened have rows.
    const std::int64_t fit = room / (kv.k_rows + kv.v_rows);
    plan.num_row_stages = static_cast<int>(std::clamp<std::int64_t>(fit, 1, kSm90MaxRowStages));
    return;
  }
  const std::int64_t copied = kv.k + std::max(kv.v, kv.v_rows);
  plan.num_stages = static_cast<int>(std::clamp<std::int64_t>(loaded_ahead / copied, 2, 4));
  std::int64_t other_bytes = 2048;
  if (is_e4m3(spec)) {
    // V is copied as far ahead as K; what is transposed waits for nothing. O has its own memory.
    plan.num_row_stages = plan.num_stages;
    other_bytes += plan.num_v_stages * kv.v + std::int64_t{kBoxRowBytes} * kSm90ConsumerRows;
    if (plan.key_scales) {
      other_bytes += sm90_key_scales_bytes(plan.BN, plan.num_v_stages, plan.num_row_stages);
    }
  }
  const bool two = q_bytes + plan.num_stages * copied + other_bytes <= kSm90SmSmemBytes / 2;
  plan.num_consumers = two ? 1 : 2;
  plan.ctas_per_sm = two ? 2 : 1;
  plan.num_q_stages = 1;
  plan.ping_pong = !two;
}

/// The tile of a kernel that walks a map: of it a map's block is whole tiles, and a tile's rows are
/// of one row of blocks.
void choose_mapped(const AttentionSpec& spec, Sm90Plan& plan) {
  const bool narrow = spec.qk_depth <= 192 && spec.ov_depth <= 128 && !plan.widens_kv;
  // NOTE: scales of 128 keys have no room beside what is widened at depth 128.
  const bool fits = spec.qk_depth <= 64 || !plan.widens_kv || !plan.key_scales;
  plan.BN = (spec.qk_depth <= 128 && fits) || narrow ? 128 : 64;
  plan.num_stages = 2;
  plan.num_q_stages = 2;
  plan.ping_pong = true;
  // O's own memory in the place of a second Q: measured at depth 128.
  if (spec.qk_depth > 64 && spec.qk_depth <= 128) plan.num_q_stages = 1;
}

/// The tile of e4m3 of a depth. P takes half of the registers that it takes of 16-bit types, and O
/// the same.
void choose_e4m3(const AttentionSpec& spec, Sm90Plan& plan) {
  plan.num_v_stages = 2;
  plan.num_row_stages = 2;
  // The greatest power of two below 448, so that nothing of P that can be kept is lost, and the
  // most that a maximum may grow: 2^(8 + 0.75) = 431.
  plan.p_bias = 8;
  plan.rescale_threshold = 0.75;
  plan.ping_pong = true;
  // A tile is multiplied in half of the time of a 16-bit one, and its copies take as long.
  plan.num_stages = spec.qk_depth <= 128 ? 3 : 2;
  plan.num_q_stages = 2;
  if (spec.qk_depth <= 64) {
    plan.BN = 128;
    // The exponentials take the MUFU twice as long as the products take, so the FMA pipe computes
    // one pair in 16. Five stages of K pay where the rows are summed by product, beside that pair
    // alone. Both were measured: docs/sm90.md.
    plan.exp2_fma_pairs = plan.key_scales ? 0 : 1;
    if (sm90_sums_by_product(spec, plan)) plan.num_stages = 5;
  } else if (spec.qk_depth <= 128) {
    plan.BN = plan.num_consumers == 3 ? 96 : 128;
  } else {
    // NOTE: beside O of more columns scales of 96 keys spill.
    const int keys = plan.key_scales ? 64 : 96;
    plan.BN = spec.qk_depth <= 192 && spec.ov_depth <= 128 ? 128 : keys;
  }
  if (spec.qk_depth > 192) {
    // Two consumers whose products and softmax take about as long need no turns, and O that is
    // stored more at a time is worth more than a second Q: measured.
    plan.ping_pong = false;
    plan.num_q_stages = 1;
  }
}

/// The tile of a depth where K and V are widened. Their warps need registers that three consumers
/// do not leave; memory holds each tile twice.
void choose_widened(const AttentionSpec& spec, bool light, Sm90Plan& plan) {
  plan.num_consumers = 2;
  plan.num_stages = 2;
  plan.num_q_stages = 2;
  // At depth 128 in the place of a second Q: measured.
  plan.num_row_stages = spec.qk_depth <= 128 ? 2 : 1;
  plan.ping_pong = spec.qk_depth <= 64 || spec.qk_depth > 128;
  // P is fp16. What a maximum may grow by, 2^8, and this are half of what that can hold.
  plan.p_bias = 7;
  if (spec.qk_depth <= 128) {
    // NOTE: at depth 128 an `or` mask and ALiBi spill with 128, and scales of keys have no room.
    plan.BN = (light && !plan.key_scales) || spec.qk_depth <= 64 ? 128 : 96;
  } else {
    plan.BN = spec.qk_depth <= 192 && spec.ov_depth <= 128 ? 96 : 64;
  }
}

/// The tile where waits are bounded. NOTE: that takes registers, and of these tiles ptxas
/// serialises products least.
void choose_debug(Sm90Plan& plan) {
  plan.BN = 64;
  plan.num_consumers = 2;
  plan.ctas_per_sm = 1;
  plan.num_stages = 2;
  plan.num_v_stages = 2;
}

/// The least block of rows, and of keys, that expressions of the mask look up in arrays; 0: none.
struct LookedUp {
  int rows = 0, keys = 0;
};
LookedUp looked_up_blocks(const ResolvedSpec& resolved) {
  LookedUp least;
  const auto lower = [](int& to, int block) {
    if (block > 0 && (to == 0 || block < to)) to = block;
  };
  for (const auto& snippet : resolved.state().snippets) {
    if (!snippet || snippet->kind != spec::SnippetKind::kMask) continue;
    lower(least.rows, spec::looked_up_block(*snippet, spec::Coord::kQIdx));
    lower(least.rows, spec::looked_up_block(*snippet, spec::Coord::kQRow));
    lower(least.keys, spec::looked_up_block(*snippet, spec::Coord::kKvIdx));
  }
  return least;
}

/// The tile of depth 128 where rows of a block see blocks of keys of their own: CTAs of 192 rows
/// would load and pass over what two or three blocks of rows see. Measured of 128 to 512 rows.
void choose_blocks(Sm90Plan& plan) {
  plan.num_consumers = 2;
  plan.BN = 128;
  plan.num_stages = 2;
  plan.num_q_stages = 2;
}

/// Whether a row sees few keys, and the kernel is compiled for their number. NOTE: one that is
/// interpreted takes it at launch, whatever the spec says.
bool has_small_window(const AttentionSpec& spec) {
  const MaskSpec& mask = spec.mask;
  return mask.kind == MaskSpec::Kind::kSlidingWindow && mask.constant && !spec.interpreted &&
         mask.window >= 0 && mask.window_right >= 0 &&
         mask.window + mask.window_right <= spec::kSmallWindow;
}

}  // namespace

Sm90Plan sm90_choose_tile(const ResolvedSpec& resolved) {
  const AttentionSpec& spec = *resolved;
  const bool mapped = walks_map(resolved);
  const bool listed = mapped || lists_tiles(resolved);
  // Three consumer warpgroups have 160 registers a thread: S, P and O of depth 64 and 128 take up
  // to 128 of them, so only masks and modifications that need few of their own leave nothing to
  // spill.
  const bool expressed =
      contains(spec, MaskSpec::Kind::kOr) || contains(spec, MaskSpec::Kind::kCustom);
  const bool given = contains(spec, MaskSpec::Kind::kMaterialized);
  const bool light = (listed || !expressed) && !given &&
                     (spec.score_mod.kind == ScoreModSpec::Kind::kIdentity ||
                      spec.score_mod.kind == ScoreModSpec::Kind::kAlibi);
  // A softcap leaves them for 64 keys at depth 128, which is faster than two consumers: measured of
  // sequences of one length. NOTE: kernels that split keys would spill.
  const bool capped = spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap && !listed &&
                      !expressed && !given && !spec.interpreted && !sm90_rewrites_kv(spec) &&
                      !splits(spec) && spec.qk_depth > 96 && spec.qk_depth <= 128;
  const bool key_scales = keys_have_scales(spec);
  const bool hides = spec.mask.kind != MaskSpec::Kind::kNull;
  const bool windowed = hides && !contains(spec, MaskSpec::Kind::kCausal);
  Sm90Plan plan;
  // NOTE: above depth 64 scales of keys take registers that three consumers do not have.
  const int most_depth = key_scales ? 64 : 128;
  plan.num_consumers = (light || capped) && !mapped && spec.qk_depth <= most_depth ? 3 : 2;
  plan.key_scales = key_scales;
  plan.num_stages = 2;
  plan.num_q_stages = 2;
  plan.ping_pong = true;
  plan.listed = listed;
  plan.mapped = mapped;
  plan.map_bits = mapped && map_has_bits(spec);
  plan.widens_kv = widens_kv(spec);
  plan.kv_row_bytes = sm90_kv_row_bytes(spec);
  plan.kv_lens = lengths_differ(spec);
  plan.split = splits(spec);
  // NOTE: of windows and chunks the launch does not know how little there is to share out. The
  // device does, but not of listed tiles. Decodes have a tile of each head.
  const bool deals = plan.kv_lens ? decodes(spec, kSm90ConsumerRows)
                                  : !decodes(spec, kSm90ConsumerRows) &&
                                        !contains(spec, MaskSpec::Kind::kSlidingWindow) &&
                                        !contains(spec, MaskSpec::Kind::kChunked);
  plan.runs =
      plan.split && spec.num_partitions == 0 && spec.partition_keys == 0 && !plan.listed && deals;
  plan.overlaps = plan.split || plan.mapped || decodes(spec, kSm90ConsumerRows);
  plan.row_copies = copies_rows(spec);
  plan.direct_o = spec.output_dtype.value_or(spec.qkv_dtype) == Dtype::kF32;
  const auto [rising, much_whole] = shown_of_long_sequence(resolved);
  // In a ragged batch a tile may be a hundred times as long as another. What a listed mask shows of
  // each is known on the device alone, but pairs even out what is like causal. NOTE: warps that
  // copy rows each find the CTA's work for themselves, and could not claim it.
  plan.claims_work = spec.ragged && !plan.row_copies;
  if (!plan.kv_lens) plan.claims_work = listed && !plan.split && (mapped || !rising);
  plan.cuts = plan.split && spec.num_partitions == 0 && spec.partition_keys == 0 && plan.kv_lens &&
              plan.claims_work && !plan.mapped && !decodes(spec, kSm90ConsumerRows);
  // Decodes load each key once, and nobody comes back for what L2 fetches beside it: 7 % of 4 TB/s.
  // Prompts do not notice.
  if (plan.kv_lens) plan.l2_bytes = 128;
  plan.pair_tiles = rising && (plan.kv_lens || !plan.claims_work);
  if (spec.qk_depth == 64 && spec.ov_depth == 64 && light && has_small_window(spec)) {
    // Short tiles waste less of a window that few of them span: measured.
    plan.BN = 64;
    plan.num_stages = 4;
  } else if (spec.qk_depth <= 64) {
    plan.BN = 128;
    plan.num_stages = light && windowed ? 3 : 2;
  } else if (capped) {
    plan.BN = 64;
    plan.num_stages = 4;
    plan.ping_pong = false;
  } else if (spec.qk_depth <= 96 || (spec.qk_depth <= 128 && !light)) {
    plan.BN = light ? 96 : 128;
    plan.ping_pong = light;
  } else if (spec.qk_depth <= 128) {
    // Fewer and longer tiles where most are whole, and each costs a note: measured. Pages seldom
    // divide 80.
    const bool whole = !hides || (listed && !plan.kv_lens && much_whole);
    plan.BN = whole && spec.page_size == 0 ? 80 : 64;
    // Four where Q leaves room: measured of pages and ragged batches.
    plan.num_stages = hides && plan.kv_lens && !plan.row_copies ? 4 : 3;
    plan.num_q_stages = hides ? 1 : 2;
  } else if (spec.qk_depth <= 192) {
    plan.BN = spec.ov_depth <= 128 ? 128 : 96;
  } else {
    plan.BN = 64;
  }
  // NOTE: rows of all heads of a group are one behind another in a tile. Blocks that are much
  // longer than 192 rows seldom share a CTA, and more rows reuse K and V more.
  const LookedUp blocks = looked_up_blocks(resolved);
  if (listed && !plan.kv_lens && spec.qk_depth > 96 && spec.qk_depth <= 128 && blocks.rows > 0 &&
      blocks.keys > 0 && blocks.rows % 128 == 0 && blocks.rows % 192 != 0 &&
      blocks.keys % 128 == 0 &&
      blocks.rows <= 512 / (sm90_packs_gqa(spec, plan) ? spec.group : 1)) {
    choose_blocks(plan);
  }
  if (is_e4m3(spec)) choose_e4m3(spec, plan);
  if (plan.widens_kv) choose_widened(spec, light, plan);
  if (mapped) choose_mapped(spec, plan);
  if (decodes(spec, kSm90ConsumerRows)) choose_decode(spec, plan);
  if (plan.row_copies) plan.BN = std::min(plan.BN, 64);
  if (!is_e4m3(spec)) plan.num_v_stages = plan.num_stages;
  if (resolved.options().debug_waits.value_or(false)) choose_debug(plan);
  return plan;
}

bool sm90_packs_gqa(const AttentionSpec& spec, const Sm90Plan& plan) {
  // A TMA box is of the 64 rows of a consumer, whole positions of them. NOTE: two rows of a thread
  // that have a head each have a score modification's state each, and that spills at depth 192 and
  // 256.
  const bool has_state = spec.score_mod.kind == ScoreModSpec::Kind::kAlibi ||
                         spec.score_mod.kind == ScoreModSpec::Kind::kCustom ||
                         contains(spec, MaskSpec::Kind::kMaterialized);
  // Where rows wait for memory, as decodes do, a group that is loaded once for all its heads saves
  // the others' loads; rows that are nobody's cost the rest. A tile of a map's blocks has none.
  const bool fits = kSm90ConsumerRows % spec.group == 0 || decodes(spec, kSm90ConsumerRows) ||
                    (plan.kv_lens && !plan.mapped && spec.group < kSm90ConsumerRows);
  return spec.group > 1 && fits && !(has_state && spec.qk_depth > 128);
}

bool sm90_sums_by_product(const AttentionSpec& spec, const Sm90Plan& plan) {
  // Between 128 and 192 it was not tried.
  const bool faster = spec.qk_depth <= 128 || spec.qk_depth > 192;
  return is_e4m3(spec) && faster && !spec.return_lse && !plan.split && !plan.key_scales;
}

int sm90_held_q_steps(const AttentionSpec& spec, const Sm90Plan& plan) {
  const bool few =
      (spec.mask.kind == MaskSpec::Kind::kNull || spec.mask.kind == MaskSpec::Kind::kCausal) &&
      (spec.score_mod.kind == ScoreModSpec::Kind::kIdentity ||
       spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap);
  const bool holds = few && spec.qk_depth == 256 && plan.sums_by_product &&
                     plan.num_consumers == 2 && plan.BN <= 96 && !plan.row_copies;
  return holds ? 3 : 0;
}

bool sm90_has_low_body(const AttentionSpec& spec, const Sm90Plan& plan) {
  // NOTE: beside the loops of runs, two bodies with ALiBi spill. A second body of a softcap was not
  // timed, and takes as long to compile as the first.
  const bool fits = plan.split ? plan.runs && spec.score_mod.kind == ScoreModSpec::Kind::kIdentity
                               : spec.score_mod.kind != ScoreModSpec::Kind::kSoftcap;
  const bool pays = spec.mask.kind == MaskSpec::Kind::kNull ||
                    (plan.runs && spec.mask.kind == MaskSpec::Kind::kCausal);
  return plan.num_consumers == 3 && spec.qk_depth > 96 && !plan.kv_lens && fits && pays;
}

Sm90Plan sm90_low_tile(const Sm90Plan& plan) {
  Sm90Plan low = plan;
  low.split = low.runs = false;
  low.num_consumers = 2;
  low.idle_warpgroups = plan.num_consumers - low.num_consumers;
  low.BN = 128;
  low.num_stages = 2;
  low.num_v_stages = 2;
  low.num_q_stages = 2;
  return low;
}

}  // namespace attnjit

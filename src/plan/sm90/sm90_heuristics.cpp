// SPDX-License-Identifier: Apache-2.0
// Chooses the tiles of the sm_90a forward kernel.
#include "plan/sm90/sm90_heuristics.h"

#include <algorithm>

#include "plan/kernel/partials.h"
#include "plan/launch/row_tiles.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/resolved_spec.h"

namespace attnjit {
namespace {

/// Three consumer warpgroups have 160 registers a thread: S, P and O of depth 64 and 128 take up to
/// 128 of them, so only masks and modifications that need few of their own leave nothing to spill.
/// NOTE: above depth 64 scales of keys take registers that three do not have, and warps that upcast
/// need those that three do not leave.
constexpr Sm90Case kHasThreeConsumers[] = {
    {kNeedsFewRegisters | kTo64, kBlockMask | kUpcast | kBlocks},
    {kNeedsFewRegisters | kTo128, kBlockMask | kUpcast | kBlocks | kKeyScales},
    {kCapped},
};

/// Keys of a KV tile, stages of K, and of Q.
struct Tile {
  int keys;
  int stages;
  int q_stages;
  bool ping_pong;
};
// Measured where nothing else is said: docs/performance-sm90.md.
constexpr Sm90Row<Tile> kTiles[] = {
    // Of a map's block a tile is a whole part, and its rows are of one row of blocks. O's own
    // memory
    // in the place of a second Q at depth 128. NOTE: there scales of 128 keys have no room beside
    // what is upcast.
    {{kBlockMask | kTo64}, {128, 2, 2, true}},
    {{kBlockMask | kTo128 | kUpcast | kKeyScales}, {64, 2, 1, true}},
    {{kBlockMask | kTo128}, {128, 2, 1, true}},
    {{kBlockMask | kTo192 | kVTo128, kUpcast}, {128, 2, 2, true}},
    {{kBlockMask}, {64, 2, 2, true}},
    // Memory holds each upcast tile twice. NOTE: at depth 128 an `or` mask and ALiBi spill with 128
    // keys, and scales of keys have no room.
    {{kUpcast | kTo64}, {128, 2, 2, true}},
    {{kUpcast | kTo128 | kNeedsFewRegisters, kKeyScales}, {128, 2, 2, false}},
    {{kUpcast | kTo128}, {96, 2, 2, false}},
    {{kUpcast | kTo192 | kVTo128}, {96, 2, 2, true}},
    {{kUpcast}, {64, 2, 2, true}},
    // A tile of e4m3 is multiplied in half of the time of a 16-bit one, its copies take as long,
    // and
    // P takes half of the registers, and O the same. Five stages pay where the rows are summed by
    // product. Two consumers of depth 256, whose products and softmax take about as long, need no
    // turns, and O that is stored more at a time is worth more than a second Q. NOTE: beside O of
    // more columns scales of 96 keys spill.
    {{kE4m3 | kTo64 | kSums}, {128, 5, 2, true}},
    {{kE4m3 | kTo128 | kThreeConsumers, kTo64}, {96, 3, 2, true}},
    {{kE4m3 | kTo128}, {128, 3, 2, true}},
    {{kE4m3 | kTo192 | kVTo128}, {128, 2, 2, true}},
    {{kE4m3 | kTo192 | kKeyScales}, {64, 2, 2, true}},
    {{kE4m3 | kTo192}, {96, 2, 2, true}},
    {{kE4m3 | kKeyScales}, {64, 2, 1, false}},
    {{kE4m3}, {96, 2, 1, false}},
    // CTAs of 192 rows would load and pass over what two or three blocks of rows see. Of 128 to 512
    // rows.
    {{kBlocks | kNeedsFewRegisters}, {128, 2, 2, true}},
    {{kBlocks}, {128, 2, 2, false}},
    // CTAs wait for memory as decodes' do where long tiles are cut: of depth 64 as much of K and V
    // is on its way as of larger depths. NOTE: who finds and takes work beside a second Q would
    // spill, but not where rows are copied.
    {{kCuts | kTo64 | kRowCopies | kSmallWindow | kNeedsFewRegisters},
     {64, kSm90MaxStages, 2, true}},
    {{kCuts | kTo64 | kRowCopies}, {112, 4, 2, true}},
    {{kCuts | kSmallWindow | kNeedsFewRegisters}, {64, 4, 1, true}},
    {{kCuts | kTo64}, {128, 4, 1, true}},
    {{kCuts | kTo96 | kNeedsFewRegisters | kRowCopies}, {64, 3, 2, true}},
    {{kCuts | kTo96 | kNeedsFewRegisters}, {96, 2, 1, true}},
    {{kCuts | kTo96 | kRowCopies}, {64, 3, 2, false}},
    {{kCuts | kTo96}, {128, 2, 1, false}},
    // Short tiles waste less of a window that few of them span.
    {{kSmallWindow | kNeedsFewRegisters}, {64, 4, 2, true}},
    {{kTo64 | kNeedsFewRegisters | kWindowed}, {128, 3, 2, true}},
    // O has its own memory in the place of a second Q: short tiles gain most, whose rows are loaded
    // while those of the tile before are stored.
    {{kTo64}, {128, 4, 1, true}},
    // A softcap leaves registers for 64 keys, which is faster than two consumers.
    {{kCapped}, {64, 4, 2, false}},
    {{kTo96 | kNeedsFewRegisters}, {96, 2, 2, true}},
    {{kTo128, kNeedsFewRegisters}, {128, 2, 2, false}},
    // Fewer and longer tiles where most are whole, and each costs a descriptor. Pages seldom
    // divide 80.
    // Four stages where Q leaves room: of pages and ragged batches.
    {{kTo128 | kNoMask, kPaged}, {80, 3, 2, true}},
    {{kTo128 | kNoMask}, {64, 3, 2, true}},
    {{kTo128 | kBlockSparse | kMuchWhole, kKvLens | kPaged}, {80, 3, 1, true}},
    {{kTo128 | kKvLens, kRowCopies}, {64, 4, 1, true}},
    {{kTo128}, {64, 3, 1, true}},
    {{kTo192 | kVTo128}, {128, 2, 2, true}},
    {{kTo192}, {96, 2, 2, true}},
    {{}, {64, 2, 2, true}},
};

/// Elsewhere a tile of rows that are copied has 64 keys at most. NOTE: with more than 112 consumers
/// that have 152 registers would spill.
constexpr Sm90Case kLongCopiedTile{kCuts | kTo64, kE4m3 | kUpcast};

// Between 128 and 192 it was not tried.
constexpr Sm90Case kSumsByProduct[] = {
    {kE4m3 | kTo128, kLse | kSplit | kKeyScales},
    {kE4m3, kTo192 | kLse | kSplit | kKeyScales},
};

constexpr Sm90Case kKeepsQ[] = {
    {kSimple | kIdentity | kAt256 | kSums | kTwoConsumers | kShortTile, kRowCopies},
    {kSimple | kSoftcap | kAt256 | kSums | kTwoConsumers | kShortTile, kRowCopies},
};

// NOTE: beside the loops of stream-K ranges, two bodies with ALiBi spill. A small-tile variant of a
// softcap was not timed, and takes as long to compile as the first.
constexpr Sm90Case kHasSmallTiles[] = {
    {kThreeConsumers | kStreamK | kIdentity | kSimple, kTo96 | kKvLens},
    {kThreeConsumers | kNoMask, kTo96 | kKvLens | kSplit | kSoftcap},
};

/// The tile of a launch of few rows, which waits for K and V: 64 rows, and two CTAs per SM where
/// they fit, so that one loads while the other begins or ends a work tile.
void choose_decode(Sm90Plan& plan) {
  const SpecFacts& spec = *plan.spec;
  plan.BN = 64;
  plan.pair_tiles = false;
  plan.dynamic_schedule = false;
  // NOTE: 256 cost 3 % of the memory's bandwidth: nobody comes back for what was not asked for.
  plan.l2_bytes = 128;
  const Sm90KvBytes kv = sm90_kv_bytes(spec, plan.BN);
  const std::int64_t q_bytes = kv.k * kSm90ConsumerRows / plan.BN;
  bool two = false;
  if (spec.upcasts_kv) {
    // What is upcast waits for nothing: as many tiles are copied ahead as there is room for.
    const std::int64_t scales_bytes =
        spec.key_scales ? sm90_key_scales_bytes(plan.BN, 2, kSm90MaxRawStages) : 0;
    const auto left = [&](std::int64_t room, int consumers) {
      return room - 2048 - 2 * (kv.k + kv.v) - consumers * q_bytes - scales_bytes;
    };
    two = left(kSm90SmSmemBytes / 2, 1) >= kv.raw_k + kv.raw_v;
    const std::int64_t room = two ? left(kSm90SmSmemBytes / 2, 1) : left(kSm90SmSmemBytes, 2);
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): tiles that are upcast have rows.
    const std::int64_t fit = room / (kv.raw_k + kv.raw_v);
    plan.num_raw_stages = static_cast<int>(std::clamp<std::int64_t>(fit, 1, kSm90MaxRawStages));
  } else {
    // Bytes per CTA. More at a time cost bandwidth; copies of rows take longer to arrive.
    const int loaded_ahead = spec.copies_rows ? 98304 : 65536;
    const std::int64_t copied = kv.k + std::max(kv.v, kv.raw_v);
    plan.num_stages = static_cast<int>(std::clamp<std::int64_t>(loaded_ahead / copied, 2, 4));
    std::int64_t other_bytes = 2048;
    if (spec.is_e4m3) {
      // V is copied as far ahead as K; what is transposed waits for nothing. O has its own memory.
      plan.num_raw_stages = plan.num_stages;
      other_bytes += plan.num_v_stages * kv.v + std::int64_t{kBoxRowBytes} * kSm90ConsumerRows;
      if (spec.key_scales) {
        other_bytes += sm90_key_scales_bytes(plan.BN, plan.num_v_stages, plan.num_raw_stages);
      }
    }
    two = q_bytes + plan.num_stages * copied + other_bytes <= kSm90SmSmemBytes / 2;
  }
  plan.num_consumers = two ? 1 : 2;
  plan.ctas_per_sm = two ? 2 : 1;
  plan.num_q_stages = 1;
  plan.ping_pong = !two;
}

/// What follows of the types: of e4m3 V is transposed, and where K and V are upcast both are
/// rewritten.
void choose_types(Sm90Traits traits, Sm90Plan& plan) {
  if ((traits & kE4m3) != 0) {
    plan.num_v_stages = 2;
    plan.num_raw_stages = 2;
    // The greatest power of two below 448, so that nothing of P that can be kept is lost, and the
    // most that a maximum may grow: 2^(8 + 0.75) = 431.
    plan.p_bias = 8;
    plan.rescale_threshold = 0.75;
    // The exponentials of depth 64 take the MUFU twice as long as the products take, so the FMA
    // pipe computes one pair in 16 (docs/sm90.md).
    plan.exp2_fma_pairs = Sm90Case{kTo64, kKeyScales}.fits(traits) ? 1 : 0;
  }
  if ((traits & kUpcast) != 0) {
    // At depth 128 in the place of a second Q: measured.
    plan.num_raw_stages = (traits & kTo128) != 0 ? 2 : 1;
    // P is fp16. What a maximum may grow by, 2^8, and this are half of what that can hold.
    plan.p_bias = 7;
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

}  // namespace

Sm90Plan sm90_choose_tile(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  Sm90Plan plan;
  plan.spec = &spec;
  plan.spec_traits = sm90_spec_traits(resolved);
  const auto has = [&](Sm90Trait trait) { return (plan.spec_traits & trait) != 0; };
  const bool kv_lens = spec.lengths_differ;
  plan.block_sparse = has(kBlockSparse);
  plan.block_mask = has(kBlockMask);
  plan.block_mask_bits = has(kBlockMaskBits);
  plan.split = splits(spec);
  const bool chooses = plan.split && spec.num_partitions == 0 && spec.partition_keys == 0;
  // NOTE: the model of equal units does not know what windows and chunks leave of them. The device
  // does, but not of a block-sparse mask. Decodes have a tile of each head.
  const bool deals = kv_lens ? has(kDecode) : !has(kDecode) && !has(kSliding) && !has(kChunked);
  plan.stream_k = chooses && !plan.block_sparse && deals;
  plan.overlaps = plan.split || plan.block_mask || has(kDecode);
  // In a ragged batch a tile may be a hundred times as long as another. What a block-sparse mask
  // shows of each is known on the device alone, but pairs even out what is like causal. NOTE: warps
  // that copy rows each find the CTA's work for themselves, and could not take it, but where one
  // finds what is cut and publishes it.
  plan.cuts = chooses && cuts_ragged(spec) && !plan.block_mask && !has(kDecode);
  plan.dynamic_schedule =
      kv_lens ? spec.ragged && (plan.cuts || !spec.copies_rows)
              : plan.block_sparse && !plan.split && (plan.block_mask || !has(kRising));
  // Decodes load each key once, and nobody comes back for what L2 fetches beside it: 7 % of 4 TB/s.
  // Prompts do not notice.
  if (kv_lens) plan.l2_bytes = 128;
  plan.pair_tiles = has(kRising) && (kv_lens || !plan.dynamic_schedule);
  choose_types(plan.spec_traits, plan);
  const Sm90Traits traits = sm90_traits(plan);
  plan.num_consumers = sm90_any(kHasThreeConsumers, traits) ? 3 : 2;
  plan.sums_by_product = sm90_sums_by_product(traits);
  const Tile tile = sm90_first(kTiles, sm90_traits(plan));
  plan.BN = tile.keys;
  plan.num_stages = tile.stages;
  plan.num_q_stages = tile.q_stages;
  plan.ping_pong = tile.ping_pong;
  if (has(kDecode)) choose_decode(plan);
  if (spec.copies_rows && !kLongCopiedTile.fits(traits)) plan.BN = std::min(plan.BN, 64);
  if (!has(kE4m3)) plan.num_v_stages = plan.num_stages;
  if (resolved.options().debug_waits.value_or(false)) choose_debug(plan);
  return plan;
}

bool sm90_packs_gqa(const SpecFacts& spec, bool block_mask) {
  // A TMA box is of the 64 rows of a consumer, whole positions of them. NOTE: two rows of a thread
  // that have a head each have a score modification's state each, and that spills at depth 192 and
  // 256.
  const bool has_state = spec.score_mod.kind == ScoreModSpec::Kind::kAlibi ||
                         spec.score_mod.kind == ScoreModSpec::Kind::kCustom ||
                         spec.contains(MaskSpec::Kind::kMaterialized);
  // Where rows wait for memory, as decodes do, a group that is loaded once for all its heads saves
  // the others' loads; rows that are nobody's cost the rest. A tile of a map's blocks has none.
  const bool fits = kSm90ConsumerRows % spec.group == 0 || spec.decodes(kSm90ConsumerRows) ||
                    (spec.lengths_differ && !block_mask && spec.group < kSm90ConsumerRows);
  return spec.group > 1 && fits && !(has_state && spec.qk_depth > 128);
}

bool sm90_sums_by_product(Sm90Traits traits) { return sm90_any(kSumsByProduct, traits); }

int sm90_q_register_steps(Sm90Traits traits) { return sm90_any(kKeepsQ, traits) ? 3 : 0; }

bool sm90_has_small_tiles(Sm90Traits traits) { return sm90_any(kHasSmallTiles, traits); }

Sm90Plan sm90_small_tile(const Sm90Plan& plan) {
  Sm90Plan small = plan;
  small.split = small.stream_k = false;
  small.num_consumers = 2;
  small.idle_warpgroups = plan.num_consumers - small.num_consumers;
  small.BN = 128;
  small.num_stages = 2;
  small.num_v_stages = 2;
  small.num_q_stages = 2;
  return small;
}

}  // namespace attnjit

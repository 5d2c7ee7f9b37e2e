// SPDX-License-Identifier: Apache-2.0
// Plans the sm_90a kernel: it chooses tiles, stages and registers.
#include "plan/sm90/sm90_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <variant>

#include "plan/constants.h"
#include "plan/forward_support.h"
#include "plan/map/map_plan.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_knobs.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "plan/sm90/sm90_shapes.h"
#include "plan/sm90/sm90_tiling.h"
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
    const auto left = [&](std::int64_t room, int consumers) {
      return room - 2048 - consumers * q_bytes - 2 * (kv.k + kv.v);
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
    other_bytes += plan.num_v_stages * kv.v + std::int64_t{kSm90RowBytes} * kSm90ConsumerRows;
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
  plan.BN = spec.qk_depth <= 128 || narrow ? 128 : 64;
  plan.num_stages = 2;
  plan.num_q_stages = 2;
  plan.ping_pong = true;
  // O's own memory in the place of a second Q: measured at depth 128.
  if (spec.qk_depth > 64 && spec.qk_depth <= 128) plan.num_q_stages = 1;
}

/// Whether P's rows are summed by the tensor cores: where that was found to be faster, and nothing
/// but O is divided by the sums. They are of P rounded, with which an LSE would be off by up to
/// 2^-4.
bool sums_by_product(const AttentionSpec& spec, const Sm90Plan& plan) {
  // Between 128 and 192 it was not tried.
  const bool faster = spec.qk_depth <= 128 || spec.qk_depth > 192;
  return is_e4m3(spec) && faster && !spec.return_lse && !plan.split;
}
/// Steps of Q K^T whose Q consumers of e4m3 hold in registers: at depth 256, where shared memory
/// bounds the products, and a step reads two thirds as much of Q as of 96 keys. Four steps, and
/// three with windows and an LSE, have no registers; parts and other masks were not tried. Of 16
/// bits up to nine steps of sixteen gained 1.4 % at most. All measured: docs/performance-sm90.md.
int held_q_steps(const AttentionSpec& spec, const Sm90Plan& plan) {
  const bool few =
      (spec.mask.kind == MaskSpec::Kind::kNull || spec.mask.kind == MaskSpec::Kind::kCausal) &&
      (spec.score_mod.kind == ScoreModSpec::Kind::kIdentity ||
       spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap);
  const bool holds = few && spec.qk_depth == 256 && plan.sums_by_product &&
                     plan.num_consumers == 2 && plan.BN <= 96;
  return holds ? 3 : 0;
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
    // The MUFU takes twice as long as the products, and sums have instructions, too: measured, see
    // docs/sm90.md.
    plan.exp2_fma_pairs = sums_by_product(spec, plan) ? 0 : 1;
  } else if (spec.qk_depth <= 128) {
    plan.BN = plan.num_consumers == 3 ? 96 : 128;
  } else {
    plan.BN = spec.qk_depth <= 192 && spec.ov_depth <= 128 ? 128 : 96;
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
    // NOTE: at depth 128 an `or` mask and ALiBi spill with 128.
    plan.BN = light || spec.qk_depth <= 64 ? 128 : 96;
  } else {
    plan.BN = spec.qk_depth <= 192 && spec.ov_depth <= 128 ? 96 : 64;
  }
}

/// Whether a row sees few keys, and the kernel is compiled for their number. NOTE: one that is
/// interpreted takes it at launch, whatever the spec says.
bool has_small_window(const AttentionSpec& spec) {
  const MaskSpec& mask = spec.mask;
  return mask.kind == MaskSpec::Kind::kSlidingWindow && mask.constant && !spec.interpreted &&
         mask.window >= 0 && mask.window_right >= 0 &&
         mask.window + mask.window_right <= spec::kSmallWindow;
}

/// The tile of a depth. P, S and O live in registers: BN/4 + BN/2 + ov_depth/2 of them a thread.
/// The choices are measured: docs/performance-sm90.md.
Sm90Plan choose(const ResolvedSpec& resolved) {
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
  const bool hides = spec.mask.kind != MaskSpec::Kind::kNull;
  const bool windowed = hides && !contains(spec, MaskSpec::Kind::kCausal);
  Sm90Plan plan;
  plan.num_consumers = (light || capped) && !mapped && spec.qk_depth <= 128 ? 3 : 2;
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
  // NOTE: of windows and chunks the launch does not know how little there is to share out.
  plan.runs = plan.split && spec.num_partitions == 0 && spec.partition_keys == 0 && !plan.kv_lens &&
              !plan.listed && !decodes(spec, kSm90ConsumerRows) &&
              !contains(spec, MaskSpec::Kind::kSlidingWindow) &&
              !contains(spec, MaskSpec::Kind::kChunked);
  plan.overlaps = plan.split || plan.mapped || decodes(spec, kSm90ConsumerRows);
  plan.row_copies = copies_rows(spec);
  const auto [rising, much_whole] = shown_of_long_sequence(resolved);
  // In a ragged batch a tile may be a hundred times as long as another. What a listed mask shows of
  // each is known on the device alone, but pairs even out what is like causal. NOTE: warps that
  // copy rows each find the CTA's work for themselves, and could not claim it.
  plan.claims_work = spec.ragged && !plan.row_copies;
  if (!plan.kv_lens) plan.claims_work = listed && !plan.split && (mapped || !rising);
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
  if (is_e4m3(spec)) choose_e4m3(spec, plan);
  if (plan.widens_kv) choose_widened(spec, light, plan);
  if (mapped) choose_mapped(spec, plan);
  if (decodes(spec, kSm90ConsumerRows)) choose_decode(spec, plan);
  if (plan.row_copies) plan.BN = std::min(plan.BN, 64);
  if (!is_e4m3(spec)) plan.num_v_stages = plan.num_stages;
  return plan;
}

std::vector<Sm90Knob> knobs_of(const Sm90Plan& plan) {
  const bool transposes = plan.num_row_stages > 0 && !plan.widens_kv;  // e4m3
  // A lane of the four warps that copy finds a row.
  std::vector<std::int64_t> keys{64, 80, 96, 112, 128};
  if (!plan.row_copies) keys.insert(keys.end(), {144, 160, 176, 192});
  // A step of P is 32 keys.
  if (transposes) keys = {64, 96, 128, 160, 192, 224};
  // A lane widens a key.
  if (plan.widens_kv) keys = {64, 96, 128, 160, 192};
  // A block of a map is whole tiles.
  if (plan.mapped) std::erase_if(keys, [](std::int64_t one) { return kMapBlock % one != 0; });
  std::vector<Sm90Knob> all{
      {"BN", &Sm90Plan::BN, std::move(keys)},
      {"num_stages", &Sm90Plan::num_stages, {2, 3, 4, 5, 6}},
      {"num_q_stages", &Sm90Plan::num_q_stages, {1, 2}},
  };
  if (plan.num_consumers > 1) {
    if (!plan.mapped && !plan.widens_kv) {
      all.push_back({"num_consumers", &Sm90Plan::num_consumers, {2, 3}});
    }
    all.push_back({"ping_pong", &Sm90Plan::ping_pong, {0, 1}});
  }
  if (plan.num_row_stages > 0) {
    all.push_back({"num_row_stages", &Sm90Plan::num_row_stages, {1, 2, 3, kSm90MaxRowStages}});
  }
  if (transposes) {
    all.push_back({"exp2_fma_pairs", &Sm90Plan::exp2_fma_pairs, {0, 1, 2, 3, 4}});
  }
  all.push_back({"pair_tiles", &Sm90Plan::pair_tiles, {0, 1}});
  if (plan.claims_work) all.push_back({"claims_work", &Sm90Plan::claims_work, {0, 1}});
  return all;
}

/// Makes partitions of `keys` keys whole KV tiles: the longest that are, up to the one chosen.
/// Errors: kInvalid for a tile of a tuning row that is none.
Status fit_partitions(int keys, const TuningValues* tuned, Sm90Plan& plan) {
  plan.rescale_by_row = true;
  if (keys % kPartitionStep != 0) return {};  // not served
  const bool chosen = tuned != nullptr && sm90_chooses(knobs_of(plan), *tuned, &Sm90Plan::BN);
  if (chosen && keys % plan.BN != 0) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("BN = {} in a tuning table: partition_keys {} is no multiple", plan.BN, keys),
        "BN");
  }
  int longest = kPartitionStep;
  for (const Sm90Knob& knob : knobs_of(plan)) {
    const auto* number = std::get_if<int Sm90Plan::*>(&knob.member);
    if (number == nullptr || *number != &Sm90Plan::BN) continue;
    for (const std::int64_t value : knob.values) {
      if (value <= plan.BN && keys % value == 0) longest = static_cast<int>(value);
    }
  }
  plan.BN = longest;
  plan.partition_tiles = keys / plan.BN;
  return {};
}

/// What follows from the tile.
void complete(const AttentionSpec& spec, Sm90Plan& plan) {
  // A TMA box is the 64 rows of a consumer, whole positions of them. NOTE: two rows of a thread
  // that have a head each have a score modification's state each, and that spills at depth 192 and
  // 256.
  const bool has_state = spec.score_mod.kind == ScoreModSpec::Kind::kAlibi ||
                         spec.score_mod.kind == ScoreModSpec::Kind::kCustom ||
                         contains(spec, MaskSpec::Kind::kMaterialized);
  // A decode waits for memory, and a group that is loaded once for all its heads saves the others'
  // loads. What rows that are nobody's cost it was not measured.
  const bool fits = kSm90ConsumerRows % spec.group == 0 ||
                    (decodes(spec, kSm90ConsumerRows) &&
                     spec.max_q_len << rows_shift(spec.group) <= kSm90ConsumerRows);
  plan.pack_gqa = spec.group > 1 && fits && !(has_state && spec.qk_depth > 128);
  plan.BM = 64 * plan.num_consumers;
  plan.sums_by_product = sums_by_product(spec, plan);
  plan.held_q_steps = held_q_steps(spec, plan);
  plan.box_keys = spec.page_size > 0 ? std::gcd(spec.page_size, plan.BN) : plan.BN;
  if (plan.row_copies) plan.box_keys = 0;
  sm90_share_registers(spec, plan);
  sm90_size_tiles(spec, plan);
}

/// Of a body of three consumers: full tiles of its rows waste what launches of few or short
/// sequences do not have. Where keys are hidden, tiles of fewer groups even out most of that, and
/// only a kernel that chooses its parts at launch pays for it with the time that it compiles in.
bool has_low_body(const AttentionSpec& spec, const Sm90Plan& plan) {
  // NOTE: beside the loops of runs, two bodies with ALiBi spill. A second body of a softcap was not
  // timed, and takes as long to compile as the first.
  const bool fits = plan.split ? plan.runs && spec.score_mod.kind == ScoreModSpec::Kind::kIdentity
                               : spec.score_mod.kind != ScoreModSpec::Kind::kSoftcap;
  const bool pays = spec.mask.kind == MaskSpec::Kind::kNull ||
                    (plan.runs && spec.mask.kind == MaskSpec::Kind::kCausal);
  return plan.num_consumers == 3 && spec.qk_depth > 96 && !plan.kv_lens && fits && pays;
}

std::vector<ConfigConstant> constants_of(const ResolvedSpec& resolved, const Sm90Plan& sm90,
                                         int body) {
  const AttentionSpec& spec = *resolved;
  Constants constants;
  constants.add_bool("kBf16", spec.qkv_dtype == Dtype::kBf16);
  constants.add_bool("kE4m3", is_e4m3(spec));
  constants.add_bool("kWidensKv", sm90.widens_kv);
  constants.add("kKvRowBytes", sm90.kv_row_bytes);
  constants.add("kScales", static_cast<int>(spec.scales));
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  constants.add_bool("kOutputBf16", output == Dtype::kBf16);
  constants.add("kOutputBytes", size_of(output));
  constants.add("kQkDepth", spec.qk_depth);
  constants.add("kOvDepth", spec.ov_depth);
  constants.add("kGroup", spec.group);
  constants.add_bool("kSink", spec.sink);
  constants.add_bool("kReturnLse", spec.return_lse);
  constants.add_bool("kLseIncludesSink", spec.lse_includes_sink);
  constants.add("kConsumers", sm90.num_consumers);
  constants.add("kThreads", sm90.threads());
  constants.add("kCtasPerSm", sm90.ctas_per_sm);
  constants.add("kCluster", 1);
  constants.add("kTileM", sm90.BM);
  constants.add("kTileN", sm90.BN);
  constants.add("kPageSize", spec.page_size);
  constants.add("kBoxKeys", sm90.box_keys);
  constants.add_bool("kRowCopies", sm90.row_copies);
  constants.add_bool("kRagged", spec.ragged);
  constants.add_bool("kRaggedKv", spec.ragged_kv);
  constants.add_bool("kKvLensExcludeNew", spec.kv_lens_exclude_new);
  constants.add_bool("kOverlaps", sm90.overlaps);
  constants.add_bool("kListed", sm90.listed);
  constants.add_bool("kMapped", sm90.mapped);
  constants.add_bool("kMapBits", sm90.map_bits);
  constants.add_bool("kSplit", sm90.split);
  // Of those alone: templates/common/run_marks.cuh.
  if (sm90.runs) constants.add_bool("kRuns", true);
  if (sm90.sums_by_product) {
    constants.add("kOnesOffset", sm90_begin_of(Sm90Region::kOnes, sm90));
  }
  constants.add("kPartitionTiles", sm90.partition_tiles);
  constants.add_bool("kMergeOnePart", merges_one_part(spec));
  constants.add_bool("kRescaleByRow", sm90.rescale_by_row);
  constants.add("kStages", sm90.num_stages);
  constants.add("kVStages", sm90.num_v_stages);
  constants.add("kRowStages", sm90.num_row_stages);
  constants.add("kQStages", sm90.num_q_stages);
  if (sm90.num_row_stages > 0) {
    constants.add("kFirstVRewriter", kSm90FirstVRewriter);
    constants.add("kVRewriters", kSm90VRewriters);
  }
  if (sm90.widens_kv) constants.add("kKRewriters", kSm90KRewriters);
  constants.add_bool("kPingPong", sm90.ping_pong);
  constants.add_bool("kPairTiles", sm90.pair_tiles);
  constants.add("kGqaShift", sm90_gqa_shift(sm90, spec));
  constants.add_bool("kDebugWaits", resolved.options().debug_waits.value_or(false));
  constants.add("kHeldQSteps", sm90.held_q_steps);
  constants.add_float("kRescaleThreshold", sm90.rescale_threshold);
  constants.add_float("kPBias", sm90.p_bias);
  constants.add("kExp2FmaPairs", sm90.exp2_fma_pairs);
  constants.add("kProducerRegisters", sm90.producer_registers);
  constants.add("kConsumerRegisters", sm90.consumer_registers);
  constants.add("kBody", body);
  constants.add("kQOffset", sm90_begin_of(Sm90Region::kQ, sm90));
  constants.add("kKOffset", sm90_begin_of(Sm90Region::kK, sm90));
  constants.add("kVOffset", sm90_begin_of(Sm90Region::kV, sm90));
  constants.add("kRowsOffset", sm90_begin_of(Sm90Region::kVRows, sm90));
  constants.add("kRowWordsOffset", sm90_begin_of(Sm90Region::kRowWords, sm90));
  constants.add("kWorkBytes", sm90_work_bytes(sm90));
  constants.add("kWorkOffset", sm90_begin_of(Sm90Region::kWork, sm90));
  constants.add("kNotesOffset", sm90_begin_of(Sm90Region::kNotes, sm90));
  constants.add("kNoteBytes", sm90_note_bytes(sm90));
  constants.add("kBarrierOffset", sm90_begin_of(Sm90Region::kBarriers, sm90));
  int first_barrier = 0;
  for (const Sm90BarrierGroup& group : sm90_barrier_groups(sm90)) {
    constants.add(group.constant, first_barrier);
    first_barrier += group.count;
  }
  constants.add_barriers(sm90.barriers);
  constants.add("kOBlocks", sm90.o_blocks);
  constants.add("kOOffset", sm90_begin_of(Sm90Region::kO, sm90));
  constants.add("kSmemBytes", sm90.smem_bytes);
  constants.add_users(spec);
  return std::move(constants).take();
}

/// The second body of a kernel with as many threads, for launches that do not split the keys.
Sm90Plan low_body(const AttentionSpec& spec, const Sm90Plan& plan) {
  Sm90Plan low = plan;
  low.split = low.runs = false;
  low.num_consumers = 2;
  low.idle_warpgroups = plan.num_consumers - low.num_consumers;
  low.BN = 128;
  low.num_stages = 2;
  low.num_v_stages = 2;
  low.num_q_stages = 2;
  low.smem.clear();
  low.barriers.clear();
  low.smem_bytes = 0;
  complete(spec, low);
  sm90_lay_out(low);
  return low;
}

std::vector<LaunchNumber> numbers_of(const AttentionSpec& spec, const Sm90Plan& sm90) {
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen};
  sm90_add_work_numbers(spec, sm90.split, sm90.kv_lens, numbers);
  if (sm90.low != nullptr) numbers.push_back(kLowBody);
  if (sm90.row_copies) {
    numbers.insert(numbers.end(), kRowCopyNumbers.begin(), kRowCopyNumbers.end());
  }
  return numbers;
}

std::vector<KernelParameter> parameters_of(const KernelPlan& plan, const Sm90Plan& sm90) {
  const std::vector<LaunchNumber> numbers = numbers_of(plan.spec, sm90);
  std::vector<KernelParameter> parameters = sm90.row_copies
                                                ? forward_parameters(plan, kRowMaps, numbers)
                                                : forward_parameters(plan, kForwardMaps, numbers);
  if (sm90.row_copies) add_key_parameters(plan, parameters);
  if (sm90.claims_work) {
    parameters.push_back(workspace_parameter(plan, WorkspaceId::kClaims, "attnjit::ClaimWords"));
  }
  add_partial_parameters(plan, parameters);
  if (sm90.mapped) add_map_parameters(plan, parameters);
  return parameters;
}

}  // namespace

std::vector<TuningKnob> sm90_knobs(const Sm90Plan& plan) {
  return sm90_chosen(knobs_of(plan), plan);
}

int sm90_gqa_shift(const Sm90Plan& plan, const AttentionSpec& spec) {
  return plan.pack_gqa ? rows_shift(spec.group) : 0;
}

int sm90_packed_heads(const Sm90Plan& plan, const AttentionSpec& spec) {
  return plan.pack_gqa ? spec.group : 1;
}

namespace {

/// Why the template does not serve a spec whose K and V are e4m3; empty: it does, or they are not.
std::string why_no_e4m3(const AttentionSpec& spec) {
  if (!sm90_rewrites_kv(spec)) return {};
  if (spec.qk_depth % 16 != 0 || spec.ov_depth % 16 != 0) {
    return fmt::format(
        "TMA needs rows of whole 16 bytes: qk_depth {} and ov_depth {} of e4m3 must be multiples "
        "of 16",
        spec.qk_depth, spec.ov_depth);
  }
  if (spec.scales == Scales::kToken) {
    return "the sm_90a template has no scales of rows (scales) of e4m3 yet";
  }
  if (copies_rows(spec)) {
    return fmt::format(
        "the sm_90a template takes pages of whole 8 rows of e4m3, not {} (page_size): the warps "
        "that would copy rows {}",
        spec.page_size, widens_kv(spec) ? "widen K and V" : "transpose V");
  }
  return {};
}

}  // namespace

std::string sm90_unsupported_reason(const ResolvedSpec& resolved, const Sm90Plan& plan) {
  const AttentionSpec& spec = *resolved;
  const bool e4m3_output = has_output_scale(spec);
  if (std::string reason = unsupported_output(spec); !reason.empty() && !e4m3_output) return reason;
  if (std::string reason = unsupported_accumulation(spec); !reason.empty()) return reason;
  if (e4m3_output && spec.ov_depth % 16 != 0) {
    return fmt::format("TMA needs rows of whole 16 bytes: ov_depth {} of e4m3 is no multiple of 16",
                       spec.ov_depth);
  }
  if (std::string reason = unsupported_everywhere(spec); !reason.empty()) return reason;
  if (std::string reason = why_no_e4m3(spec); !reason.empty()) return reason;
  if (std::string reason = unsupported_partitions(spec, kPartitionStep); !reason.empty()) {
    return reason;
  }
  if (spec.ov_depth > spec.qk_depth) {
    return fmt::format("the sm_90a template takes ov_depth up to qk_depth ({}), not {}",
                       spec.qk_depth, spec.ov_depth);
  }
  if (spec.qk_depth % 8 != 0 || spec.ov_depth % 8 != 0) {
    return fmt::format(
        "TMA needs rows of whole 16 bytes: qk_depth {} and ov_depth {} must be multiples of 8",
        spec.qk_depth, spec.ov_depth);
  }
  // What was asked for and cannot be had is no deviation: those are the planner's own choices.
  const PlanOptions& options = resolved.options();
  if (options.pair_cta.value_or(false)) {
    return "sm_90a has no MMA of two CTAs (pair_cta)";
  }
  if (options.swizzle_bytes.value_or(128) != 128) {
    return fmt::format(
        "the sm_90a template pads rows to whole 128-byte blocks; swizzle_bytes is {}",
        *options.swizzle_bytes);
  }
  if (options.num_qo && *options.num_qo != plan.num_consumers) {
    return fmt::format(
        "query tiles per CTA are consumer warpgroups of 64 rows on sm_90a: {} of them for this "
        "spec; num_qo is {}",
        plan.num_consumers, *options.num_qo);
  }
  return why_no_parameters(spec);
}

Result<Sm90Plan> make_sm90_plan(const ResolvedSpec& spec, const TuningValues* tuned) {
  const AttentionSpec& resolved = *spec;
  Sm90Plan plan = choose(spec);
  if (spec.options().debug_waits.value_or(false)) {
    // NOTE: bounded waits take registers, and ptxas serialises the wgmmas of a kernel that lacks
    // them, which the compiler refuses.
    plan.BN = 64;
    plan.num_consumers = 2;
    plan.ctas_per_sm = 1;
    plan.num_stages = 2;
    plan.num_v_stages = 2;
  }
  const std::vector<TuningKnob> untuned = sm90_knobs(plan);
  if (tuned != nullptr) {
    Status status = sm90_apply(knobs_of(plan), "an sm_90a plan", *tuned, plan);
    if (!status) return status.error();
    if (!is_e4m3(resolved)) plan.num_v_stages = plan.num_stages;
  }
  // NOTE: a row that chooses what is chosen anyway makes the same kernel.
  const bool as_untuned =
      std::ranges::equal(untuned, sm90_knobs(plan), {}, &TuningKnob::chosen, &TuningKnob::chosen);
  if (resolved.partition_keys > 0) {
    if (Status fitted = fit_partitions(resolved.partition_keys, tuned, plan); !fitted) {
      return fitted.error();
    }
  }
  complete(resolved, plan);
  sm90_lay_out(plan);
  if (as_untuned && has_low_body(resolved, plan)) {
    plan.low = std::make_shared<const Sm90Plan>(low_body(resolved, plan));
  }
  return plan;
}

Status fill_from_sm90(const Sm90Plan& sm90, KernelPlan& plan) {
  if (sm90.smem_bytes > sm90_smem_room(sm90)) {
    // Only a tuning table can ask for this; the choices above are tested to fit.
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("BN {} with {} stages needs {} bytes of shared memory; a CTA has {}", sm90.BN,
                    sm90.num_stages, sm90.smem_bytes, sm90_smem_room(sm90)),
        "BN");
  }
  PlannedKernel& kernel = plan.main();
  kernel.entry = "attnjit_forward";
  kernel.kernel_header = "sm90/forward.cuh";
  kernel.threads = sm90.threads();
  kernel.ctas_per_sm = sm90.ctas_per_sm;
  kernel.overlaps = sm90.overlaps;
  kernel.launch_registers = sm90_launch_registers(sm90);
  kernel.smem_bytes = sm90.smem_bytes;
  for (const Sm90SmemRange& range : sm90.smem) {
    kernel.smem_map.push_back({sm90_range_name(range, sm90), range.begin, range.size});
  }
  kernel.barriers = sm90.barriers;
  kernel.roles = sm90_roles(sm90);
  kernel.constants = constants_of(plan.spec, sm90, 0);
  if (sm90.low != nullptr) {
    kernel.smem_bytes = std::max(kernel.smem_bytes, sm90.low->smem_bytes);
    kernel.low_constants = constants_of(plan.spec, *sm90.low, 1);
  }
  kernel.parameters = parameters_of(plan, sm90);
  if (sm90.mapped) plan.map = planned_map(plan.spec, sm90_packed_heads(sm90, plan.spec));
  add_split_deviation(plan);
  return {};
}

}  // namespace attnjit

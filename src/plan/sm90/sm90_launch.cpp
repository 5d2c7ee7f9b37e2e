// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a forward kernel.
#include <fmt/format.h>

#include <algorithm>

#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_shapes.h"

namespace attnjit {
namespace {

TensorMapDescription describe(const KernelPlan& plan, const LaunchTensors& tensors,
                              TensorMapId map) {
  const bool keys = map == TensorMapId::kK || map == TensorMapId::kV;
  // NOTE: a tensor map cannot be empty. Where there are no keys nothing is loaded through K's and
  // V's; they view Q, which is there.
  const TensorMapId viewed = tensor_of(tensors, map).empty() ? TensorMapId::kQ : map;
  const TensorView& tensor = tensor_of(tensors, viewed);
  TensorMapDescription description =
      keys ? sm90_key_map(tensor, plan.sm90->box_keys)
           : sm90_row_map(tensor, sm90_gqa_shift(*plan.sm90, plan.spec),
                          sm90_packed_heads(*plan.sm90, plan.spec));
  if (keys) description.l2_bytes = plan.sm90->l2_bytes;
  description.id = buffer_of(plan, viewed);
  return description;
}

// The query tiles of a head (or those of packed heads), all sequences together.
std::int64_t tiles_of_head(const KernelPlan& plan, const LaunchShapes& shapes) {
  return sm90_query_tiles(plan.spec, shapes, plan.sm90->BM, sm90_gqa_shift(*plan.sm90, plan.spec));
}

// The CTAs that run at once.
int ctas_of(const Sm90Plan& plan, const DeviceShape& device) {
  return plan.ctas_per_sm * std::max(device.sm_count, 1);
}

// How long a launch takes whose keys are split, in microseconds, to compare numbers of parts with.
// Fitted on an H200 to decodes of depth 128: docs/performance-sm90.md.
class SplitTimes {
 public:
  SplitTimes(const Sm90Plan& plan, const AttentionSpec& spec, const DeviceShape& device)
      : sms_(std::max(device.sm_count, 1)),
        memory_(kSharedBytes * static_cast<double>(sms_)),
        partial_row_bytes_(4.0 * spec.ov_depth),
        kv_bytes_(static_cast<double>(plan.k_bytes + plan.v_bytes)) {
    const double alone = kv_bytes_ / (plan.row_copies ? kAloneRowBytes : kAloneBytes);
    const double flop = 2.0 * plan.BM * plan.BN * (spec.qk_depth + spec.ov_depth);
    computed_alone_ = flop / kFlop;
    loaded_alone_ = alone;
    ctas_per_sm_ = plan.ctas_per_sm;
  }

  /// `tiles` query tiles of `kv_tiles` KV tiles each, `rows` rows of O in all.
  double of(std::int64_t parts, std::int64_t tiles, std::int64_t kv_tiles, double rows) const {
    const std::int64_t rounds = (tiles * parts + sms_ - 1) / sms_;
    const std::int64_t longest = (kv_tiles + parts - 1) / parts;
    // Of an SM's CTAs one computes while another waits for its loads.
    const double waiting =
        rounds > 1 && ctas_per_sm_ > 1 ? loaded_alone_ / kTwoCtas : loaded_alone_;
    const double sm = static_cast<double>(rounds * longest) * std::max(waiting, computed_alone_);
    // A decode's keys are read once; query tiles of one head share theirs in L2, and compute
    // longer.
    const double memory =
        static_cast<double>(tiles) * static_cast<double>(kv_tiles) * kv_bytes_ / memory_;
    const double main = std::max(sm, memory) + std::min(sm, memory) / 3;
    if (parts == 1) return main;
    const double written = static_cast<double>(parts) * rows * partial_row_bytes_;
    return main + kMerge + kMergePart * static_cast<double>(parts) + 2 * written / memory_;
  }

 private:
  // Bytes of K and V that an SM loads per microsecond: while the others idle, and while all load.
  static constexpr double kAloneBytes = 57e3;
  static constexpr double kAloneRowBytes = 22e3;  // where rows are copied one by one
  static constexpr double kSharedBytes = 34e3;
  static constexpr double kTwoCtas = 1.6;  // how much more two CTAs load than one
  static constexpr double kFlop = 5e6;     // of an SM per microsecond
  static constexpr double kMerge = 2.5;
  static constexpr double kMergePart = 0.125;

  std::int64_t sms_;
  double memory_;  // bytes per microsecond
  double partial_row_bytes_;
  double kv_bytes_;  // of a KV tile
  double computed_alone_ = 0;
  double loaded_alone_ = 0;
  int ctas_per_sm_ = 1;
};

}  // namespace

Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas) {
  // Whole rounds of pairs that are left to the tail, beside the last that is none: as few as even
  // out the rest to 2 %, because the tail's tiles are of many heads, whose K and V share L2.
  constexpr std::int32_t kTailRounds = 1;
  Sm90Shares shares;
  shares.ctas = std::min(total_tiles, std::max(ctas, 1));
  if (!pair_tiles) return shares;
  const std::int32_t pairs = total_tiles / m_tiles * (m_tiles - m_tiles / 2);
  shares.paired_units = std::max(pairs / shares.ctas - kTailRounds, 0) * shares.ctas;
  return shares;
}

std::int32_t sm90_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                             const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  if (const auto fixed = sm90_fixed_partitions(spec, shapes)) return *fixed;
  constexpr std::int64_t kMaxPartitions = 64;
  constexpr double kWorthwhile = 0.995;
  const Sm90Plan& sm90 = *plan.sm90;
  const std::int64_t kv_tiles = (std::int64_t{shapes.kv_len} + sm90.BN - 1) / sm90.BN;
  const std::int64_t heads = spec.num_q_heads / sm90_packed_heads(sm90, spec);
  // NOTE: where there are many tiles, how many does not matter, and the product may overflow.
  const std::int64_t tiles = std::min<std::int64_t>(tiles_of_head(plan, shapes), 1 << 20) * heads;
  const std::int64_t positions =
      spec.ragged ? shapes.total_q : std::int64_t{shapes.batch} * shapes.q_len;
  const double rows = static_cast<double>(positions) * spec.num_q_heads;
  const SplitTimes times(sm90, spec, device);
  std::int64_t best = 1;
  double least = times.of(1, tiles, kv_tiles, rows);
  for (std::int64_t parts = 2; parts <= std::min(kv_tiles, kMaxPartitions); ++parts) {
    const double time = times.of(parts, tiles, kv_tiles, rows);
    // More parts are more partial results: they are to gain something.
    if (time > least * kWorthwhile) continue;
    best = parts;
    least = time;
  }
  return static_cast<std::int32_t>(best);
}

Result<LaunchRecipe> plan_sm90_launch(const KernelPlan& plan, const LaunchRequest& request) {
  const AttentionSpec& spec = plan.spec;
  const Sm90Plan& sm90 = *plan.sm90;
  const LaunchShapes& shapes = request.shapes;
  const int gqa_shift = sm90_gqa_shift(sm90, spec);
  const std::int64_t rows = std::int64_t{shapes.q_len} << gqa_shift;
  if (rows > kMaxLength) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("q_len is {}; with the {} heads of a group in one tile, 0 to {} "
                                  "is allowed",
                                  shapes.q_len, spec.group, kMaxLength >> gqa_shift),
                      "q_len");
  }
  const std::int64_t m_tiles = (rows + sm90.BM - 1) / sm90.BM;
  const std::int64_t heads = spec.num_q_heads / sm90_packed_heads(sm90, spec);
  // NOTE: divided, not multiplied: the product of four such numbers overflows 64 bits.
  if (m_tiles * heads > kMaxTiles / shapes.batch / request.partitions) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("batch {} x {} heads x {} query tiles x {} partitions exceed {}",
                                  shapes.batch, heads, m_tiles, request.partitions, kMaxTiles),
                      "batch");
  }
  const auto total_tiles =
      static_cast<std::int32_t>(tiles_of_head(plan, shapes) * heads * request.partitions);
  const Sm90Shares shares =
      sm90_shares(sm90.pair_tiles && request.partitions == 1, static_cast<std::int32_t>(m_tiles),
                  total_tiles, ctas_of(sm90, request.device));
  ArgumentValues values{plan, request.scalars, request.params,
                        LaunchNumbers(spec, shapes, request.scale),
                        [&](TensorMapId map) { return describe(plan, request.tensors, map); }};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kPairedUnits, shares.paired_units);
  values.numbers.set(LaunchNumber::kPartitions, request.partitions);
  const TensorView& o = request.tensors.o;
  values.numbers.set(LaunchNumber::kRows, o.batch * o.rows * o.heads);
  values.numbers.set(LaunchNumber::kORowBytes, o.strides.row * o.element_bytes());
  values.numbers.set(LaunchNumber::kOHeadBytes, o.strides.head * o.element_bytes());
  const TensorView& k = request.tensors.k;
  values.numbers.set(LaunchNumber::kKPageBytes, k.strides.batch * k.element_bytes());
  values.numbers.set(LaunchNumber::kKRowBytes, k.strides.row * k.element_bytes());
  values.numbers.set(LaunchNumber::kKHeadBytes, k.strides.head * k.element_bytes());
  const TensorView& v = request.tensors.v;
  values.numbers.set(LaunchNumber::kVPageBytes, v.strides.batch * v.element_bytes());
  values.numbers.set(LaunchNumber::kVRowBytes, v.strides.row * v.element_bytes());
  values.numbers.set(LaunchNumber::kVHeadBytes, v.strides.head * v.element_bytes());
  Result<LaunchRecipe> recipe =
      make_recipe(plan.main(), static_cast<std::uint32_t>(shares.ctas), values);
  const bool written_whole = request.partitions == 1 && !merges_one_part(spec);
  if (recipe && sm90.split && written_whole) sm90_forget_partials(plan, *recipe);
  return recipe;
}

}  // namespace attnjit

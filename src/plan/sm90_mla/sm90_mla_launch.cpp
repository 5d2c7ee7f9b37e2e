// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a kernel of absorbed MLA, and into how many parts they split the keys.
#include <fmt/format.h>

#include <algorithm>

#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/partitions.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_shapes.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit {
namespace {

/// Work tiles that are computed at once: by a CTA per SM, or by a cluster of them.
int workers_of(const Sm90Plan& plan, const DeviceShape& device) {
  return std::max(device.sm_count / plan.cluster, 1);
}

TensorMapDescription describe(const KernelPlan& plan, const LaunchTensors& tensors,
                              TensorMapId map) {
  const Sm90Plan& mla = *plan.sm90;
  const int gqa_shift = sm90_gqa_shift(mla, plan.spec);
  const bool keys = map == TensorMapId::kK;
  // NOTE: a tensor map cannot be empty. Where there are no keys nothing is loaded through K's; it
  // views Q, which is there.
  const TensorMapId viewed = tensor_of(tensors, map).empty() ? TensorMapId::kQ : map;
  const TensorView& tensor = tensor_of(tensors, viewed);
  // NOTE: the one group ends where the heads do, so that its map needs no dimension of groups.
  TensorMapDescription description =
      keys ? sm90_key_map(tensor, mla.box_keys) : sm90_row_map(tensor, gqa_shift, 1 << gqa_shift);
  if (keys) description.l2_bytes = mla.l2_bytes;
  description.id = buffer_of(plan, viewed);
  return description;
}

/// How long a launch takes whose keys are split, in microseconds, to compare numbers of parts with.
/// Estimates for an H200, not fitted to measurements: docs/mla.md.
class SplitTimes {
 public:
  SplitTimes(const Sm90Plan& plan, const AttentionSpec& spec, const DeviceShape& device)
      : workers_(workers_of(plan, device)),
        memory_(kSharedBytes * std::max(device.sm_count, 1)),
        partial_row_bytes_(4.0 * spec.ov_depth),
        tile_bytes_(static_cast<double>(plan.k_bytes)),
        tile_time_(std::max(
            2.0 * plan.BM / plan.cluster * plan.BN * (spec.qk_depth + spec.ov_depth) / kFlop,
            tile_bytes_ / kAloneBytes)) {}

  /// `tiles` query tiles of `kv_tiles` KV tiles each, of `sequences` sequences; `rows` rows of O.
  double of(std::int64_t parts, std::int64_t tiles, std::int64_t sequences, std::int64_t kv_tiles,
            double rows) const {
    const std::int64_t rounds = (tiles * parts + workers_ - 1) / workers_;
    const std::int64_t longest = (kv_tiles + parts - 1) / parts;
    const double computed =
        static_cast<double>(rounds) * (static_cast<double>(longest) * tile_time_ + kWorkTile);
    // A sequence's query tiles share its keys in L2.
    const double loaded =
        static_cast<double>(sequences) * static_cast<double>(kv_tiles) * tile_bytes_ / memory_;
    const double main = std::max(computed, loaded);
    if (parts == 1) return main;
    const double written = static_cast<double>(parts) * rows * partial_row_bytes_;
    return main + kMerge + kMergePart * static_cast<double>(parts) + 2 * written / memory_;
  }

 private:
  // Bytes of K that an SM loads per microsecond: while the others idle, and while all load.
  static constexpr double kAloneBytes = 57e3;
  static constexpr double kSharedBytes = 34e3;
  static constexpr double kFlop = 5e6;      // of an SM per microsecond
  static constexpr double kWorkTile = 2.5;  // the first loads of a work tile, and its end
  static constexpr double kMerge = 2.5;
  static constexpr double kMergePart = 0.05;

  std::int64_t workers_;
  double memory_;  // bytes per microsecond
  double partial_row_bytes_;
  double tile_bytes_;
  double tile_time_;
};

}  // namespace

std::int32_t sm90_mla_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  if (const auto fixed = fixed_partitions(spec, shapes)) return *fixed;
  constexpr std::int64_t kMaxPartitions = 64;
  const Sm90Plan& mla = *plan.sm90;
  const int gqa_shift = sm90_gqa_shift(mla, spec);
  const SplitWork work =
      split_work(spec, shapes, sm90_query_tiles(spec, shapes, mla.BM, gqa_shift), 1, mla.BN);
  const SplitTimes times(mla, spec, device);
  std::int64_t best = 1;
  double least = times.of(1, work.tiles, shapes.batch, work.kv_tiles, work.rows);
  for (std::int64_t parts = 2; parts <= std::min(work.kv_tiles, kMaxPartitions); ++parts) {
    const double time = times.of(parts, work.tiles, shapes.batch, work.kv_tiles, work.rows);
    if (time >= least) continue;
    best = parts;
    least = time;
  }
  return static_cast<std::int32_t>(best);
}

Result<LaunchRecipe> plan_sm90_mla_launch(const KernelPlan& plan, const LaunchRequest& request) {
  const AttentionSpec& spec = plan.spec;
  const Sm90Plan& mla = *plan.sm90;
  const int gqa_shift = sm90_gqa_shift(mla, spec);
  const LaunchShapes& shapes = request.shapes;
  const std::int64_t rows = std::int64_t{shapes.q_len} << gqa_shift;
  if (rows > kMaxLength) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("q_len is {}; with {} heads in one tile, 0 to {} is allowed",
                                  shapes.q_len, spec.num_q_heads, kMaxLength >> gqa_shift),
                      "q_len");
  }
  const std::int64_t m_tiles = (rows + mla.BM - 1) / mla.BM;
  // NOTE: divided, not multiplied: the product of such numbers overflows 64 bits.
  if (m_tiles > kMaxTiles / shapes.batch / request.partitions) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("batch {} x {} query tiles x {} partitions exceed {}",
                                  shapes.batch, m_tiles, request.partitions, kMaxTiles),
                      "batch");
  }
  const auto total_tiles = static_cast<std::int32_t>(
      sm90_query_tiles(spec, shapes, mla.BM, gqa_shift) * request.partitions);
  ArgumentValues values{plan, request.scalars, request.params,
                        LaunchNumbers(spec, shapes, request.scale),
                        [&](TensorMapId map) { return describe(plan, request.tensors, map); }};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kPairedUnits, std::int32_t{0});
  values.numbers.set(LaunchNumber::kTileGroups, std::int32_t{mla.BM / 64});
  values.numbers.set(LaunchNumber::kFirstTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kSecondTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTileGrowth, std::int32_t{1});
  values.numbers.set(LaunchNumber::kPartitions, request.partitions);
  const TensorView& o = request.tensors.o;
  values.numbers.set(LaunchNumber::kRows, o.batch * o.rows * o.heads);
  values.numbers.set_strides(request.tensors);
  const auto ctas = static_cast<std::uint32_t>(
      std::min(total_tiles, workers_of(mla, request.device)) * mla.cluster);
  Result<LaunchRecipe> recipe = make_recipe(plan.main(), ctas, values);
  if (recipe) forget_partials(plan, request.partitions, *recipe);
  return recipe;
}

}  // namespace attnjit

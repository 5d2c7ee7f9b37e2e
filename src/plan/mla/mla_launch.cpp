// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels of absorbed MLA and head_dim above 256, and into how many parts they
// split the keys.
#include "plan/mla/mla_launch.h"

#include <algorithm>
#include <functional>

#include "plan/kernel/partials.h"
#include "plan/launch/arguments.h"
#include "plan/launch/partitions.h"
#include "plan/launch/row_tiles.h"

namespace attnjit {
namespace {

/// Work tiles that are computed at once: by a CTA per SM, or by a cluster of them.
int workers_of(const MlaTiles& tiles, const DeviceShape& device) {
  return std::max(device.sm_count / tiles.cluster, 1);
}

/// Query tiles of a sequence, where all have q_len rows whose heads share tiles.
std::int64_t m_tiles_of(const MlaTiles& tiles, const LaunchShapes& shapes) {
  const std::int64_t rows = std::int64_t{shapes.q_len} << mla_head_shift(*tiles.spec);
  return (rows + tiles.rows() - 1) / tiles.rows();
}

/// Heads, or groups of heads that share tiles.
std::int64_t packs_of(const SpecFacts& spec) { return spec.num_q_heads / mla_packed_heads(spec); }

/// How long a launch takes whose keys are split, of `sequences` sequences, in microseconds, to
/// compare numbers of parts with. Estimates, not fitted to measurements: docs/mla.md.
class SplitTimes {
 public:
  SplitTimes(const MlaTiles& tiles, const MlaRates& rates, const DeviceShape& device,
             const SplitWork& work, std::int64_t sequences)
      : rates_(rates),
        work_(work),
        sequences_(sequences),
        workers_(workers_of(tiles, device)),
        memory_(rates.shared_bytes * std::max(device.sm_count, 1)),
        tile_bytes_(static_cast<double>(mla_loaded_bytes(*tiles.spec))),
        tile_time_(std::max(2.0 * MlaTiles::kRows * MlaTiles::kKeys *
                                (tiles.spec->qk_depth + tiles.spec->ov_depth) / rates.flop,
                            tile_bytes_ / rates.alone_bytes)) {}

  double of(std::int64_t parts) const {
    return computed(parts) + (parts == 1 ? 0.0 : merged(parts));
  }
  /// The same where two CTAs have half of each part, and neighbours other keys. `merges`: a merge
  /// follows, though one part has nothing for it.
  double cluster_reduced(std::int64_t parts, bool merges) const {
    const double main = computed(2 * parts, work_.tiles > sequences_ ? rates_.apart : 1.0);
    if (parts > 1) return main + rates_.reduce_part + merged(parts);
    return main + rates_.reduce_whole + (merges ? rates_.empty_merge : 0.0);
  }

 private:
  double computed(std::int64_t parts, double apart = 1.0) const {
    const std::int64_t rounds = (work_.tiles * parts + workers_ - 1) / workers_;
    const std::int64_t longest = (work_.kv_tiles + parts - 1) / parts;
    const double products = static_cast<double>(rounds) *
                            (static_cast<double>(longest) * apart * tile_time_ + rates_.work_tile);
    // A sequence's query tiles share its keys in L2.
    const double loaded = static_cast<double>(sequences_) * static_cast<double>(work_.kv_tiles) *
                          tile_bytes_ / memory_;
    return std::max(products, apart * loaded);
  }
  double merged(std::int64_t parts) const {
    const double written = static_cast<double>(parts) * work_.rows * work_.row_bytes;
    return rates_.merge + rates_.merge_part * static_cast<double>(parts) + 2 * written / memory_;
  }

  MlaRates rates_;
  SplitWork work_;
  std::int64_t sequences_;
  std::int64_t workers_;
  double memory_;  // bytes per microsecond
  double tile_bytes_;
  double tile_time_;
};

/// Those who have keys of their own.
std::int64_t sequences_of(const SpecFacts& spec, const LaunchShapes& shapes) {
  const std::int64_t positions =
      spec.ragged ? shapes.total_q : std::int64_t{shapes.batch} * shapes.q_len;
  return spec.topk > 0 ? positions : shapes.batch * (spec.num_q_heads / spec.group);
}

/// The uniform splits that take the least time, where the spec leaves it to the launch.
std::int32_t uniform_partitions(const SplitTimes& times, const SplitWork& work) {
  std::int64_t best = 1;
  double least = times.of(1);
  for (std::int64_t parts = 2, most = most_partitions(work); parts <= most; ++parts) {
    const double time = times.of(parts);
    if (time >= least) continue;
    best = parts;
    least = time;
  }
  return static_cast<std::int32_t>(best);
}

SplitWork work_of(const MlaTiles& tiles, const LaunchShapes& shapes) {
  const SpecFacts& spec = *tiles.spec;
  return split_work(spec, shapes,
                    count_query_tiles(spec, shapes, tiles.rows(), 1 << mla_head_shift(spec)),
                    packs_of(spec), MlaTiles::kKeys);
}

}  // namespace

PartitionChoice mla_partitions(const MlaTiles& tiles, const MlaRates& rates,
                               const LaunchShapes& shapes, const DeviceShape& device) {
  const SpecFacts& spec = *tiles.spec;
  if (const auto fixed = fixed_partitions(spec, shapes)) return {*fixed, *fixed};
  const SplitWork work = work_of(tiles, shapes);
  const SplitTimes times(tiles, rates, device, work, sequences_of(spec, shapes));
  const std::int32_t even = uniform_partitions(times, work);
  if (!tiles.stream_k) return {even, even};
  const auto team = static_cast<std::int32_t>(m_tiles_of(tiles, shapes) * packs_of(spec));
  const std::int32_t workers = workers_of(tiles, device);
  PartitionChoice best{even, even};
  double least = times.of(even);
  for (std::int32_t parts = 1; tiles.cluster_reduces && 2 * parts * work.tiles <= workers;
       ++parts) {
    if (2 * parts > work.kv_tiles) break;
    const PartitionChoice cluster_reduced{parts, parts, true};
    const bool asks = sequence_ranges(work, cluster_reduced, shapes.batch, team, workers).team > 0;
    const double time = times.cluster_reduced(parts, asks || parts > 1);
    if (time >= least) continue;
    best = cluster_reduced;
    least = time;
  }
  return sequence_ranges(work, best, shapes.batch, team, workers);
}

Status plan_mla_launch(const KernelPlan& plan, const MlaTiles& tiles, const LaunchRequest& request,
                       LaunchRecipe& recipe) {
  const SpecFacts& spec = plan.spec;
  const int head_shift = mla_head_shift(spec);
  const LaunchShapes& shapes = request.shapes;
  const std::int64_t packs = packs_of(spec);
  if (Status checked = check_query_tiles(spec, request, tiles.rows(), 1 << head_shift, packs);
      !checked) {
    return checked;
  }
  const std::int64_t m_tiles = m_tiles_of(tiles, shapes);
  const auto total_tiles =
      static_cast<std::int32_t>(count_query_tiles(spec, shapes, tiles.rows(), 1 << head_shift) *
                                packs * request.parts.partitions);
  const TileShares shares =
      deal_out(tiles.pair_tiles && request.parts.partitions == 1,
               static_cast<std::int32_t>(m_tiles), total_tiles, workers_of(tiles, request.device));
  const auto describe_map = [&](TensorMapId map, TensorMapDescription& description) {
    // NOTE: Q's map needs no dimension of groups: behind a group's heads are zeros or the next
    // group's, of rows that are nobody's.
    describe_rows(plan, request.tensors, map,
                  {tiles.box_keys, kBoxRowBytes, tiles.l2_bytes, 1 << head_shift}, description);
  };
  ArgumentValues values{plan, request.scalars.values, request.params,
                        LaunchNumbers(spec, shapes, request.scale), std::cref(describe_map)};
  const auto count = static_cast<std::int32_t>(m_tiles);
  const QueryTiling tiling{
      .m_tiles = count, .tile_groups = tiles.cluster, .first_tiles = count, .second_tiles = count};
  set_work_numbers(request, tiling, total_tiles, shares.paired_units, values.numbers);
  auto ctas = static_cast<std::uint32_t>(shares.ctas * tiles.cluster);
  if (request.parts.cluster_reduced) {
    // Of ranges as many as there are; else those of the parts.
    const std::int64_t pairs = m_tiles * packs * shapes.batch * request.parts.uniform_splits;
    ctas =
        static_cast<std::uint32_t>(request.parts.team > 0 ? request.parts.partitions : 2 * pairs);
  }
  Status filled = fill_recipe(KernelId::kAttention, ctas, values, recipe);
  // Two SMs that lie side by side ask L2 once for what both read at a time (docs/mla.md).
  const bool clustered = tiles.clusters_for_l2 && m_tiles * packs > 1 && ctas % 2 == 0;
  if (request.parts.cluster_reduced || clustered) recipe.cluster[0] = 2;
  if (filled) forget_partials(plan, request.parts.partitions, recipe);
  return filled;
}

}  // namespace attnjit

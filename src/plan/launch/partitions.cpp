// SPDX-License-Identifier: Apache-2.0
// Compares numbers of partitions by a small model of a launch's time.
#include "plan/launch/partitions.h"

#include <algorithm>

#include "plan/kernel/partials.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/tensors.h"
#include "spec/interpreted_code.h"
#include "spec/kinds.h"

namespace attnjit {
namespace {

/// The keys that a row may see before its own, and behind it.
struct RowReach {
  static constexpr std::int64_t kAny = std::int64_t{1} << 40;
  std::int64_t before = kAny, behind = kAny;
};

/// What a mask bounds of them. `next` is the index among a launch's numbers of the first of its
/// own; of the node's own ones `number` says what the launch has.
RowReach reach_of(const MaskSpec& mask, const std::vector<double>& given, std::size_t& next) {
  const auto number = [&](std::int64_t spec_number) -> std::int64_t {
    const double launch_number = mask.constant || next >= given.size() ? 0 : given[next];
    ++next;
    // NOTE: the launch's number may be any yet, not a number among them.
    const double value = launch_number != 0 ? launch_number : static_cast<double>(spec_number);
    const bool bounds = value > 0 && value < static_cast<double>(RowReach::kAny);
    return bounds ? static_cast<std::int64_t>(value) : RowReach::kAny;
  };
  RowReach reach;
  switch (mask.kind) {
    case MaskSpec::Kind::kCausal:
      reach.behind = 0;
      break;
    case MaskSpec::Kind::kSlidingWindow:
      reach.before = number(mask.window) - 1;
      reach.behind = spec::lacks_last(mask) ? 0 : number(mask.window_right);
      break;
    case MaskSpec::Kind::kChunked:
      reach.before = reach.behind = number(mask.chunk) - 1;
      break;
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr: {
      const bool all = mask.kind == MaskSpec::Kind::kAnd;
      if (!all) reach = {0, 0};
      for (const MaskSpec& operand : mask.of) {
        const RowReach one = reach_of(operand, given, next);
        const auto joined = [&](std::int64_t a, std::int64_t b) {
          return all ? std::min(a, b) : std::max(a, b);
        };
        reach = {joined(reach.before, one.before), joined(reach.behind, one.behind)};
      }
      break;
    }
    default:
      break;
  }
  return reach;
}

/// What writing and merging parts takes, with so many bytes per microsecond.
double merged_in(double written, std::int64_t parts, double memory) {
  constexpr double kMerge = 2.5;
  constexpr double kMergePart = 0.125;
  return kMerge + kMergePart * static_cast<double>(parts) + 2 * written / memory;
}

// Microseconds of a launch. Its form and the cost of a merge were fitted on an H200 to decodes of
// depth 128: docs/performance-sm90.md.
class SplitTimes {
 public:
  SplitTimes(const SplitWork& work, const SmRates& rates, int sm_count)
      : work_(work),
        sms_(std::max(sm_count, 1)),
        memory_(rates.shared_bytes * static_cast<double>(sms_)),
        computed_alone_(work.tile_flop / rates.flop),
        loaded_alone_(work.kv_tile_bytes / rates.alone_bytes),
        two_ctas_(rates.two_ctas) {}

  double of(std::int64_t parts) const {
    const std::int64_t rounds = (work_.tiles * parts + sms_ - 1) / sms_;
    const std::int64_t longest = (work_.kv_tiles + parts - 1) / parts;
    // Of an SM's CTAs one computes while another waits for its loads.
    const double waiting =
        rounds > 1 && work_.ctas_per_sm > 1 ? loaded_alone_ / two_ctas_ : loaded_alone_;
    const double sm = static_cast<double>(rounds * longest) * std::max(waiting, computed_alone_);
    return beside_memory(sm) + (parts == 1 ? 0.0 : merged(parts));
  }

  /// No such number of parts, nor a larger one, takes less.
  double least_from(std::int64_t parts) const {
    const double waiting =
        work_.ctas_per_sm > 1 ? loaded_alone_ / std::max(two_ctas_, 1.0) : loaded_alone_;
    const double sm = tiles() / static_cast<double>(sms_) * std::max(waiting, computed_alone_);
    return beside_memory(sm) + merged(parts);
  }

 private:
  /// Of all query tiles with all KV tiles.
  double tiles() const {
    return static_cast<double>(work_.tiles) * static_cast<double>(work_.kv_tiles);
  }
  /// What takes an SM so long, while memory is read. A decode's keys are read once; query tiles of
  /// one head share theirs in L2, and compute longer.
  double beside_memory(double sm) const {
    const double memory = tiles() * work_.kv_tile_bytes / memory_;
    return std::max(sm, memory) + std::min(sm, memory) / 3;
  }
  /// What writing and merging the parts takes.
  double merged(std::int64_t parts) const {
    const double written = static_cast<double>(parts) * work_.rows * work_.row_bytes;
    return merged_in(written, parts, memory_);
  }

  SplitWork work_;
  std::int64_t sms_;
  double memory_;  // bytes per microsecond
  double computed_alone_, loaded_alone_;
  double two_ctas_;
};

}  // namespace

double merge_time(double bytes, std::int64_t parts, const SmRates& rates,
                  const DeviceShape& device) {
  return merged_in(bytes, parts, rates.shared_bytes * std::max(device.sm_count, 1));
}

SplitWork split_work(const SpecFacts& spec, const LaunchShapes& shapes, std::int64_t tiles_of_head,
                     std::int64_t heads, std::int64_t tile_keys) {
  const std::int64_t positions =
      spec.ragged ? shapes.total_q : std::int64_t{shapes.batch} * shapes.q_len;
  SplitWork work;
  // NOTE: where there are many tiles, how many does not matter, and the product may overflow.
  work.tiles = std::min<std::int64_t>(tiles_of_head, 1 << 20) * heads;
  work.kv_tiles = (std::int64_t{keys_of_row(spec, shapes)} + tile_keys - 1) / tile_keys;
  work.rows = static_cast<double>(positions) * spec.num_q_heads;
  work.row_bytes = 4.0 * spec.ov_depth;
  return work;
}

LaunchShapes reached_shapes(const KernelPlan& plan, const LaunchShapes& shapes,
                            const LaunchScalars& scalars) {
  // The most rows of a work tile, whose positions see windows of their own, and keys of a KV tile.
  constexpr std::int64_t kTileRows = 256, kTileKeys = 128;
  LaunchShapes reached = shapes;
  // NOTE: of fixed keys the numbers count from key 0 on. A map may show more than its mask, and a
  // kernel that interprets a mask knows of no window.
  if (plan.spec->partition_keys > 0 || plan.map || spec::interprets_mask(plan.spec)) return reached;
  std::size_t next = 0;
  const RowReach reach = reach_of(plan.spec->mask, scalars.values, next);
  const std::int64_t keys =
      reach.before + reach.behind + kTileKeys + std::min<std::int64_t>(shapes.q_len, kTileRows);
  reached.kv_len = static_cast<std::int32_t>(std::min<std::int64_t>(shapes.kv_len, keys));
  return reached;
}

std::optional<std::int32_t> fixed_partitions(const SpecFacts& spec, const LaunchShapes& shapes) {
  if (!splits(spec)) return 1;
  if (spec.num_partitions > 1) return spec.num_partitions;
  if (spec.partition_keys == 0) return std::nullopt;
  const std::int32_t keys = keys_of_row(spec, shapes);
  // NOTE: rounds up without forming keys + partition_keys, which may overflow.
  return keys == 0 ? 1 : (keys - 1) / spec.partition_keys + 1;
}

PartitionChoice sequence_ranges(const SplitWork& work, const PartitionChoice& uniform,
                                std::int32_t batch, std::int32_t team, std::int32_t workers) {
  constexpr std::int64_t kLongRange = 16;     // KV tiles, beside which a microsecond is little
  constexpr std::int64_t kLongSequence = 32;  // the same, beside a merge that may be for nothing
  const std::int64_t teams = workers / std::max(team, 1);
  if (batch == 1 || teams < 2) return uniform;
  // NOTE: units, a range more for each team, and tiles of all partitions are counted in an int.
  if (batch + teams > kMaxTiles / (work.kv_tiles + 1)) return uniform;
  if (work.tiles > kMaxTiles / workers || batch * work.kv_tiles < kLongRange * teams)
    return uniform;
  if (uniform.partitions == 1 && work.kv_tiles < kLongSequence) return uniform;
  const bool cluster_reduced = uniform.cluster_reduced && uniform.partitions == 1;
  return {.partitions = cluster_reduced ? workers / 2 * 2 : workers,
          .cluster_reduced = cluster_reduced,
          .team = team};
}

PartitionChoice cut_partitions(const SplitWork& work, const LaunchShapes& shapes, int ctas) {
  constexpr std::int64_t kLeastSteps = 22;  // kLeastCut ticks, and some
  if (work.kv_tiles < kLeastSteps || work.tiles > kMaxTiles / shapes.batch / ctas) return {};
  return {.partitions = ctas};
}

std::int64_t most_partitions(const SplitWork& work) {
  const double affordable = 256.0 * (1 << 20) / std::max(work.rows * work.row_bytes, 1.0);
  return std::min({work.kv_tiles, std::int64_t{64}, static_cast<std::int64_t>(affordable)});
}

std::int32_t best_partitions(const SplitWork& work, const SmRates& rates,
                             const DeviceShape& device) {
  constexpr double kWorthwhile = 0.995;
  const SplitTimes times(work, rates, device.sm_count);
  std::int64_t best = 1;
  double least = times.of(1);
  for (std::int64_t parts = 2, most = most_partitions(work); parts <= most; ++parts) {
    if (times.least_from(parts) > least) break;
    const double time = times.of(parts);
    // More parts are more partial results: they are to gain something.
    if (time > least * kWorthwhile) continue;
    best = parts;
    least = time;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace attnjit

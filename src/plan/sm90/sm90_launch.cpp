// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a forward kernel.

#include <algorithm>
#include <functional>

#include "plan/kernel/partials.h"
#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/partitions.h"
#include "plan/launch/row_tiles.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_tiling.h"

namespace attnjit {
namespace {

// The query tiles of a head (or those of packed heads), all sequences together.
std::int64_t tiles_of_head(const KernelPlan& plan, const LaunchShapes& shapes) {
  return count_query_tiles(plan.spec, shapes, plan.sm90->BM, plan.sm90->packed_heads());
}

// The CTAs that run at once.
int ctas_of(const Sm90Plan& plan, const DeviceShape& device) {
  return plan.ctas_per_sm * std::max(device.sm_count, 1);
}

// What a launch's tiles have to cover, on so many CTAs; 0: in full tiles.
Sm90Rows rows_of(const KernelPlan& plan, const Sm90Plan& body, const LaunchShapes& shapes,
                 bool whole, int ctas) {
  const int packed_heads = body.packed_heads();
  const std::int64_t rows = packed_rows(shapes.q_len, packed_heads);
  const std::int64_t heads = plan.spec->num_q_heads / packed_heads;
  return {.groups = (rows + kSm90ConsumerRows - 1) / kSm90ConsumerRows,
          .heads = heads * shapes.batch,
          .keys = static_cast<double>(shapes.kv_len),
          .fewer_keys = std::min<double>(shapes.q_len, shapes.kv_len),
          .pair_tiles = body.pair_tiles && whole,
          .consumers = body.num_consumers,
          .small_tiles = &body != plan.sm90.get(),
          .tile_keys = body.BN,
          .ctas = ctas};
}

// A launch that splits the keys has full tiles of the first body, which its parts fill up with;
// blocks of a map are of full tiles.
LaunchTiles tiles_of(const KernelPlan& plan, const LaunchShapes& shapes, const DeviceShape& device,
                     bool splits) {
  const auto tiling_of = [&](const Sm90Plan& body) {
    const bool whole = !body.spec->lengths_differ && !splits;
    const int ctas = whole && !body.block_mask ? ctas_of(body, device) : 0;
    return sm90_tiling(rows_of(plan, body, shapes, whole, ctas));
  };
  const Sm90Plan& first = *plan.sm90;
  const QueryTiling tiling = tiling_of(first);
  // Without a time: so many tiles that full ones are even enough.
  if (first.small_tile == nullptr || splits || tiling.time == 0) return {false, tiling};
  const QueryTiling small = tiling_of(*first.small_tile);
  if (small.time < kSm90Worthwhile * tiling.time) return {true, small};
  return {false, tiling};
}

// Fitted on an H200 to decodes of depth 128: docs/performance-sm90.md.
SmRates rates_of(const Sm90Plan& plan) {
  // Rows that are copied one by one arrive slower.
  return {.alone_bytes = plan.spec->copies_rows ? 22e3 : 57e3,
          .shared_bytes = 34e3,
          .two_ctas = 1.6,
          .flop = 5e6};
}

// The CTAs, where the launch deals out stream-K ranges; 1: it does not. `work` is of partitions,
// `unsplit` the tiles of a launch that does not.
std::int32_t stream_k_ranges(const KernelPlan& plan, const LaunchShapes& shapes,
                             const DeviceShape& device, const SplitWork& work,
                             const LaunchTiles& unsplit) {
  const Sm90Plan& sm90 = *plan.sm90;
  const int ctas = ctas_of(sm90, device);
  const Sm90Rows rows = rows_of(plan, sm90, shapes, true, ctas);
  const double whole = unsplit.tiling.time;
  if (whole == 0 && rows.groups > 1) return 1;  // many tiles, which are even enough
  // NOTE: units, and one range more, are counted in an int, as are the tiles of all partitions.
  if (work.tiles > kMaxTiles / std::max<std::int64_t>(work.kv_tiles + 1, ctas) - ctas) return 1;
  if (work.kv_tiles < 2) return 1;
  const SmRates rates = rates_of(sm90);
  std::int64_t ranges = ctas;
  if (work.tiles < ctas || rows.groups == 1) {
    // Few rows: what is written and merged counts.
    const std::int32_t even = best_partitions(work, rates, device);
    if (even == 1) return 1;
    ranges = std::min(ranges, work.tiles * even);
  }
  if (whole > 0) {
    const std::int64_t pieces = std::min<std::int64_t>(work.tiles, ctas) + ranges;
    const std::int64_t parts = ranges / std::max<std::int64_t>(work.tiles, 1) + 2;  // of a tile
    const double written =
        std::min(static_cast<double>(pieces * sm90.BM), work.rows * static_cast<double>(parts)) *
        work.row_bytes;
    const double merged = merge_time(written, parts, rates, device);
    // Fitted on an H200 to launches of one to six heads: docs/performance-sm90.md. SMs that are all
    // busy to the end share the power that few have for themselves.
    constexpr double kFlop = 6.1e6;
    constexpr double kAllBusy = 1.07;
    const double key = 2.0 * sm90.BM * (plan.spec->qk_depth + plan.spec->ov_depth) / kFlop;
    // The small-tile variant is as unusual as ranges are.
    const double worthwhile = unsplit.small_tiles ? 1.0 : kSm90Worthwhile;
    if (kAllBusy * sm90_stream_k_time(rows) + merged / key >= worthwhile * whole) return 1;
  }
  return static_cast<std::int32_t>(ranges);
}

// The parts of a decode's sequences, which differ in length: even ones, and as many as one may have
// where the device is to find how long each is (templates/common/sequence_ranges.cuh).
PartitionChoice sequence_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                    const DeviceShape& device, const SplitWork& work) {
  const Sm90Plan& sm90 = *plan.sm90;
  const std::int32_t even = best_partitions(work, rates_of(sm90), device);
  const std::int64_t heads = plan.spec->num_q_heads / sm90.packed_heads();
  // Microseconds, beside the 1 to 3 of a merge that may be for nothing (docs/sm90.md).
  constexpr double kLongLaunch = 50;
  const double bytes =
      static_cast<double>(work.tiles) * static_cast<double>(work.kv_tiles) * work.kv_tile_bytes;
  const double memory = rates_of(sm90).shared_bytes * std::max(device.sm_count, 1);
  if (even == 1 && bytes < kLongLaunch * memory) return {even, even};
  return sequence_ranges(work, {even, even}, shapes.batch, static_cast<std::int32_t>(heads),
                         ctas_of(sm90, device));
}

}  // namespace

PartitionChoice sm90_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                const DeviceShape& device) {
  const SpecFacts& spec = plan.spec;
  if (const auto fixed = fixed_partitions(spec, shapes)) return {.partitions = *fixed};
  const Sm90Plan& sm90 = *plan.sm90;
  const std::int64_t heads = spec.num_q_heads / sm90.packed_heads();
  SplitWork work = split_work(spec, shapes, tiles_of_head(plan, shapes), heads, sm90.BN);
  work.kv_tile_bytes = static_cast<double>(sm90.k_bytes + sm90.v_bytes) *
                       size_of(spec.type_of_kv()) / size_of(spec.qkv_dtype);
  work.tile_flop = 2.0 * sm90.BM * sm90.BN * (spec.qk_depth + spec.ov_depth);
  work.ctas_per_sm = sm90.ctas_per_sm;
  if (sm90.cuts) return cut_partitions(work, shapes, ctas_of(sm90, device));
  // Lengths do not tell the work of a map's tiles, and parts of all cost more than they gain.
  if (spec.ragged && spec.max_q_len == 0) return {};
  if (!sm90.stream_k) return {.partitions = best_partitions(work, rates_of(sm90), device)};
  if (sm90.spec->lengths_differ) return sequence_partitions(plan, shapes, device, work);
  const LaunchTiles whole = tiles_of(plan, shapes, device, false);
  return {.partitions = stream_k_ranges(plan, shapes, device, work, whole), .whole = whole};
}

Status plan_sm90_launch(const KernelPlan& plan, const LaunchRequest& request,
                        LaunchRecipe& recipe) {
  const SpecFacts& spec = plan.spec;
  const Sm90Plan& sm90 = *plan.sm90;
  const LaunchShapes& shapes = request.shapes;
  const int packed_heads = sm90.packed_heads();
  const std::int64_t heads = spec.num_q_heads / packed_heads;
  if (Status checked = check_query_tiles(spec, request, sm90.BM, packed_heads, heads); !checked) {
    return checked;
  }
  const bool splits = request.parts.partitions > 1;
  const LaunchTiles tiles = request.parts.whole && !splits
                                ? *request.parts.whole
                                : tiles_of(plan, shapes, request.device, splits);
  const Sm90Plan& body = tiles.small_tiles ? *sm90.small_tile : sm90;
  const QueryTiling& tiling = tiles.tiling;
  const std::int64_t head_tiles = sm90.spec->lengths_differ
                                      ? tiles_of_head(plan, shapes)
                                      : tiling.m_tiles * std::int64_t{shapes.batch};
  const auto parts = static_cast<std::int32_t>(head_tiles * heads * request.parts.partitions);
  const std::int32_t total_tiles =
      sm90.stream_k && !sm90.spec->lengths_differ ? parts / request.parts.partitions : parts;
  TileShares shares = deal_out(tiling.order == QueryTiling::Order::kPairs, tiling.m_tiles, parts,
                               ctas_of(sm90, request.device));
  // Of sequences of one length there is a range for each.
  if (sm90.stream_k && !sm90.spec->lengths_differ && splits) shares.ctas = request.parts.partitions;
  // One tile reads a head's K and V, all there is of them.
  const bool read_once =
      !sm90.spec->lengths_differ && tiling.m_tiles == 1 && packed_heads == spec.group;
  const auto describe_map = [&](TensorMapId map, TensorMapDescription& description) {
    describe_rows(plan, request.tensors, map,
                  {body.box_keys, sm90_kv_row_bytes(spec), sm90.l2_bytes, packed_heads},
                  description);
    // NOTE: nobody comes back for what L2 fetches beside it; such launches wait for memory.
    if (read_once) description.l2_bytes = std::min(description.l2_bytes, 128);
  };
  ArgumentValues values{plan, request.scalars.values, request.params,
                        LaunchNumbers(spec, shapes, request.scale), std::cref(describe_map)};
  const bool by_heads = tiling.order == QueryTiling::Order::kHeads;
  set_work_numbers(request, tiling, total_tiles, by_heads ? -1 : shares.paired_units,
                   values.numbers);
  values.numbers.set(LaunchNumber::kSmallTile,
                     std::int32_t{&body == sm90.small_tile.get() ? 1 : 0});
  set_map_numbers(request, spec, values.numbers);
  Status filled =
      fill_recipe(KernelId::kAttention, static_cast<std::uint32_t>(shares.ctas), values, recipe);
  if (filled) forget_partials(plan, request.parts.partitions, recipe);
  return filled;
}

}  // namespace attnjit

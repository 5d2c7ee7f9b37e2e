// SPDX-License-Identifier: Apache-2.0
// Plans the launches of the sm_100 kernels.

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "plan/kernel/partials.h"
#include "plan/kernel/signature.h"
#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/partitions.h"
#include "plan/launch/row_tiles.h"
#include "plan/map/map_plan.h"
#include "plan/sm100/sm100_plan.h"
#include "spec/text.h"

namespace attnjit {
namespace {

// What the keys and values of heads that run together may take of L2 (126 MB on B200).
constexpr std::int64_t kL2Bytes = std::int64_t{50} << 20;
// Where so many CTAs are at tiles of the same keys they load them from HBM at a quarter of its rate
// at most, though L2 kept none for the tiles after.
constexpr std::int64_t kCtasOfKeys = 4;

// How many steps of how many elements an axis has; `group`: query heads that it counts as one.
std::pair<std::int64_t, std::int64_t> steps_of(MapAxis axis, const TensorView& tensor,
                                               std::int64_t group) {
  switch (axis) {
    case MapAxis::kDepth:
      return {tensor.depth, 1};
    case MapAxis::kGroup:
      return {group, tensor.strides.head};
    case MapAxis::kHead:
    case MapAxis::kKvHead:
      return {tensor.heads / group, tensor.strides.head * group};
    case MapAxis::kRow:
    case MapAxis::kPageRow:
      return {tensor.rows, tensor.strides.row};
    case MapAxis::kBatch:
    case MapAxis::kPage:
      break;
  }
  return {tensor.batch, tensor.strides.batch};
}

// A tensor map by the plan's axes.
void describe(const KernelPlan& plan, const LaunchTensors& tensors, TensorMapId id,
              TensorMapDescription& description) {
  const Sm100TensorMap& map = *std::ranges::find(plan.sm100->tensor_maps, id, &Sm100TensorMap::id);
  const TensorMapId viewed = viewed_by(tensors, id);
  const TensorView& tensor = tensor_of(tensors, viewed);
  const bool grouped = std::ranges::find(map.axes, MapAxis::kGroup) != map.axes.end();
  description.id = buffer_of(plan, viewed);
  description.dtype = tensor.dtype;
  description.swizzle = map.swizzle;
  for (std::size_t i = 0; i < map.axes.size(); ++i) {
    const auto [extent, stride] = steps_of(map.axes[i], tensor, grouped ? plan.spec->group : 1);
    description.dims.push_back(static_cast<std::uint64_t>(extent));
    if (i > 0) {
      description.strides.push_back(static_cast<std::uint64_t>(stride * tensor.element_bytes()));
    }
    description.box.push_back(static_cast<std::uint32_t>(map.box[i]));
    description.element_strides.push_back(1);
  }
}

// The query tiles of a head, whose rows are positions, all sequences together.
std::int64_t tiles_of_head(const SpecFacts& spec, const LaunchShapes& shapes, std::int64_t rows) {
  return count_query_tiles(spec, shapes, static_cast<int>(rows), 1);
}

// Heads, or groups of heads that share tiles: one at least.
int packs_of(const SpecFacts& spec, const Sm100Variant& body) {
  return std::max(body.fuse_gqa ? spec.num_kv_heads() : spec.num_q_heads, 1);
}

// Whether the body with one query tile a CTA does a launch better: it has the rows of one such tile
// at most, or two tiles per CTA would leave half of the SMs idle (prefer_1q's rule).
bool prefers_1q(const Sm100Plan& sm100, const SpecFacts& spec, const LaunchShapes& shapes,
                const DeviceShape& device, bool splits) {
  if (!sm100.can_switch_to_1q) return false;
  const Sm100Variant& two = sm100.variants.front();
  const Sm100Variant& one = sm100.variants.back();
  if (shapes.q_len <= one.BM_eff) return true;
  // Parts of the keys fill the SMs.
  if (splits) return false;
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  return tiles_of_head(spec, shapes, two.BM_eff) <= device.sm_count / 2 / packs_of(spec, two);
}

/// How a launch cuts the rows.
struct QueryTiles {
  bool one_query = false;  ///< a CTA has one query tile, or as many as the body says
  const Sm100Variant* body = nullptr;
  std::int64_t heads = 0;           ///< or groups of heads that share tiles
  std::int64_t sequence_tiles = 0;  ///< query tiles of the longest sequence
  std::int64_t head_tiles = 0;      ///< of all sequences: no fewer than there can be
};

// `partitions`: of the launch.
QueryTiles query_tiles(const KernelPlan& plan, const LaunchShapes& shapes,
                       const DeviceShape& device, std::int32_t partitions) {
  const SpecFacts& spec = plan.spec;
  const std::vector<Sm100Variant>& bodies = plan.sm100->variants;
  QueryTiles tiles;
  const bool splits = plan.sm100->split && (!spec.ragged || partitions > 1);
  tiles.one_query = prefers_1q(*plan.sm100, spec, shapes, device, splits);
  tiles.body = tiles.one_query ? &bodies.back() : &bodies.front();
  tiles.heads = packs_of(spec, *tiles.body);
  const std::int64_t rows = tiles.body->BM_eff * plan.sm100->cluster;
  tiles.sequence_tiles = (std::int64_t{shapes.q_len} + rows - 1) / rows;
  tiles.head_tiles = tiles_of_head(spec, shapes, rows);
  return tiles;
}

// Estimates for a B200 (148 SMs at 1.85 GHz, 7.7 TB/s): docs/sm100.md, "Partitions of the keys".
constexpr SmRates kRates{.alone_bytes = 100e3, .shared_bytes = 52e3, .two_ctas = 1, .flop = 12e6};

}  // namespace

std::int32_t sm100_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                              const DeviceShape& device) {
  const SpecFacts& spec = plan.spec;
  if (const auto fixed = fixed_partitions(spec, shapes)) return *fixed;
  constexpr std::int32_t kSome = 2;
  const QueryTiles tiles = query_tiles(plan, shapes, device, kSome);
  const Sm100Variant& body = *tiles.body;
  SplitWork work = split_work(spec, shapes, tiles.head_tiles, tiles.heads, body.BN);
  work.kv_tile_bytes = static_cast<double>(body.k_stage_bytes + body.v_stage_bytes) *
                       size_of(spec.type_of_kv()) / size_of(spec.qkv_dtype);
  work.tile_flop = 2.0 * static_cast<double>(body.BM * body.BN) * (spec.qk_depth + spec.ov_depth);
  if (plan.sm100->cuts) {
    const std::int32_t ctas = std::max(device.sm_count, 1);
    const std::int32_t cut = cut_partitions(work, shapes, ctas).partitions;
    return spec.ragged || cut > 1 || best_partitions(work, kRates, device) == 1 ? cut : ctas;
  }
  // Lengths do not tell the work of a map's tiles, and parts of all cost more than they gain.
  if (spec.ragged && spec.max_q_len == 0) return 1;
  return best_partitions(work, kRates, device);
}

std::int32_t sm100_rows_per_list(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const DeviceShape& device) {
  const std::int32_t partitions = sm100_partitions(plan, shapes, device);
  return query_tiles(plan, shapes, device, partitions).body->BM_eff > kMaskBlock ? 2 : 1;
}

Status plan_sm100_launch(const KernelPlan& plan, const LaunchRequest& request,
                         LaunchRecipe& recipe) {
  const SpecFacts& spec = plan.spec;
  const LaunchShapes& shapes = request.shapes;
  const LaunchTensors& tensors = request.tensors;
  const QueryTiles tiles = query_tiles(plan, shapes, request.device, request.parts.partitions);
  const Sm100Variant& body = *tiles.body;
  const std::int64_t heads = tiles.heads;
  const std::int64_t m_tiles = tiles.sequence_tiles;
  // NOTE: divided, not multiplied: the product of four such numbers overflows 64 bits.
  const std::int64_t most = kMaxTiles / plan.sm100->cluster;
  if (tiles.head_tiles > most || tiles.head_tiles > most / heads / request.parts.partitions) {
    return spec::invalid("batch", "batch {} x {} heads x {} query tiles x {} partitions exceed {}",
                         shapes.batch, heads, m_tiles, request.parts.partitions, most);
  }
  const std::int32_t cluster = plan.sm100->cluster;
  const std::int32_t ctas = std::max(request.device.sm_count / cluster, 1);
  if (plan.sm100->cuts && request.parts.partitions > 1 && request.parts.partitions != ctas) {
    return spec::invalid("num_partitions", "{} CTAs cut tiles, and have {} slots for their parts",
                         ctas, request.parts.partitions);
  }
  const auto total_heads = static_cast<std::int32_t>(heads * (spec.ragged ? 1 : shapes.batch));
  const auto total_tiles =
      static_cast<std::int32_t>(tiles.head_tiles * heads * request.parts.partitions);
  std::int32_t section_heads = 1;
  // Sequences of one length, or of many.
  const bool even = !contains(spec.mask, MaskSpec::Kind::kCausal) && !spec.lengths_differ;
  if (!even) {
    // Heads that follow one another share K and V where they are of one group.
    const std::int64_t sharers = body.fuse_gqa ? 1 : spec.group;
    const std::int64_t bytes =
        std::max<std::int64_t>(1, std::int64_t{shapes.kv_len} * (spec.qk_depth + spec.ov_depth) *
                                      size_of(spec.type_of_kv()));
    const std::int64_t fitting = std::clamp<std::int64_t>(kL2Bytes / bytes * sharers, 1, 1 << 20);
    section_heads = static_cast<std::int32_t>(std::min<std::int64_t>(
        total_heads,
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fitting)))));
    // Of one section CTAs that walk tiles get like shares. Where two meet, the longest tiles follow
    // the shortest in the midst of a round.
    const std::int64_t kv_heads = total_heads / sharers;
    if (plan.sm100->persistent == 1 && kv_heads * kCtasOfKeys <= request.device.sm_count) {
      section_heads = total_heads;
    }
  }
  const auto describe_map = [&](TensorMapId map, TensorMapDescription& description) {
    describe(plan, tensors, map, description);
  };
  ArgumentValues values{plan, request.scalars.values, request.params,
                        LaunchNumbers(spec, shapes, request.scale), std::cref(describe_map)};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kTotalHeads, total_heads);
  values.numbers.set(LaunchNumber::kSectionHeads, section_heads);
  values.numbers.set(LaunchNumber::kOneQuery, std::int32_t{tiles.one_query ? 1 : 0});
  values.numbers.set(LaunchNumber::kPartitions, request.parts.partitions);
  set_map_numbers(request, spec, values.numbers);
  values.numbers.set_strides(tensors);
  // Tiles of equal work, and those that a CTA finds itself, are shared out evenly, one CTA an SM
  // that loads ahead over tile borders; of unequal ones the GPU gives out the next as an SM gets
  // free, or a CTA that is near its end asks for.
  const std::int32_t workers = plan.sm100->one_work_tile() || plan.sm100->steals_tiles()
                                   ? total_tiles
                                   : std::min(total_tiles, ctas);
  Status filled = fill_recipe(KernelId::kAttention, static_cast<std::uint32_t>(workers * cluster),
                              values, recipe);
  if (filled) forget_partials(plan, request.parts.partitions, recipe);
  return filled;
}

}  // namespace attnjit

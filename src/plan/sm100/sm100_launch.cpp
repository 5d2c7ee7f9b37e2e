// SPDX-License-Identifier: Apache-2.0
// Plans the launches of the sm_100 kernels.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "plan/launch/launch_values.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

// What the keys and values of heads that run together may take of L2 (126 MB on B200).
constexpr std::int64_t kL2Bytes = std::int64_t{50} << 20;

// A tensor map by the plan's axes.
TensorMapDescription describe(const Sm100TensorMap& map, const TensorShape& shape, Dtype dtype,
                              std::int64_t group) {
  TensorMapDescription description;
  description.name = map.name;
  description.buffer = shape.name;
  description.dtype = dtype;
  description.swizzle = map.swizzle;
  for (std::size_t i = 0; i < map.axes.size(); ++i) {
    const std::string& axis = map.axes[i];
    std::int64_t extent = 1;
    std::int64_t stride = 1;
    if (axis == "depth") {
      extent = shape.depth;
    } else if (axis == "group") {
      extent = group;
      stride = shape.strides.head;
    } else if (axis == "head") {
      extent = shape.heads;
      stride = shape.strides.head;
    } else if (axis == "kv_head") {
      // Of Q and O: groups of heads.
      const bool grouped = std::find(map.axes.begin(), map.axes.end(), "group") != map.axes.end();
      extent = grouped ? shape.heads / group : shape.heads;
      stride = shape.strides.head * (grouped ? group : 1);
    } else if (axis == "row" || axis == "page_row") {
      extent = shape.rows;
      stride = shape.strides.row;
    } else if (axis == "batch" || axis == "page") {
      extent = shape.batch;
      stride = shape.strides.batch;
    }
    description.dims.push_back(static_cast<std::uint64_t>(extent));
    if (i > 0) {
      description.strides.push_back(static_cast<std::uint64_t>(stride * shape.element_bytes));
    }
    description.box.push_back(static_cast<std::uint32_t>(map.box[i]));
    description.element_strides.push_back(1);
  }
  return description;
}

// No fewer query tiles than a ragged batch can have: each sequence wastes a tile less a row at
// most.
std::int64_t ragged_tiles(const LaunchShapes& shapes, std::int64_t rows) {
  const std::int64_t longest = (std::int64_t{shapes.q_len} + rows - 1) / rows;
  return std::min((shapes.total_q + shapes.batch * (rows - 1)) / rows, shapes.batch * longest);
}

// Whether the body with one query tile a CTA does a launch better: it has the rows of one such tile
// at most, or two tiles a CTA would leave half of the SMs idle (prefer_1q's rule).
bool prefers_1q(const Sm100Plan& sm100, const AttentionSpec& spec, const LaunchShapes& shapes,
                const DeviceShape& device) {
  if (!sm100.can_switch_to_1q) return false;
  const Sm100Variant& two = sm100.variants.front();
  const Sm100Variant& one = sm100.variants.back();
  if (shapes.q_len <= one.BM_eff) return true;
  const std::int64_t heads = two.fuse_gqa ? spec.num_kv_heads() : spec.num_q_heads;
  const std::int64_t tiles = (std::int64_t{shapes.q_len} + two.BM_eff - 1) / two.BM_eff;
  if (spec.ragged) return ragged_tiles(shapes, two.BM_eff) * heads <= device.sm_count / 2;
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  return tiles * heads <= device.sm_count / 2 / std::max(shapes.batch, 1);
}

}  // namespace

Result<LaunchRecipe> plan_sm100_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                       const LaunchScalars& scalars,
                                       const std::vector<ParamValue>& params,
                                       const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  const bool one_query = prefers_1q(*plan.sm100, spec, shapes, device);
  const Sm100Variant& body = one_query ? plan.sm100->variants.back() : plan.sm100->variants.front();
  LaunchRecipe recipe = start_recipe(plan);
  if (shapes.batch == 0 || shapes.q_len == 0 || (spec.ragged && shapes.total_q == 0)) {
    recipe.grid = {0, 0, 0};
    return recipe;
  }

  const Result<LaunchTensors> tensors = launch_tensors(spec, shapes);
  if (!tensors) return tensors.error();
  for (const Sm100TensorMap& map : plan.sm100->tensor_maps) {
    const TensorShape* shape = &tensors->q;
    if (map.buffer == "k") shape = &tensors->k;
    if (map.buffer == "v") shape = &tensors->v;
    if (map.buffer == "o") shape = &tensors->o;
    // NOTE: a tensor map cannot be empty. Where there are no keys nothing is loaded through K's and
    // V's; they view Q, which is there.
    if (shape->rows == 0 || shape->batch == 0) shape = &tensors->q;
    const Dtype dtype =
        map.buffer == "o" ? spec.output_dtype.value_or(spec.qkv_dtype) : spec.qkv_dtype;
    recipe.tensor_maps.push_back(describe(map, *shape, dtype, spec.group));
  }

  LaunchValues values(plan, shapes, scalars, params);
  const std::int64_t heads = body.fuse_gqa ? spec.num_kv_heads() : spec.num_q_heads;
  const std::int64_t m_tiles = (std::int64_t{shapes.q_len} + body.BM_eff - 1) / body.BM_eff;
  const std::int64_t sequences = spec.ragged ? 1 : shapes.batch;
  const std::int64_t sequence_tiles = spec.ragged ? ragged_tiles(shapes, body.BM_eff) : m_tiles;
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  if (sequence_tiles > kMaxTiles || sequence_tiles * heads > kMaxTiles / sequences) {
    return invalid_launch("batch", fmt::format("batch {} x {} heads x {} query tiles exceed {}",
                                               shapes.batch, heads, m_tiles, kMaxTiles));
  }
  values.m_tiles = static_cast<std::int32_t>(m_tiles);
  values.total_heads = static_cast<std::int32_t>(heads * sequences);
  values.total_tiles = static_cast<std::int32_t>(sequence_tiles * heads * sequences);
  values.o_row_bytes = tensors->o.strides.row * tensors->o.element_bytes;
  values.o_head_bytes = tensors->o.strides.head * tensors->o.element_bytes;
  values.one_query = one_query;
  // Sequences of one length, or of many.
  const bool even = even_work(spec.mask) && spec.page_size == 0 && !spec.ragged;
  if (!even) {
    // Heads that follow one another share K and V where they are of one group.
    const std::int64_t sharers = body.fuse_gqa ? 1 : spec.group;
    const std::int64_t bytes = std::max<std::int64_t>(
        1, std::int64_t{shapes.kv_len} * (spec.qk_depth + spec.ov_depth) * size_of(spec.qkv_dtype));
    const std::int64_t fitting = std::clamp<std::int64_t>(kL2Bytes / bytes * sharers, 1, 1 << 20);
    values.section_heads = static_cast<std::int32_t>(std::min<std::int64_t>(
        values.total_heads,
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fitting)))));
  }
  // A CTA takes every grid-th tile. Tiles of equal work are shared out evenly, one CTA an SM that
  // loads ahead over tile borders; of unequal ones the GPU gives out the next as an SM gets free.
  const std::int32_t ctas =
      even ? std::min(values.total_tiles, std::max(device.sm_count, 1)) : values.total_tiles;
  recipe.grid = {static_cast<std::uint32_t>(ctas), 1, 1};
  Status status = values.append_to(recipe);
  if (!status) return status.error();
  return recipe;
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Computes the launch of a plan for given shapes, as a LaunchRecipe.
//
// Thread rules: functions of their arguments.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attnjit/launch.h"
#include "plan/launch/launch_values.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "spec/scalars.h"

namespace attnjit {
namespace {

// Kernels compute row and key numbers, and a tile past them, in 32 bits.
constexpr std::int32_t kMaxLength = 1 << 30;

// A map of K or V: depth, key, head, batch.
TensorMapDescription describe_keys(std::string map, const TensorShape& shape, Dtype dtype,
                                   int box_keys) {
  const auto bytes = [&](std::int64_t stride) {
    return static_cast<std::uint64_t>(stride * shape.element_bytes);
  };
  TensorMapDescription description;
  description.name = std::move(map);
  description.buffer = shape.name;
  description.dtype = dtype;
  description.dims = {
      static_cast<std::uint64_t>(shape.depth), static_cast<std::uint64_t>(shape.rows),
      static_cast<std::uint64_t>(shape.heads), static_cast<std::uint64_t>(shape.batch)};
  description.strides = {bytes(shape.strides.row), bytes(shape.strides.head),
                         bytes(shape.strides.batch)};
  description.box = {static_cast<std::uint32_t>(128 / shape.element_bytes),
                     static_cast<std::uint32_t>(box_keys), 1, 1};
  description.element_strides = {1, 1, 1, 1};
  description.swizzle = 128;
  return description;
}

// A map of Q or O: depth, head, position, batch; a box is a consumer's 64 rows, of 2^gqa_shift
// heads.
TensorMapDescription describe_rows(std::string map, const TensorShape& shape, Dtype dtype,
                                   int gqa_shift) {
  TensorMapDescription description = describe_keys(std::move(map), shape, dtype, 64 >> gqa_shift);
  std::swap(description.dims[1], description.dims[2]);
  std::swap(description.strides[0], description.strides[1]);
  std::swap(description.box[1], description.box[2]);
  description.box[1] = 1U << gqa_shift;
  return description;
}

Status check_lengths(const AttentionSpec& spec, const LaunchShapes& shapes) {
  const struct {
    const char* name;
    std::int32_t value;
  } lengths[] = {{"batch", shapes.batch},         {"q_len", shapes.q_len},
                 {"kv_len", shapes.kv_len},       {"total_q", shapes.total_q},
                 {"num_pages", shapes.num_pages}, {"max_pages", shapes.max_pages}};
  for (const auto& [name, value] : lengths) {
    if (value < 0 || value > kMaxLength) {
      return invalid_launch(name,
                            fmt::format("{} is {}; 0 to {} is allowed", name, value, kMaxLength));
    }
  }
  if (spec.ragged && (shapes.total_q < shapes.q_len ||
                      shapes.total_q > std::int64_t{shapes.batch} * shapes.q_len)) {
    return invalid_launch(
        "total_q", fmt::format("total_q is {}; {} sequences of at most {} rows, one of them so "
                               "long, have {} to {}",
                               shapes.total_q, shapes.batch, shapes.q_len, shapes.q_len,
                               std::int64_t{shapes.batch} * shapes.q_len));
  }
  if (spec.page_size > 0 && std::int64_t{shapes.max_pages} * spec.page_size < shapes.kv_len) {
    return invalid_launch("max_pages",
                          fmt::format("max_pages is {}; {} keys in pages of {} need {}",
                                      shapes.max_pages, shapes.kv_len, spec.page_size,
                                      (shapes.kv_len + spec.page_size - 1) / spec.page_size));
  }
  return {};
}

Result<LaunchRecipe> plan_sm90_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                      const LaunchScalars& scalars,
                                      const std::vector<ParamValue>& params,
                                      const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  const Sm90Plan& sm90 = *plan.sm90;
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);

  LaunchRecipe recipe = start_recipe(plan);
  if (shapes.batch == 0 || shapes.q_len == 0) {
    recipe.grid = {0, 0, 0};
    return recipe;
  }

  const Result<LaunchTensors> tensors = launch_tensors(spec, shapes);
  if (!tensors) return tensors.error();
  const auto& [q, k, v, o] = *tensors;
  const int gqa_shift = sm90_gqa_shift(sm90, spec);
  recipe.tensor_maps.push_back(describe_rows("q_map", q, spec.qkv_dtype, gqa_shift));
  if (shapes.kv_len > 0) {
    recipe.tensor_maps.push_back(describe_keys("k_map", k, spec.qkv_dtype, sm90.BN));
    recipe.tensor_maps.push_back(describe_keys("v_map", v, spec.qkv_dtype, sm90.BN));
  } else {
    // NOTE: a tensor map cannot be empty. Nothing is loaded through these two; they view Q, which
    // is there.
    for (const char* name : {"k_map", "v_map"}) {
      recipe.tensor_maps.push_back(describe_keys(name, q, spec.qkv_dtype, sm90.BN));
    }
  }
  recipe.tensor_maps.push_back(describe_rows("o_map", o, output, gqa_shift));

  LaunchValues arguments(plan, shapes, scalars, params);
  const std::int64_t rows = std::int64_t{shapes.q_len} << gqa_shift;
  if (rows > kMaxLength) {
    return invalid_launch(
        "q_len", fmt::format("q_len is {}; with the {} heads of a group in one tile, 0 to {} is "
                             "allowed",
                             shapes.q_len, spec.group, kMaxLength >> gqa_shift));
  }
  const std::int64_t m_tiles = (rows + sm90.BM - 1) / sm90.BM;
  const std::int64_t heads = spec.num_q_heads >> gqa_shift;
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  if (m_tiles * heads > kMaxTiles / shapes.batch) {
    return invalid_launch("batch", fmt::format("batch {} x {} heads x {} query tiles exceed {}",
                                               shapes.batch, heads, m_tiles, kMaxTiles));
  }
  arguments.m_tiles = static_cast<std::int32_t>(m_tiles);
  arguments.total_tiles = static_cast<std::int32_t>(m_tiles * heads * shapes.batch);
  const Sm90Shares shares =
      sm90_shares(sm90.pair_tiles, arguments.m_tiles, arguments.total_tiles, device.sm_count);
  arguments.paired_units = shares.paired_units;
  recipe.grid = {static_cast<std::uint32_t>(shares.ctas), 1, 1};
  Status status = arguments.append_to(recipe);
  if (!status) return status.error();
  return recipe;
}

}  // namespace

LaunchScalars launch_scalars(const AttentionSpec& spec) {
  LaunchScalars scalars;
  for (const spec::SpecScalar& scalar : spec::spec_scalars(spec)) {
    scalars.values.push_back(scalar.value);
  }
  return scalars;
}

std::vector<std::string> launch_scalar_names(const AttentionSpec& spec) {
  std::vector<std::string> names;
  for (spec::SpecScalar& scalar : spec::spec_scalars(spec)) names.push_back(std::move(scalar.name));
  return names;
}

Result<LaunchRecipe> plan_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const LaunchScalars& scalars,
                                 const std::vector<ParamValue>& params, const DeviceShape& device) {
  if (!plan.supported) {
    return make_error(ErrorCode::kUnsupported, plan.reason);
  }
  Status status = check_lengths(plan.spec, shapes);
  if (!status) return status.error();
  if (plan.spec->max_seq_len > 0 && shapes.kv_len > plan.spec->max_seq_len) {
    return invalid_launch("kv_len", fmt::format("kv_len {} exceeds the plan's max_seq_len {}",
                                                shapes.kv_len, plan.spec->max_seq_len));
  }
  if (plan.smem_bytes > device.max_smem_bytes) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("the kernel needs {} bytes of shared memory a CTA; the device has {}",
                    plan.smem_bytes, device.max_smem_bytes));
  }
  if (plan.sm90 != nullptr) return plan_sm90_launch(plan, shapes, scalars, params, device);
  return plan_sm100_launch(plan, shapes, scalars, params, device);
}

}  // namespace attnjit

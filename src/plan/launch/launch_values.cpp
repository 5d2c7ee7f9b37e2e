// SPDX-License-Identifier: Apache-2.0
// Computes the tensors of a launch and the value of each of the kernel's parameters.
#include "plan/launch/launch_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "spec/names.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxTensorMapStride = std::int64_t{1} << 40;  // bytes, exclusive

/// Fills packed strides in for zeros. A dimension of one element gets a packed stride whatever was
/// asked: nothing is ever reached through it.
TensorStrides packed_where_zero(const TensorShape& shape, TensorStrides strides) {
  if (strides.head == 0 || shape.heads == 1) strides.head = shape.depth;
  if (strides.row == 0 || shape.rows == 1) strides.row = shape.heads * shape.depth;
  if (strides.batch == 0 || shape.batch == 1) {
    strides.batch = shape.rows * shape.heads * shape.depth;
  }
  return strides;
}

Status check_strides(const TensorShape& shape) {
  const struct {
    const char* dimension;
    std::int64_t stride;
  } strides[] = {
      {"batch", shape.strides.batch}, {"row", shape.strides.row}, {"head", shape.strides.head}};
  const std::int64_t step = 16 / shape.element_bytes;
  for (const auto& [dimension, stride] : strides) {
    if (stride <= 0 || stride % step != 0 || stride >= kMaxTensorMapStride / shape.element_bytes) {
      return invalid_launch(
          fmt::format("{}.{}", shape.name, dimension),
          fmt::format("the stride of {} from one {} to the next is {} elements; TMA takes "
                      "positive multiples of {} below {}",
                      shape.name, dimension, stride, step,
                      kMaxTensorMapStride / shape.element_bytes));
    }
  }
  return {};
}

}  // namespace

Error invalid_launch(std::string field, std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

Result<LaunchTensors> launch_tensors(const AttentionSpec& spec, const LaunchShapes& shapes) {
  const int element_bytes = size_of(spec.qkv_dtype);
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);
  // Ragged: one run of rows. Paged: a page is a batch.
  const std::int64_t q_batch = spec.ragged ? 1 : shapes.batch;
  const std::int64_t q_rows = spec.ragged ? shapes.total_q : shapes.q_len;
  const std::int64_t kv_batch = spec.page_size > 0 ? shapes.num_pages : shapes.batch;
  const std::int64_t kv_rows = spec.page_size > 0 ? spec.page_size : shapes.kv_len;
  LaunchTensors tensors{
      {"q", q_batch, q_rows, spec.num_q_heads, spec.qk_depth, element_bytes, {}},
      {"k", kv_batch, kv_rows, spec.num_kv_heads(), spec.qk_depth, element_bytes, {}},
      {"v", kv_batch, kv_rows, spec.num_kv_heads(), spec.ov_depth, element_bytes, {}},
      {"o", q_batch, q_rows, spec.num_q_heads, spec.ov_depth, size_of(output), {}}};
  const struct {
    TensorShape& shape;
    const TensorStrides& given;
  } all[] = {
      {tensors.q, shapes.q}, {tensors.k, shapes.k}, {tensors.v, shapes.v}, {tensors.o, shapes.o}};
  for (const auto& [shape, given] : all) {
    shape.strides = packed_where_zero(shape, given);
    if (shape.rows == 0 || shape.batch == 0) continue;
    Status status = check_strides(shape);
    if (!status) return status.error();
  }
  return tensors;
}

LaunchRecipe start_recipe(const KernelPlan& plan) {
  LaunchRecipe recipe;
  recipe.entry = plan.entry;
  recipe.block = {static_cast<std::uint32_t>(plan.threads), 1, 1};
  recipe.cluster = {static_cast<std::uint32_t>(plan.cluster), 1, 1};
  recipe.dynamic_smem = static_cast<std::uint32_t>(plan.smem_bytes);
  return recipe;
}

bool even_work(const MaskSpec& mask) {
  if (mask.kind == MaskSpec::Kind::kCausal) return false;
  return std::all_of(mask.of.begin(), mask.of.end(), even_work);
}

Status LaunchValues::append_to(LaunchRecipe& recipe) const {
  if (scalars_.values.size() > spec_scalars_.size()) {
    return invalid_launch("scalars", fmt::format("{} numbers are given; the spec's masks and score "
                                                 "modification have {}",
                                                 scalars_.values.size(), spec_scalars_.size()));
  }
  for (const KernelParameter& parameter : plan_.parameters) {
    Result<LaunchArgument> value = value_of(parameter);
    if (!value) return value.error();
    recipe.args.push_back(*std::move(value));
  }
  return {};
}

Result<LaunchArgument> LaunchValues::value_of(const KernelParameter& parameter) const {
  using Kind = KernelParameter::Kind;
  const std::string& name = parameter.name;
  if (parameter.kind == Kind::kTensorMap) return LaunchArgument{LaunchArgument::TensorMap{name}};
  if (name == "lse" || name == "sink" || name == "o" || name == "kv_lens" || name == "page_table" ||
      name == "q_offsets") {
    return LaunchArgument{LaunchArgument::Pointer{name, 0}};
  }
  if (name == "o_row_bytes") return LaunchArgument{o_row_bytes};
  if (name == "o_head_bytes") return LaunchArgument{o_head_bytes};
  if (name == "batch") return LaunchArgument{shapes_.batch};
  if (name == "total_q") return LaunchArgument{shapes_.total_q};
  if (name == "max_pages") return LaunchArgument{shapes_.max_pages};
  if (name == "num_q_heads") return LaunchArgument{std::int32_t{plan_.spec->num_q_heads}};
  if (name == "q_len") return LaunchArgument{shapes_.q_len};
  if (name == "kv_len") return LaunchArgument{shapes_.kv_len};
  if (name == "m_tiles") return LaunchArgument{m_tiles};
  if (name == "total_tiles") return LaunchArgument{total_tiles};
  if (name == "paired_units") return LaunchArgument{paired_units};
  if (name == "total_heads") return LaunchArgument{total_heads};
  if (name == "section_heads") return LaunchArgument{section_heads};
  if (name == "one_query") return LaunchArgument{std::int32_t{one_query ? 1 : 0}};
  if (name == "scale") return scale();
  if (name.compare(0, 6, "param_") == 0) return user_value(parameter);
  for (std::size_t i = 0; i < spec_scalars_.size(); ++i) {
    if (spec_scalars_[i].name == name) return scalar_value(i);
  }
  return make_error(ErrorCode::kInternal, fmt::format("no value is known for '{}'", name), name);
}

Result<LaunchArgument> LaunchValues::scale() const {
  const float scale =
      scalars_.scale != 0
          ? scalars_.scale
          : static_cast<float>(1.0 / std::sqrt(static_cast<double>(plan_.spec->qk_depth)));
  if (!(scale > 0) || !std::isfinite(scale)) {
    return invalid_launch("scale", fmt::format("scale must be positive and finite, not {}", scale));
  }
  return LaunchArgument{scale};
}

Result<LaunchArgument> LaunchValues::scalar_value(std::size_t index) const {
  const spec::SpecScalar& scalar = spec_scalars_[index];
  const double given = index < scalars_.values.size() ? scalars_.values[index] : 0;
  const double value = given != 0 ? given : scalar.value;
  if (!spec::is_allowed(scalar.traits, scalar.is_integer, value)) {
    return invalid_launch(scalar.name,
                          fmt::format("{} is {}; allowed at launch: {}", scalar.name, value,
                                      spec::allowed(scalar.traits, scalar.is_integer)));
  }
  if (scalar.is_integer) return LaunchArgument{static_cast<std::int32_t>(value)};
  return LaunchArgument{static_cast<float>(value)};
}

// The parameter whose kernel arguments begin with `name`: itself, or its extents.
Result<LaunchArgument> LaunchValues::user_value(const KernelParameter& parameter) const {
  using Type = ParamSpec::Type;
  for (const ParamSpec& declared : spec::declared_params(plan_.spec)) {
    const std::string own = "param_" + declared.name;
    if (parameter.name.compare(0, own.size(), own) != 0) continue;
    const std::string_view suffix = std::string_view(parameter.name).substr(own.size());
    const bool array = declared.type == Type::kI32Array || declared.type == Type::kF32Array;
    const bool matrix = declared.type == Type::kI32Matrix;
    const bool fits = suffix.empty() || (array && suffix == "_n") ||
                      (matrix && (suffix == "_rows" || suffix == "_cols"));
    if (!fits) continue;
    const auto given = std::find_if(params_.begin(), params_.end(), [&](const ParamValue& value) {
      return value.name == declared.name;
    });
    if (given == params_.end()) {
      return invalid_launch(own, fmt::format("the parameter p.{} was not given", declared.name));
    }
    if (array || matrix) {
      for (int i = 0; i < (matrix ? 2 : 1); ++i) {
        if (given->extent[static_cast<std::size_t>(i)] < 0) {
          return invalid_launch(own, fmt::format("the extent of p.{} is negative", declared.name));
        }
      }
      const bool none = given->extent[0] == 0 || (matrix && given->extent[1] == 0);
      if (suffix.empty()) {
        return LaunchArgument{LaunchArgument::Pointer{none ? std::string() : own, 0}};
      }
      return LaunchArgument{given->extent[suffix == "_cols" ? 1 : 0]};
    }
    if (declared.type == Type::kI32) {
      if (const auto* value = std::get_if<std::int32_t>(&given->scalar)) {
        return LaunchArgument{*value};
      }
      return invalid_launch(own, fmt::format("p.{} is an i32; a float was given", declared.name));
    }
    if (const auto* value = std::get_if<float>(&given->scalar)) return LaunchArgument{*value};
    return LaunchArgument{static_cast<float>(std::get<std::int32_t>(given->scalar))};
  }
  return make_error(ErrorCode::kInternal, fmt::format("no value is known for '{}'", parameter.name),
                    parameter.name);
}

}  // namespace attnjit

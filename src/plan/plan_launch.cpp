#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attnjit/launch.h"
#include "attnjit/sm90_plan.h"
#include "plan/mask_scalars.h"

namespace attnjit {
namespace {

// Kernels compute row and key numbers, and a tile past them, in 32 bits.
constexpr std::int32_t kMaxLength = 1 << 30;
constexpr std::int64_t kMaxTiles = 1 << 30;
constexpr std::int64_t kMaxTensorMapStride = std::int64_t{1} << 40;  // bytes, exclusive

Error invalid(std::string field, std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

/// A tensor [batch, rows, heads, depth] of a launch.
struct TensorShape {
  const char* name;
  std::int64_t batch, rows, heads, depth;
  int element_bytes;
  TensorStrides strides;  ///< in elements, none zero
};

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
      return invalid(
          fmt::format("{}.{}", shape.name, dimension),
          fmt::format("the stride of {} from one {} to the next is {} elements; TMA takes "
                      "positive multiples of {} below {}",
                      shape.name, dimension, stride, step,
                      kMaxTensorMapStride / shape.element_bytes));
    }
  }
  return {};
}

TensorMapDescription describe(std::string map, const TensorShape& shape, Dtype dtype,
                              int box_rows) {
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
                     static_cast<std::uint32_t>(box_rows), 1, 1};
  description.element_strides = {1, 1, 1, 1};
  description.swizzle = 128;
  return description;
}

/// What the parameters of one launch are filled with, by name.
class Arguments {
 public:
  Arguments(const KernelPlan& plan, const LaunchShapes& shapes, const LaunchScalars& scalars,
            const std::vector<ParamValue>& params)
      : plan_(plan), shapes_(shapes), scalars_(scalars), params_(params) {}

  std::int32_t m_tiles = 0;
  std::int32_t total_tiles = 0;
  float scale = 0;

  /// Errors: kInvalid where the launch lacks a value; kInternal for a parameter that nobody knows.
  Result<LaunchArgument> value_of(const KernelParameter& parameter) const {
    using Kind = KernelParameter::Kind;
    const std::string& name = parameter.name;
    if (parameter.kind == Kind::kTensorMap) return LaunchArgument{LaunchArgument::TensorMap{name}};
    if (name == "lse" || name == "sink") return LaunchArgument{LaunchArgument::Pointer{name, 0}};
    if (name == "num_q_heads") return LaunchArgument{std::int32_t{plan_.spec.num_q_heads}};
    if (name == "q_len") return LaunchArgument{shapes_.q_len};
    if (name == "kv_len") return LaunchArgument{shapes_.kv_len};
    if (name == "m_tiles") return LaunchArgument{m_tiles};
    if (name == "total_tiles") return LaunchArgument{total_tiles};
    if (name == "scale") return LaunchArgument{scale};
    if (name == "cap") return cap();
    if (name.compare(0, 6, "param_") == 0) return user_value(parameter);
    for (const MaskScalar& scalar : mask_scalars(plan_.spec.mask)) {
      if (scalar.name == name) return mask_value(scalar);
    }
    return make_error(ErrorCode::kInternal, fmt::format("no value is known for '{}'", name), name);
  }

 private:
  Result<LaunchArgument> cap() const {
    const float cap =
        scalars_.cap != 0 ? scalars_.cap : static_cast<float>(plan_.spec.score_mod.cap);
    if (!(cap > 0) || !std::isfinite(cap)) {
      return invalid("cap",
                     fmt::format("softcap needs a positive, finite cap at launch, not {}", cap));
    }
    return LaunchArgument{cap};
  }

  Result<LaunchArgument> mask_value(const MaskScalar& scalar) const {
    const bool window = scalar.node->kind == MaskSpec::Kind::kSlidingWindow;
    const auto& more = window ? scalars_.more_windows : scalars_.more_chunks;
    const std::int32_t first = window ? scalars_.window : scalars_.chunk;
    const std::int32_t given =
        scalar.position == 0 ? first : more.at(static_cast<std::size_t>(scalar.position - 1));
    const std::int64_t value = given != 0 ? given : scalar.value;
    if (value < 1 || value > std::numeric_limits<std::int32_t>::max()) {
      return invalid(scalar.name,
                     fmt::format("{} must be given at launch, from 1 to {}; it is {}", scalar.name,
                                 std::numeric_limits<std::int32_t>::max(), value));
    }
    return LaunchArgument{static_cast<std::int32_t>(value)};
  }

  /// The parameter whose kernel arguments begin with `name`: itself, or its extents.
  Result<LaunchArgument> user_value(const KernelParameter& parameter) const {
    using Type = ParamSpec::Type;
    for (const ParamSpec& declared : user_parameters(plan_.spec)) {
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
        return invalid(own, fmt::format("the parameter p.{} was not given", declared.name));
      }
      if (array || matrix) {
        for (int i = 0; i < (matrix ? 2 : 1); ++i) {
          if (given->extent[static_cast<std::size_t>(i)] < 0) {
            return invalid(own, fmt::format("the extent of p.{} is negative", declared.name));
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
        return invalid(own, fmt::format("p.{} is an i32; a float was given", declared.name));
      }
      if (const auto* value = std::get_if<float>(&given->scalar)) return LaunchArgument{*value};
      return LaunchArgument{static_cast<float>(std::get<std::int32_t>(given->scalar))};
    }
    return make_error(ErrorCode::kInternal,
                      fmt::format("no value is known for '{}'", parameter.name), parameter.name);
  }

  const KernelPlan& plan_;
  const LaunchShapes& shapes_;
  const LaunchScalars& scalars_;
  const std::vector<ParamValue>& params_;
};

Status check_lengths(const LaunchShapes& shapes) {
  const struct {
    const char* name;
    std::int32_t value;
  } lengths[] = {{"batch", shapes.batch}, {"q_len", shapes.q_len}, {"kv_len", shapes.kv_len}};
  for (const auto& [name, value] : lengths) {
    if (value < 0 || value > kMaxLength) {
      return invalid(name, fmt::format("{} is {}; 0 to {} is allowed", name, value, kMaxLength));
    }
  }
  return {};
}

/// Whether all rows see about as many keys.
bool even_work(const MaskSpec& mask) {
  if (mask.kind == MaskSpec::Kind::kCausal) return false;
  return std::all_of(mask.of.begin(), mask.of.end(), even_work);
}

Result<LaunchRecipe> plan_sm90_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                      const LaunchScalars& scalars,
                                      const std::vector<ParamValue>& params,
                                      const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  const Sm90Plan& sm90 = *plan.sm90;
  const int element_bytes = size_of(spec.qkv_dtype);
  const Dtype output = spec.output_dtype.value_or(spec.qkv_dtype);

  LaunchRecipe recipe;
  recipe.entry = plan.entry;
  recipe.block = {static_cast<std::uint32_t>(plan.threads), 1, 1};
  recipe.cluster = {static_cast<std::uint32_t>(plan.cluster), 1, 1};
  recipe.dynamic_smem = static_cast<std::uint32_t>(plan.smem_bytes);
  if (shapes.batch == 0 || shapes.q_len == 0) {
    recipe.grid = {0, 0, 0};
    return recipe;
  }

  TensorShape q{"q", shapes.batch, shapes.q_len, spec.num_q_heads, spec.qk_depth, element_bytes,
                {}};
  TensorShape k{"k", shapes.batch, shapes.kv_len, spec.num_kv_heads(), spec.qk_depth, element_bytes,
                {}};
  TensorShape v{"v", shapes.batch, shapes.kv_len, spec.num_kv_heads(), spec.ov_depth, element_bytes,
                {}};
  TensorShape o{"o", shapes.batch, shapes.q_len, spec.num_q_heads, spec.ov_depth, size_of(output),
                {}};
  const struct {
    TensorShape& shape;
    const TensorStrides& given;
  } tensors[] = {{q, shapes.q}, {k, shapes.k}, {v, shapes.v}, {o, shapes.o}};
  for (const auto& [shape, given] : tensors) {
    shape.strides = packed_where_zero(shape, given);
    if (shape.rows == 0) continue;
    Status status = check_strides(shape);
    if (!status) return status.error();
  }
  recipe.tensor_maps.push_back(describe("q_map", q, spec.qkv_dtype, sm90.BM));
  if (shapes.kv_len > 0) {
    recipe.tensor_maps.push_back(describe("k_map", k, spec.qkv_dtype, sm90.BN));
    recipe.tensor_maps.push_back(describe("v_map", v, spec.qkv_dtype, sm90.BN));
  } else {
    // NOTE: a tensor map cannot be empty. Nothing is loaded through these two; they view Q, which
    // is there.
    for (const char* name : {"k_map", "v_map"}) {
      recipe.tensor_maps.push_back(describe(name, q, spec.qkv_dtype, sm90.BN));
    }
  }
  recipe.tensor_maps.push_back(describe("o_map", o, output, 64));

  Arguments arguments(plan, shapes, scalars, params);
  const std::int64_t m_tiles = (std::int64_t{shapes.q_len} + sm90.BM - 1) / sm90.BM;
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  if (m_tiles * spec.num_q_heads > kMaxTiles / shapes.batch) {
    return invalid("batch", fmt::format("batch {} x {} heads x {} query tiles exceed {}",
                                        shapes.batch, spec.num_q_heads, m_tiles, kMaxTiles));
  }
  arguments.m_tiles = static_cast<std::int32_t>(m_tiles);
  arguments.total_tiles = static_cast<std::int32_t>(m_tiles * spec.num_q_heads * shapes.batch);
  arguments.scale = scalars.scale != 0
                        ? scalars.scale
                        : static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.qk_depth)));
  if (!(arguments.scale > 0) || !std::isfinite(arguments.scale)) {
    return invalid("scale",
                   fmt::format("scale must be positive and finite, not {}", arguments.scale));
  }
  // A CTA takes every grid-th tile. Tiles of equal work are shared out evenly, one CTA an SM that
  // loads ahead over tile borders; of unequal ones the GPU gives out the next as an SM gets free.
  const std::int32_t ctas = even_work(spec.mask)
                                ? std::min(arguments.total_tiles, std::max(device.sm_count, 1))
                                : arguments.total_tiles;
  recipe.grid = {static_cast<std::uint32_t>(ctas), 1, 1};
  for (const KernelParameter& parameter : plan.parameters) {
    Result<LaunchArgument> value = arguments.value_of(parameter);
    if (!value) return value.error();
    recipe.args.push_back(*std::move(value));
  }
  return recipe;
}

}  // namespace

LaunchScalars launch_scalars(const AttentionSpec& spec) {
  LaunchScalars scalars;
  for (const MaskScalar& scalar : mask_scalars(spec.mask)) {
    if (scalar.value < 0 || scalar.value > std::numeric_limits<std::int32_t>::max()) continue;
    const bool window = scalar.node->kind == MaskSpec::Kind::kSlidingWindow;
    auto& more = window ? scalars.more_windows : scalars.more_chunks;
    const auto value = static_cast<std::int32_t>(scalar.value);
    if (scalar.position == 0) {
      (window ? scalars.window : scalars.chunk) = value;
    } else if (static_cast<std::size_t>(scalar.position) <= more.size()) {
      more[static_cast<std::size_t>(scalar.position - 1)] = value;
    }
  }
  if (spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap) {
    scalars.cap = static_cast<float>(spec.score_mod.cap);
  }
  return scalars;
}

Result<LaunchRecipe> plan_launch(const KernelPlan& plan, const LaunchShapes& shapes,
                                 const LaunchScalars& scalars,
                                 const std::vector<ParamValue>& params, const DeviceShape& device) {
  if (!plan.supported) {
    return make_error(ErrorCode::kUnsupported, plan.reason);
  }
  Status status = check_lengths(shapes);
  if (!status) return status.error();
  if (plan.spec.max_seq_len > 0 && shapes.kv_len > plan.spec.max_seq_len) {
    return invalid("kv_len", fmt::format("kv_len {} exceeds the plan's max_seq_len {}",
                                         shapes.kv_len, plan.spec.max_seq_len));
  }
  if (plan.smem_bytes > device.max_smem_bytes) {
    return make_error(
        ErrorCode::kUnsupported,
        fmt::format("the kernel needs {} bytes of shared memory a CTA; the device has {}",
                    plan.smem_bytes, device.max_smem_bytes));
  }
  if (plan.sm90 != nullptr) return plan_sm90_launch(plan, shapes, scalars, params, device);
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("no launch is known for {} plans yet", to_string(plan.spec.arch)));
}

}  // namespace attnjit

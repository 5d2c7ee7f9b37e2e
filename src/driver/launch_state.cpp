// SPDX-License-Identifier: Apache-2.0
// Builds the tensor maps and the packed arguments of a launch, and finds out what can be reused.
#include "driver/launch_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "driver/tensor_map.h"

namespace attnjit {
namespace {

/// Whether two parameters differ in nothing but an address.
bool same_but_address(const LaunchParam& a, const LaunchParam& b) {
  if (a.value.index() != b.value.index() || a.name != b.name) return false;
  const auto* x = std::get_if<DeviceArray>(&a.value);
  if (x == nullptr) return a.value == b.value;
  const auto& y = std::get<DeviceArray>(b.value);
  return x->dtype == y.dtype && x->extent == y.extent;
}

DevicePointer address_in(const LaunchParam& param) {
  const auto* array = std::get_if<DeviceArray>(&param.value);
  return array == nullptr ? 0 : array->pointer;
}

Error internal(std::string message) {
  return make_error(ErrorCode::kInternal, std::move(message), {}, "report this defect");
}

const char* kind_name(KernelParameter::Kind kind) {
  switch (kind) {
    case KernelParameter::Kind::kTensorMap:
      return "tensor map";
    case KernelParameter::Kind::kPointer:
      return "pointer";
    case KernelParameter::Kind::kI32:
      return "i32";
    case KernelParameter::Kind::kI64:
      return "i64";
    case KernelParameter::Kind::kF32:
      return "f32";
  }
  return "unknown";
}

bool fits(const LaunchArgument& argument, KernelParameter::Kind kind) {
  switch (kind) {
    case KernelParameter::Kind::kTensorMap:
      return std::holds_alternative<LaunchArgument::TensorMap>(argument.value);
    case KernelParameter::Kind::kPointer:
      return std::holds_alternative<LaunchArgument::Pointer>(argument.value);
    case KernelParameter::Kind::kI32:
      return std::holds_alternative<std::int32_t>(argument.value);
    case KernelParameter::Kind::kI64:
      return std::holds_alternative<std::int64_t>(argument.value);
    case KernelParameter::Kind::kF32:
      return std::holds_alternative<float>(argument.value);
  }
  return false;
}

}  // namespace

LaunchState::Impl::Change LaunchState::Impl::compare(const LaunchArgs& args, const void* owner,
                                                     std::uint64_t id) const {
  if (!valid || loaded.get() != owner || kernel_id != id || args.shapes != shapes ||
      args.scalars != scalars || args.params.size() != params.size()) {
    return Change::kPlan;
  }
  bool moved = args.buffers != buffers || args.workspace != workspace;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!same_but_address(args.params[i], params[i])) return Change::kPlan;
    moved = moved || address_in(args.params[i]) != address_in(params[i]);
  }
  return moved ? Change::kPointers : Change::kNone;
}

void LaunchState::Impl::remember(const LaunchArgs& args) {
  buffers = args.buffers;
  shapes = args.shapes;
  scalars = args.scalars;
  params = args.params;
  workspace = args.workspace;
}

Status LaunchState::Impl::check_workspace(const LaunchArgs& args) const {
  if (workspace_need.bytes == 0) return {};
  const auto bad = [&](std::string message) -> Status {
    return make_error(ErrorCode::kInvalid, std::move(message), "workspace",
                      "Kernel::workspace tells how much a launch needs");
  };
  if (args.workspace == 0) {
    return bad(fmt::format("is a null pointer; {} bytes are needed", workspace_need.bytes));
  }
  if (args.workspace % kWorkspaceAlignment != 0) {
    return bad(
        fmt::format("is at {:#x}, not a multiple of {}", args.workspace, kWorkspaceAlignment));
  }
  if (args.workspace_bytes < workspace_need.bytes) {
    return bad(
        fmt::format("has {} bytes; {} are needed", args.workspace_bytes, workspace_need.bytes));
  }
  return {};
}

Result<DevicePointer> LaunchState::Impl::map_address(const TensorMapDescription& map,
                                                     const BufferRef& buffer,
                                                     const LaunchArgs& args) const {
  const DevicePointer base = address_of(buffer, args);
  if (base == 0) {
    return make_error(ErrorCode::kInvalid, "is a null pointer; the kernel uses it", map.buffer);
  }
  const DevicePointer address = base + static_cast<DevicePointer>(map.offset);
  if (address % 16 != 0) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is at {:#x}, not a multiple of 16", address), map.buffer,
                      "TMA reads at multiples of 16 bytes");
  }
  return address;
}

Result<DevicePointer> LaunchState::Impl::pointer_value(const KernelPlan& plan,
                                                       const PointerSlot& slot,
                                                       const LaunchArgs& args) const {
  if (slot.buffer.kind == BufferRef::Kind::kNone) return DevicePointer{0};
  const auto& name = std::get<LaunchArgument::Pointer>(recipe.args[slot.argument].value).buffer;
  const DevicePointer base = address_of(slot.buffer, args);
  if (base == 0) {
    // An array parameter without elements has no address, and no index of it is inside.
    if (slot.buffer.kind == BufferRef::Kind::kParam) return DevicePointer{0};
    return make_error(ErrorCode::kInvalid, "is a null pointer; the kernel uses it", name);
  }
  const auto alignment = static_cast<DevicePointer>(alignment_of(name, plan));
  if (base % alignment != 0) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is at {:#x}, not a multiple of {}", base, alignment), name);
  }
  return base + static_cast<DevicePointer>(slot.offset);
}

Status LaunchState::Impl::build_maps(const LaunchArgs& args,
                                     const std::vector<TensorMapDescription>& old_maps,
                                     std::vector<Map> old) {
  maps.assign(recipe.tensor_maps.size(), Map{});
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const TensorMapDescription& description = recipe.tensor_maps[i];
    const auto buffer = find_buffer(description.buffer, args, recipe.workspaces);
    if (!buffer) {
      return internal(fmt::format("tensor map {} views an unknown buffer {}", description.name,
                                  description.buffer));
    }
    const auto address = map_address(description, *buffer, args);
    if (!address) return address.error();
    maps[i].buffer = *buffer;
    if (i < old.size() && old[i].address == *address && old_maps[i] == description) {
      maps[i].encoded = old[i].encoded;
      maps[i].address = *address;
      continue;
    }
    if (Status checked = check_tensor_map(description); !checked) return checked;
    Status encoded = encode_tensor_map(*loaded->api, description, *address, maps[i].encoded);
    if (!encoded) return encoded;
    maps[i].address = *address;  // only now: a map that failed must not be taken for this one
    ++counters.maps_encoded;
  }
  return {};
}

Status LaunchState::Impl::build_arguments(const KernelPlan& plan, const LaunchArgs& args) {
  const std::size_t count = recipe.args.size();
  if (count != plan.parameters.size()) {
    return internal(fmt::format("the recipe has {} arguments, the kernel {} parameters", count,
                                plan.parameters.size()));
  }
  pointers.clear();
  values.assign(count, 0);
  arguments.assign(count, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    LaunchArgument& argument = recipe.args[i];
    const KernelParameter& parameter = plan.parameters[i];
    if (!fits(argument, parameter.kind)) {
      return internal(
          fmt::format("argument {} ({}) is no {}", i, parameter.name, kind_name(parameter.kind)));
    }
    arguments[i] = &values[i];
    if (const auto* integer = std::get_if<std::int32_t>(&argument.value)) {
      // NOTE: little-endian: the kernel reads the first four bytes.
      values[i] = static_cast<std::uint32_t>(*integer);
    } else if (const auto* wide = std::get_if<std::int64_t>(&argument.value)) {
      values[i] = static_cast<std::uint64_t>(*wide);
    } else if (const auto* real = std::get_if<float>(&argument.value)) {
      values[i] = std::bit_cast<std::uint32_t>(*real);
    } else if (const auto* map = std::get_if<LaunchArgument::TensorMap>(&argument.value)) {
      const auto found = std::find_if(
          recipe.tensor_maps.begin(), recipe.tensor_maps.end(),
          [&](const TensorMapDescription& description) { return description.name == map->name; });
      if (found == recipe.tensor_maps.end()) {
        return internal(fmt::format("argument {} ({}) names an unknown tensor map {}", i,
                                    parameter.name, map->name));
      }
      arguments[i] = &maps[static_cast<std::size_t>(found - recipe.tensor_maps.begin())].encoded;
    } else if (const auto* pointer = std::get_if<LaunchArgument::Pointer>(&argument.value)) {
      PointerSlot slot;
      slot.argument = i;
      slot.offset = pointer->offset;
      if (!pointer->buffer.empty()) {
        const auto buffer = find_buffer(pointer->buffer, args, recipe.workspaces);
        if (!buffer) {
          return internal(fmt::format("argument {} ({}) points at an unknown buffer {}", i,
                                      parameter.name, pointer->buffer));
        }
        slot.buffer = *buffer;
      }
      const auto value = pointer_value(plan, slot, args);
      if (!value) return value.error();
      values[i] = *value;
      pointers.push_back(slot);
    }
  }
  return {};
}

Status LaunchState::Impl::build_config(const KernelPlan& plan) {
  constexpr std::uint32_t kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535;
  if (recipe.grid[0] > kMaxGridX || recipe.grid[1] > kMaxGridYZ || recipe.grid[2] > kMaxGridYZ) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("the grid {}x{}x{} exceeds {}x{}x{}", recipe.grid[0], recipe.grid[1],
                    recipe.grid[2], kMaxGridX, kMaxGridYZ, kMaxGridYZ),
        "shapes", "split the batch over several launches");
  }
  if (recipe.dynamic_smem > plan.smem_bytes) {
    return internal(fmt::format("the recipe asks for {} bytes of shared memory, the plan for {}",
                                recipe.dynamic_smem, plan.smem_bytes));
  }
  config = {};
  config.grid_x = recipe.grid[0];
  config.grid_y = recipe.grid[1];
  config.grid_z = recipe.grid[2];
  config.block_x = recipe.block[0];
  config.block_y = recipe.block[1];
  config.block_z = recipe.block[2];
  config.dynamic_smem = recipe.dynamic_smem;
  if (recipe.cluster != std::array<std::uint32_t, 3>{1, 1, 1}) {
    cluster = {};
    cluster.id = cuda::kLaunchAttributeClusterDimension;
    cluster.value.cluster.x = recipe.cluster[0];
    cluster.value.cluster.y = recipe.cluster[1];
    cluster.value.cluster.z = recipe.cluster[2];
    config.attributes = &cluster;
    config.num_attributes = 1;
  }
  return {};
}

Status LaunchState::Impl::build(const KernelPlan& plan, const LaunchArgs& args,
                                LaunchRecipe new_recipe) {
  const std::vector<TensorMapDescription> old_maps = std::move(recipe.tensor_maps);
  std::vector<Map> old = std::move(maps);
  recipe = std::move(new_recipe);
  maps.clear();
  ++counters.plans;
  empty = recipe.grid[0] == 0 || recipe.grid[1] == 0 || recipe.grid[2] == 0;
  if (empty) {
    workspace_need = {};
    pointers.clear();
    return {};
  }
  auto need = total_workspace(recipe.workspaces);
  if (!need) return std::move(need).error();
  workspace_need = *need;
  if (Status checked = check_workspace(args); !checked) return checked;
  if (Status built = build_maps(args, old_maps, std::move(old)); !built) return built;
  if (Status built = build_arguments(plan, args); !built) return built;
  return build_config(plan);
}

Status LaunchState::Impl::move_pointers(const KernelPlan& plan, const LaunchArgs& args) {
  if (empty) return {};
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const auto address = map_address(recipe.tensor_maps[i], maps[i].buffer, args);
    if (!address) return address.error();
    if (*address == maps[i].address) continue;
    const cuda::Result code =
        loaded->api->TensorMapReplaceAddress(&maps[i].encoded, std::bit_cast<void*>(*address));
    if (code != cuda::kSuccess) {
      return cuda_error(*loaded->api, code,
                        fmt::format("cuTensorMapReplaceAddress({})", recipe.tensor_maps[i].name));
    }
    maps[i].address = *address;
    ++counters.maps_moved;
  }
  for (const PointerSlot& slot : pointers) {
    const auto value = pointer_value(plan, slot, args);
    if (!value) return value.error();
    values[slot.argument] = *value;
  }
  return {};
}

LaunchState::LaunchState() : impl_(std::make_unique<Impl>()) {}
LaunchState::~LaunchState() = default;
LaunchState::LaunchState(LaunchState&& other) noexcept = default;
LaunchState& LaunchState::operator=(LaunchState&& other) noexcept = default;

const LaunchState::Counters& LaunchState::counters() const { return impl_->counters; }

const LaunchRecipe* LaunchState::recipe() const { return impl_->valid ? &impl_->recipe : nullptr; }

void LaunchState::reset() {
  const Counters counters = impl_->counters;
  *impl_ = Impl{};
  impl_->counters = counters;
}

}  // namespace attnjit

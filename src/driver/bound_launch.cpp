// SPDX-License-Identifier: Apache-2.0
// BoundLaunch: one launch of a sequence, with its maps encoded and its arguments packed.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>

#include "driver/launch_state.h"
#include "driver/tensor_map.h"
#include "plan/kernel/signature.h"

namespace attnjit {
namespace {

Error internal(std::string message) {
  return make_error(ErrorCode::kInternal, std::move(message), {}, "report this defect");
}

bool fits(const KernelArgument& argument, KernelParameter::Kind kind) {
  switch (kind) {
    case KernelParameter::Kind::kTensorMap:
      return std::holds_alternative<KernelArgument::TensorMap>(argument.value);
    case KernelParameter::Kind::kPointer:
      return std::holds_alternative<KernelArgument::Pointer>(argument.value);
    case KernelParameter::Kind::kI32:
      return std::holds_alternative<std::int32_t>(argument.value);
    case KernelParameter::Kind::kI64:
      return std::holds_alternative<std::int64_t>(argument.value);
    case KernelParameter::Kind::kF32:
      return std::holds_alternative<float>(argument.value);
    case KernelParameter::Kind::kStruct:
      return std::holds_alternative<KernelArgument::Bytes>(argument.value);
  }
  return false;
}

Error null_pointer(const std::string& name) {
  return make_error(ErrorCode::kInvalid, "is a null pointer; the kernel uses it", name);
}

Result<DevicePointer> map_address(const TensorMapDescription& map, const BufferRef& buffer,
                                  const LaunchArgs& args) {
  const DevicePointer base = address_of(buffer, args);
  if (base == 0) return null_pointer(map.buffer);
  const DevicePointer address = base + static_cast<DevicePointer>(map.offset);
  if (address % 16 != 0) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is at {:#x}, not a multiple of 16", address), map.buffer,
                      "TMA reads at multiples of 16 bytes");
  }
  return address;
}

Result<DevicePointer> pointer_value(const LaunchRecipe& recipe,
                                    const BoundLaunch::PointerSlot& slot, const LaunchArgs& args) {
  if (slot.buffer.id.kind == BufferId::Kind::kNone) return DevicePointer{0};
  const auto name = [&]() -> const std::string& {
    return std::get<KernelArgument::Pointer>(recipe.args[slot.argument].value).buffer;
  };
  const DevicePointer base = address_of(slot.buffer, args);
  if (base == 0) {
    // An array parameter without elements has no address, and no index of it is inside. A workspace
    // is missing only where it is optional.
    if (slot.buffer.id.kind == BufferId::Kind::kParam ||
        slot.buffer.id.kind == BufferId::Kind::kWorkspace) {
      return DevicePointer{0};
    }
    return null_pointer(name());
  }
  // NOTE: of powers of two; a division took as long as all the rest.
  if ((base & static_cast<DevicePointer>(slot.buffer.alignment - 1)) != 0) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is at {:#x}, not a multiple of {}", base, slot.buffer.alignment),
                      name());
  }
  return base + static_cast<DevicePointer>(slot.offset);
}

/// Whether two descriptions are encoded alike, but for the address.
bool same_map(const TensorMapDescription& a, const TensorMapDescription& b) {
  return a.dims == b.dims && a.strides == b.strides && a.dtype == b.dtype && a.box == b.box &&
         a.element_strides == b.element_strides && a.swizzle == b.swizzle &&
         a.l2_bytes == b.l2_bytes && a.oob == b.oob;
}

Status move_map(const CudaApi& api, const std::string& name, DevicePointer address,
                BoundLaunch::Map& map, LaunchState::Counters& counters) {
  if (address == map.address) return {};
  const cuda::Result code =
      api.TensorMapReplaceAddress(&map.encoded, std::bit_cast<void*>(address));
  if (code != cuda::kSuccess) {
    return cuda_error(api, code, fmt::format("cuTensorMapReplaceAddress({})", name));
  }
  map.address = address;
  ++counters.maps_moved;
  return {};
}

}  // namespace

Status BoundLaunch::bind(const CudaApi& api, const KernelPlan& plan, bool first,
                         const LaunchRecipe& recipe, const std::vector<Workspace>& workspaces,
                         const LaunchArgs& args, LaunchState::Counters& counters) {
  if (recipe.kernel >= plan.kernels.size()) {
    return internal(fmt::format("the recipe launches kernel {} of {}, which the plan lacks",
                                recipe.kernel, plan.kernels.size()));
  }
  const PlannedKernel& kernel = plan.kernels[recipe.kernel];
  rank = recipe.kernel;
  maps.resize(recipe.tensor_maps.size());
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const TensorMapDescription& description = recipe.tensor_maps[i];
    if (maps[i].buffer.id != description.id || maps[i].buffer.field == nullptr) {
      const auto buffer = find_buffer(description.id, plan, args, workspaces);
      if (!buffer) return buffer.error();
      maps[i].buffer = *buffer;
    }
    if (Status bound = bind_map(api, description, args, maps[i], counters); !bound) return bound;
  }
  if (Status bound = bind_arguments(plan, kernel, recipe, workspaces, args); !bound) return bound;
  return fill_config(kernel, recipe, kernel.overlaps && (!first || args.overlap));
}

Status BoundLaunch::bind_map(const CudaApi& api, const TensorMapDescription& description,
                             const LaunchArgs& args, Map& map,
                             LaunchState::Counters& counters) const {
  const auto address = map_address(description, map.buffer, args);
  if (!address) return address.error();
  if (map.address != 0 && same_map(map.description, description)) {
    return move_map(api, description.name, *address, map, counters);
  }
  if (Status checked = check_tensor_map(description); !checked) return checked;
  map.address = 0;  // until it is encoded: a map that failed must not be taken for this one
  map.description = description;
  Status encoded = encode_tensor_map(api, description, *address, map.encoded);
  if (!encoded) return encoded;
  map.address = *address;
  ++counters.maps_encoded;
  return {};
}

Status BoundLaunch::bind_arguments(const KernelPlan& plan, const PlannedKernel& kernel,
                                   const LaunchRecipe& recipe,
                                   const std::vector<Workspace>& workspaces,
                                   const LaunchArgs& args) {
  const std::size_t count = recipe.args.size();
  if (count != kernel.parameters.size()) {
    return internal(fmt::format("the recipe has {} arguments, the kernel {} parameters", count,
                                kernel.parameters.size()));
  }
  values.assign(count, 0);
  arguments.assign(count, nullptr);
  std::size_t num_pointers = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const KernelArgument& argument = recipe.args[i];
    const KernelParameter& parameter = kernel.parameters[i];
    if (!fits(argument, parameter.kind)) {
      return internal(
          fmt::format("argument {} ({}) is no {}", i, parameter.name, to_string(parameter.kind)));
    }
    arguments[i] = &values[i];
    if (const auto* integer = std::get_if<std::int32_t>(&argument.value)) {
      // NOTE: little-endian: the kernel reads the first four bytes.
      values[i] = static_cast<std::uint32_t>(*integer);
    } else if (const auto* wide = std::get_if<std::int64_t>(&argument.value)) {
      values[i] = static_cast<std::uint64_t>(*wide);
    } else if (const auto* real = std::get_if<float>(&argument.value)) {
      values[i] = std::bit_cast<std::uint32_t>(*real);
    } else if (const auto* map = std::get_if<KernelArgument::TensorMap>(&argument.value)) {
      if (map->index >= maps.size()) {
        return internal(fmt::format("argument {} ({}) names an unknown tensor map {}", i,
                                    parameter.name, map->name));
      }
      arguments[i] = &maps[map->index].encoded;
    } else if (const auto* bytes = std::get_if<KernelArgument::Bytes>(&argument.value)) {
      // NOTE: the recipe outlives the launches, and the driver only reads.
      arguments[i] = const_cast<std::uint8_t*>(bytes->data.data());
    } else if (const auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value)) {
      if (num_pointers == pointers.size()) pointers.emplace_back();
      PointerSlot& slot = pointers[num_pointers++];
      slot.argument = i;
      slot.offset = pointer->offset;
      if (pointer->buffer.empty()) {
        slot.buffer = {};
      } else if (slot.buffer.id != pointer->id || slot.buffer.field == nullptr) {
        const auto buffer = find_buffer(pointer->id, plan, args, workspaces);
        if (!buffer) return buffer.error();
        slot.buffer = *buffer;
      }
      const auto value = pointer_value(recipe, slot, args);
      if (!value) return value.error();
      values[i] = *value;
    }
  }
  pointers.resize(num_pointers);
  return {};
}

Status BoundLaunch::fill_config(const PlannedKernel& kernel, const LaunchRecipe& recipe,
                                bool overlap) {
  constexpr std::uint32_t kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535;
  if (recipe.grid[0] > kMaxGridX || recipe.grid[1] > kMaxGridYZ || recipe.grid[2] > kMaxGridYZ) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("the grid {}x{}x{} exceeds {}x{}x{}", recipe.grid[0], recipe.grid[1],
                    recipe.grid[2], kMaxGridX, kMaxGridYZ, kMaxGridYZ),
        "shapes", "split the batch over several launches");
  }
  if (recipe.dynamic_smem > kernel.smem_bytes) {
    return internal(fmt::format("the recipe asks for {} bytes of shared memory, the plan for {}",
                                recipe.dynamic_smem, kernel.smem_bytes));
  }
  config.grid_x = recipe.grid[0];
  config.grid_y = recipe.grid[1];
  config.grid_z = recipe.grid[2];
  config.block_x = recipe.block[0];
  config.block_y = recipe.block[1];
  config.block_z = recipe.block[2];
  config.dynamic_smem = recipe.dynamic_smem;
  config.num_attributes = 0;
  if (recipe.cluster != std::array<std::uint32_t, 3>{1, 1, 1}) {
    cuda::LaunchAttribute& cluster = attributes.at(config.num_attributes++);
    cluster.id = cuda::kLaunchAttributeClusterDimension;
    cluster.value.cluster.x = recipe.cluster[0];
    cluster.value.cluster.y = recipe.cluster[1];
    cluster.value.cluster.z = recipe.cluster[2];
  }
  if (overlap) {
    cuda::LaunchAttribute& early = attributes.at(config.num_attributes++);
    early.id = cuda::kLaunchAttributeProgrammaticStreamSerialization;
    early.value.programmatic_stream_serialization_allowed = 1;
  }
  config.attributes = config.num_attributes > 0 ? attributes.data() : nullptr;
  return {};
}

Status BoundLaunch::move_pointers(const CudaApi& api, const LaunchRecipe& recipe,
                                  const LaunchArgs& args, LaunchState::Counters& counters) {
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const auto address = map_address(recipe.tensor_maps[i], maps[i].buffer, args);
    if (!address) return address.error();
    Status moved = move_map(api, recipe.tensor_maps[i].name, *address, maps[i], counters);
    if (!moved) return moved;
  }
  for (const PointerSlot& slot : pointers) {
    const auto value = pointer_value(recipe, slot, args);
    if (!value) return value.error();
    values[slot.argument] = *value;
  }
  return {};
}

}  // namespace attnjit

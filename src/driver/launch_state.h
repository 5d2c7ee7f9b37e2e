// SPDX-License-Identifier: Apache-2.0
// LaunchState::Impl: recipe, encoded tensor maps and packed arguments of the last launch.
//
// Thread rules: one thread at a time, as LaunchState.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/driver.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"
#include "driver/launch_args.h"

namespace attnjit {

struct LaunchState::Impl {
  enum class Change : std::uint8_t {
    kNone,
    kPointers,  ///< addresses only: the recipe stays
    kPlan,      ///< anything else
  };

  /// What differs between these arguments and the last launch's.
  Change compare(const LaunchArgs& args, const void* owner, std::uint64_t kernel_id) const;

  /// Makes everything anew. Maps whose description and address stayed are kept.
  /// @pre check_params and check_shapes passed.
  Status build(const KernelPlan& plan, const LaunchArgs& args, LaunchRecipe new_recipe);

  /// Points maps and arguments at the new addresses.
  Status move_pointers(const KernelPlan& plan, const LaunchArgs& args);

  /// The arguments' workspace is there, aligned and large enough.
  Status check_workspace(const LaunchArgs& args) const;

  void remember(const LaunchArgs& args);

  Counters counters;
  bool valid = false;  // everything below describes the last launch
  bool empty = false;  // the grid is: nothing is to be launched

  // NOTE: keeps the library, so that its address is not used again for another one.
  std::shared_ptr<Kernel::Library> loaded;
  std::uint64_t kernel_id = 0;
  unsigned long long context_id = 0;
  DeviceShape device;

  LaunchBuffers buffers;
  LaunchShapes shapes;
  LaunchScalars scalars;
  std::vector<LaunchParam> params;
  DevicePointer workspace = 0;

  LaunchRecipe recipe;
  WorkspaceNeed workspace_need;

  struct Map {
    cuda::TensorMap encoded{};
    BufferRef buffer;
    DevicePointer address = 0;
  };
  std::vector<Map> maps;  // as recipe.tensor_maps

  struct PointerSlot {
    std::size_t argument = 0;
    BufferRef buffer;
    std::int64_t offset = 0;
  };
  std::vector<PointerSlot> pointers;
  std::vector<std::uint64_t> values;  // of the arguments that are no tensor map and no bytes
  std::vector<void*> arguments;       // what cuLaunchKernelEx takes

  cuda::LaunchConfig config{};
  cuda::LaunchAttribute cluster{};

 private:
  Result<DevicePointer> map_address(const TensorMapDescription& map, const BufferRef& buffer,
                                    const LaunchArgs& args) const;
  Result<DevicePointer> pointer_value(const KernelPlan& plan, const PointerSlot& slot,
                                      const LaunchArgs& args) const;
  Status build_maps(const LaunchArgs& args, const std::vector<TensorMapDescription>& old_maps,
                    std::vector<Map> old);
  Status build_arguments(const KernelPlan& plan, const LaunchArgs& args);
  Status build_config(const KernelPlan& plan);
};

}  // namespace attnjit

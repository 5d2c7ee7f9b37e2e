// SPDX-License-Identifier: Apache-2.0
// LaunchState::Impl: recipes, encoded tensor maps and packed arguments of the last call.
//
// Thread rules: one thread at a time, as LaunchState.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/driver.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"
#include "driver/launch_args.h"

namespace attnjit {

/// One launch of a sequence, bound to a call's buffers: what cuLaunchKernelEx takes.
/// NOTE: `arguments` and `config` point into the object, which must not move once it is built.
struct BoundLaunch {
  /// Makes everything anew, of the first launch of a sequence or of another. A map of `old` whose
  /// description and address stayed is kept.
  Status build(const CudaApi& api, const KernelPlan& plan, bool first, const LaunchRecipe& recipe,
               const std::vector<Workspace>& workspaces, const LaunchArgs& args,
               const BoundLaunch* old, const LaunchRecipe* old_recipe,
               LaunchState::Counters& counters);

  /// Points maps and arguments at the new addresses.
  Status move_pointers(const CudaApi& api, const LaunchRecipe& recipe, const LaunchArgs& args,
                       LaunchState::Counters& counters);

  std::size_t rank = 0;  // of its kernel among the plan's

  struct Map {
    cuda::TensorMap encoded{};
    BufferRef buffer;
    DevicePointer address = 0;
  };
  std::vector<Map> maps;  // as LaunchRecipe::tensor_maps

  struct PointerSlot {
    std::size_t argument = 0;
    BufferRef buffer;
    std::int64_t offset = 0;
  };
  std::vector<PointerSlot> pointers;
  std::vector<std::uint64_t> values;  // of the arguments that are no tensor map and no bytes
  std::vector<void*> arguments;       // what cuLaunchKernelEx takes

  cuda::LaunchConfig config{};
  std::array<cuda::LaunchAttribute, 2> attributes{};  // config counts those in use

 private:
  Status build_arguments(const KernelPlan& plan, const PlannedKernel& kernel,
                         const LaunchRecipe& recipe, const std::vector<Workspace>& workspaces,
                         const LaunchArgs& args);
  Status build_config(const PlannedKernel& kernel, const LaunchRecipe& recipe, bool overlap);
};

struct LaunchState::Impl {
  enum class Change : std::uint8_t {
    kNone,
    kPointers,  ///< addresses only: the recipe stays
    kPlan,      ///< anything else
  };

  /// What differs between these arguments and the last launch's.
  Change compare(const LaunchArgs& args, const void* owner, std::uint64_t kernel_id) const;

  /// Makes everything anew. Maps whose description and address stayed are kept.
  /// @pre check_params passed.
  Status build(const KernelPlan& plan, const LaunchArgs& args, LaunchSequence new_sequence);

  /// Points maps and arguments at the new addresses.
  Status move_pointers(const LaunchArgs& args);

  /// The arguments' workspace is there, aligned and large enough.
  Status check_workspace(const LaunchArgs& args) const;

  void remember(const LaunchArgs& args);

  Counters counters;
  bool valid = false;  // everything below describes the last launch

  // NOTE: keeps the library, so that its address is not used again for another one.
  std::shared_ptr<Kernel::Library> loaded;
  std::uint64_t kernel_id = 0;
  unsigned long long context_id = 0;
  DeviceShape device;

  LaunchBuffers buffers;
  LaunchShapes shapes;
  LaunchScalars scalars;
  std::vector<UserParam> params;
  DevicePointer workspace = 0;
  bool overlap = false;

  LaunchSequence sequence;
  WorkspaceNeed workspace_need;
  std::vector<std::unique_ptr<BoundLaunch>> launches;  // as sequence.launches
};

}  // namespace attnjit

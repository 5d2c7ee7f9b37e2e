// SPDX-License-Identifier: Apache-2.0
// LaunchState::Impl: recipes, encoded tensor maps and packed arguments of the last calls.
//
// Thread rules: one thread at a time, as LaunchState.
#pragma once

#include <array>
#include <cstddef>
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
/// NOTE: `arguments` and `config` point into the object, which must not move once it is bound.
struct BoundLaunch {
  /// Binds the first launch of a sequence, or another. A map whose description stayed since the
  /// object was bound before is not encoded again.
  Status bind(const CudaApi& api, const KernelPlan& plan, bool first, const LaunchRecipe& recipe,
              const std::vector<Workspace>& workspaces, const LaunchArgs& args,
              LaunchState::Counters& counters);

  /// Points maps and arguments at the new addresses.
  Status move_pointers(const CudaApi& api, const LaunchRecipe& recipe, const LaunchArgs& args,
                       LaunchState::Counters& counters);

  std::size_t rank = 0;  // of its kernel among the plan's

  struct Map {
    cuda::TensorMap encoded{};
    TensorMapDescription description;  // that was encoded
    BufferRef buffer;
    DevicePointer address = 0;  // 0: nothing was encoded
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
  Status bind_map(const CudaApi& api, const TensorMapDescription& description,
                  const LaunchArgs& args, Map& map, LaunchState::Counters& counters) const;
  Status bind_arguments(const KernelPlan& plan, const PlannedKernel& kernel,
                        const LaunchRecipe& recipe, const std::vector<Workspace>& workspaces,
                        const LaunchArgs& args);
  Status fill_config(const PlannedKernel& kernel, const LaunchRecipe& recipe, bool overlap);
};

/// The kernel of a call, and the context that it is launched in.
struct LaunchOwner {
  const Kernel::Library* library = nullptr;
  std::uint64_t kernel_id = 0;
  unsigned long long context_id = 0;
  bool operator==(const LaunchOwner&) const = default;
  bool same_kernel(const LaunchOwner& other) const {
    return library == other.library && kernel_id == other.kernel_id;
  }
};

/// A call, planned and bound.
struct BoundCall {
  /// Whether it differs from a call with these arguments in nothing but addresses.
  bool serves(const LaunchArgs& args) const;
  /// Whether all addresses are these.
  /// @pre serves(args).
  bool is_at(const LaunchArgs& args) const;

  /// Binds the launches of `sequence` to these arguments.
  Status bind(const KernelPlan& plan, const LaunchArgs& args, LaunchState::Counters& counters);

  /// Points maps and arguments at the new addresses.
  Status move_pointers(const LaunchArgs& args, LaunchState::Counters& counters);

  /// The arguments' workspace is there, aligned and large enough.
  Status check_workspace(const LaunchArgs& args) const;

  void remember(const LaunchArgs& args);

  bool valid = false;  // everything below describes a call that can be launched
  LaunchOwner owner;
  // NOTE: keeps the library, so that its address is not used again for another one.
  std::shared_ptr<Kernel::Library> loaded;
  DeviceShape device;

  LaunchBuffers buffers;
  LaunchShapes shapes;
  LaunchScalars scalars;
  std::vector<UserParam> params;
  std::vector<UserParamShape> param_shapes;
  DevicePointer workspace = 0;
  bool overlap = false;

  LaunchSequence sequence;
  WorkspaceNeed workspace_need;
  std::vector<std::unique_ptr<BoundLaunch>> launches;  // as sequence.launches
};

struct LaunchState::Impl {
  /// Calls that are remembered: a batch's lengths come again with its next layer, and those of
  /// prompts and decodes by turns.
  static constexpr std::size_t kMostCalls = 8;

  /// The call that serves these arguments, which becomes the first; null: there is none.
  BoundCall* find(const LaunchOwner& owner, const LaunchArgs& args);

  /// A call to plan again, which becomes the first: one that failed, a new one, or the one that was
  /// not launched for the longest time. It is another's of the same kernel, whose memory and maps
  /// are used again, or empty.
  BoundCall& next(const LaunchOwner& owner);

  /// What is known of the device of a context that the library was launched in; null: nothing.
  const DeviceShape* device_of(const LaunchOwner& owner) const;

  Counters counters;
  std::vector<std::unique_ptr<BoundCall>> calls;  // the last one first
};

}  // namespace attnjit

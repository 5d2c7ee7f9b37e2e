// SPDX-License-Identifier: Apache-2.0
// Kernel::Library: a loaded image and its entries' handles, shared by the Kernels of one key, with
// the contexts that it was loaded into.
//
// Thread rules: any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/driver.h"
#include "driver/cuda_api.h"
#include "plan/plan_launch.h"

namespace attnjit {

/// plan_launch_into's type: a seam for tests of what the driver does with any recipe.
using LaunchPlanner = Status (*)(const KernelPlan&, const LaunchShapes&, const LaunchScalars&,
                                 const std::vector<UserParamShape>&, const DeviceShape&,
                                 LaunchSequence&);

/// A context that the kernel is loaded into. Ids are never used twice, unlike context handles.
struct ReadyContext {
  unsigned long long id = 0;
  DeviceShape device;
};

struct Kernel::Library {
  Library(std::shared_ptr<const CudaApi> cuda_api, std::shared_ptr<const KernelImage> kernel_image);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// What a context is ready with, if it is. Does not touch the driver.
  std::optional<ReadyContext> find_ready(unsigned long long context_id) const;

  /// The stream's context (null: the current one) and its id.
  struct ContextOfStream {
    cuda::Context context = nullptr;
    unsigned long long id = 0;
  };
  Result<ContextOfStream> context_of(void* stream) const;

  /// Loads into the context if need be, unless the stream is capturing; see Kernel::prepare.
  Result<ReadyContext> make_ready(const KernelPlan& plan, const ContextOfStream& where,
                                  void* stream);
  /// The same for a caller that knows that nothing of its own is capturing.
  Result<ReadyContext> load_into(const KernelPlan& plan, const ContextOfStream& where);

  bool forked() const;

  const std::shared_ptr<const CudaApi> api;
  const std::shared_ptr<const KernelImage> image;
  const pid_t pid;
  cuda::Library library = nullptr;
  std::vector<cuda::KernelHandle> kernels;  // as KernelPlan::kernels
  LaunchPlanner planner = &plan_launch_into;
  const Nvtx* nvtx = nullptr;  // launches are ranges of it; null: of none
  std::atomic<std::uint64_t> next_kernel_id{1};

 private:
  Result<ReadyContext> load_into_current(const KernelPlan& plan, unsigned long long id);
  Status load_kernel(const PlannedKernel& planned, cuda::KernelHandle kernel, Arch arch,
                     cuda::Device device, const DeviceShape& shape) const;

  std::mutex load_mutex_;           // held while the driver loads
  mutable std::mutex ready_mutex_;  // guards ready_; held for a look-up only
  std::vector<ReadyContext> ready_;
};

/// A test's and a benchmark's way into a Kernel and a LaunchState.
struct KernelAccess {
  /// A kernel of a library that was made without Driver::load.
  static std::unique_ptr<Kernel> make(std::shared_ptr<Kernel::Library> library, KernelPlan plan) {
    return std::unique_ptr<Kernel>(new Kernel(std::move(library), std::move(plan)));
  }
  static Kernel::Library& library(const Kernel& kernel) { return *kernel.loaded_; }
  static LaunchState::Impl& state(LaunchState& state) { return *state.impl_; }
};

/// Whether work on the stream now is captured, or would break a capture.
Result<bool> stream_is_capturing(const CudaApi& api, void* stream);

/// The error for an image that a device refused: says which architecture each has.
Error load_error(const CudaApi& api, cuda::Result code, std::string_view what, Arch arch);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Implements the tuning rig that is a GPU.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "tune/rig.h"
#include "verify/gpu_device.h"
#include "verify/gpu_timer.h"

namespace attnjit::tune {
namespace {

class GpuRig final : public TuningRig {
 public:
  GpuRig(verify::GpuChoice gpu, std::unique_ptr<verify::Backend> backend)
      : gpu_(std::move(gpu)), backend_(std::move(backend)) {}

  RigDevice device() const override {
    const DeviceProperties& properties = gpu_.device.properties();
    const int version = gpu_.driver->version();
    return {properties.name, fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10),
            properties.sm_count};
  }

  Status load(std::size_t variant, const KernelPlan& plan,
              const std::shared_ptr<const KernelImage>& image) override {
    Result<std::unique_ptr<Kernel>> kernel = gpu_.driver->load(image, plan);
    if (!kernel) return std::move(kernel).error();
    Loaded& loaded = loaded_[variant];
    loaded.image = image;
    loaded.kernel = std::move(*kernel);
    return {};
  }

  Result<verify::BackendRun> run(std::size_t variant, const verify::Problem& problem) override {
    const Loaded& loaded = loaded_.at(variant);
    return backend_->run(loaded.kernel->plan(), loaded.image, problem);
  }

  Status use(const verify::Problem& problem) override {
    timer_.reset();
    for (auto& [variant, loaded] : loaded_) loaded.states.clear();
    Result<verify::GpuTimer> timer = verify::GpuTimer::make(gpu_.device, problem);
    if (!timer) return std::move(timer).error();
    timer_.emplace(std::move(*timer));
    return {};
  }

  Result<double> time(std::size_t variant, int launches) override {
    Loaded& loaded = loaded_.at(variant);
    return timer_->time(*loaded.kernel, loaded.states, launches);
  }

 private:
  struct Loaded {
    std::shared_ptr<const KernelImage> image;
    std::unique_ptr<Kernel> kernel;
    verify::GpuTimer::States states;
  };

  // NOTE: in this order: buffers and kernels go before the device.
  verify::GpuChoice gpu_;
  std::unique_ptr<verify::Backend> backend_;
  std::map<std::size_t, Loaded> loaded_;
  std::optional<verify::GpuTimer> timer_;
};

}  // namespace

Result<std::unique_ptr<TuningRig>> make_gpu_rig(Arch arch, const DriverOptions& options) {
  Result<verify::GpuChoice> gpu = verify::open_gpu(arch, options);
  if (!gpu) return std::move(gpu).error();
  Result<std::unique_ptr<verify::Backend>> backend = verify::make_gpu_backend(arch, options);
  if (!backend) return std::move(backend).error();
  return std::unique_ptr<TuningRig>(std::make_unique<GpuRig>(std::move(*gpu), std::move(*backend)));
}

}  // namespace attnjit::tune

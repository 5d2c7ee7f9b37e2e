// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on a Problem's inputs on the GPU, with the driver room's Device and Kernel.
#include <fmt/format.h>

#include <utility>

#include "verify/backend.h"
#include "verify/gpu_device.h"
#include "verify/gpu_problem.h"

namespace attnjit::verify {
namespace {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(GpuChoice gpu) : gpu_(std::move(gpu)) {}

  std::string name() const override { return "gpu"; }
  std::string device() const override { return gpu_.device.properties().name; }

  Result<BackendRun> run(const KernelPlan& plan, const std::shared_ptr<const KernelImage>& image,
                         const Problem& problem) override {
    const Device& device = gpu_.device;
    if (Status status = device.make_current(); !status) return std::move(status).error();
    Result<std::unique_ptr<Kernel>> kernel = gpu_.driver->load(image, plan);
    if (!kernel) return std::move(kernel).error();
    Result<DeviceStream> stream = device.create_stream();
    if (!stream) return std::move(stream).error();
    Result<GpuProblem> gpu = GpuProblem::upload(device, problem, stream->stream());
    if (!gpu) return std::move(gpu).error();
    if (Status status = gpu->prepare(device, **kernel, problem.seed); !status) {
      return std::move(status).error();
    }

    Result<DeviceEvent> begin = device.create_event();
    if (!begin) return std::move(begin).error();
    Result<DeviceEvent> end = device.create_event();
    if (!end) return std::move(end).error();
    LaunchState state;
    if (Status s = device.record(*begin, stream->stream()); !s) return std::move(s).error();
    if (Status s = (*kernel)->launch(gpu->args(), state); !s) return std::move(s).error();
    if (Status s = device.record(*end, stream->stream()); !s) return std::move(s).error();
    if (Status s = device.synchronize(stream->stream()); !s) {
      Error error = std::move(s).error();
      if (const std::string waits = gpu->unended_waits(plan); !waits.empty()) {
        error.message += "; waits that did not end:\n" + waits;
      }
      return error;
    }

    BackendRun run;
    if (Status s = gpu->download(device, problem, run.o, run.lse, run.findings); !s) {
      return std::move(s).error();
    }
    Result<std::string> spoiled = gpu->spoiled_workspace(device);
    if (!spoiled) return std::move(spoiled).error();
    if (!spoiled->empty()) run.findings.push_back(*std::move(spoiled));
    Result<double> elapsed = device.elapsed_ms(*begin, *end);
    if (!elapsed) return std::move(elapsed).error();
    run.kernel_ms = *elapsed;
    return run;
  }

 private:
  GpuChoice gpu_;
};

}  // namespace

Result<GpuChoice> open_gpu(Arch arch, const DriverOptions& options) {
  Result<std::shared_ptr<const Driver>> driver = Driver::open(options);
  if (!driver) return std::move(driver).error();
  Result<int> count = device_count(**driver);
  if (!count) return std::move(count).error();
  std::string found;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    Result<DeviceProperties> properties = device_properties(**driver, ordinal);
    if (!properties) return std::move(properties).error();
    if (properties->arch() == arch) {
      Result<Device> device = Device::open(*driver, ordinal);
      if (!device) return std::move(device).error();
      return GpuChoice{std::move(*driver), std::move(*device)};
    }
    found += fmt::format("{}{} (compute capability {}.{})", found.empty() ? "" : ", ",
                         properties->name, properties->major, properties->minor);
  }
  return make_error(ErrorCode::kEnvironment,
                    fmt::format("no GPU of architecture {}; found: {}", to_string(arch),
                                found.empty() ? "none" : found),
                    "arch");
}

Result<std::unique_ptr<Backend>> make_gpu_backend(Arch arch, const DriverOptions& options) {
  Result<GpuChoice> gpu = open_gpu(arch, options);
  if (!gpu) return std::move(gpu).error();
  return std::unique_ptr<Backend>(std::make_unique<GpuBackend>(std::move(*gpu)));
}

}  // namespace attnjit::verify

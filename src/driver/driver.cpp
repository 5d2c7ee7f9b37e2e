// SPDX-License-Identifier: Apache-2.0
// Implements Driver: it opens the CUDA driver and loads an image as a Kernel.
#include "attnjit/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/nvtx.h"
#include "compile/cubin.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"

namespace attnjit {

Result<std::shared_ptr<const Driver>> Driver::open(const DriverOptions& options) {
  auto api = open_cuda_api(options);
  if (!api) return std::move(api).error();
  const Nvtx* nvtx = nullptr;
  if (!options.nvtx_injection.empty()) {
    const Result<const Nvtx*> opened = Nvtx::open(options.nvtx_injection);
    if (!opened) return opened.error();
    nvtx = *opened;
  }
  return std::shared_ptr<const Driver>(new Driver(*std::move(api), nvtx));
}

Driver::~Driver() = default;

int Driver::version() const { return api_->version; }
const std::string& Driver::path() const { return api_->path; }

Result<bool> Driver::is_capturing(void* stream) const { return stream_is_capturing(*api_, stream); }

Result<int> Driver::current_device() const {
  cuda::Context context = nullptr;
  if (const cuda::Result code = api_->CtxGetCurrent(&context); code != cuda::kSuccess) {
    return cuda_error(*api_, code, "cuCtxGetCurrent");
  }
  if (context == nullptr) {
    return make_error(ErrorCode::kEnvironment, "this thread has no CUDA context");
  }
  cuda::Device device = 0;
  if (const cuda::Result code = api_->CtxGetDevice(&device); code != cuda::kSuccess) {
    return cuda_error(*api_, code, "cuCtxGetDevice");
  }
  return device;
}

Result<std::unique_ptr<Kernel>> Driver::load(const std::shared_ptr<const KernelImage>& image,
                                             KernelPlan plan) const {
  // NOTE: cuLibraryLoadData is given no size and believes the ELF headers: they are checked first.
  const Result<CubinSummary> cubin = read_cubin(image->cubin);
  if (!cubin) return cubin.error();
  for (const PlannedKernel& planned : plan.kernels) {
    if (std::find(cubin->entries.begin(), cubin->entries.end(), planned.entry) !=
        cubin->entries.end()) {
      continue;
    }
    return make_error(ErrorCode::kCorrupt, fmt::format("the image has no kernel {}", planned.entry),
                      "image", "compile it again (attnjit cache verify finds bad entries)");
  }
  auto library = std::make_shared<Kernel::Library>(api_, image);
  library->nvtx = nvtx_;
  {
    const RelaxedCaptureMode relaxed(*api_);
    if (const cuda::Result code = api_->LibraryLoadData(&library->library, image->cubin.data(),
                                                        nullptr, nullptr, 0, nullptr, nullptr, 0);
        code != cuda::kSuccess) {
      library->library = nullptr;
      return load_error(*api_, code, "cuLibraryLoadData", plan.spec->arch);
    }
    for (const PlannedKernel& planned : plan.kernels) {
      cuda::KernelHandle kernel = nullptr;
      if (const cuda::Result code =
              api_->LibraryGetKernel(&kernel, library->library, planned.entry.c_str());
          code != cuda::kSuccess) {
        return load_error(*api_, code, "cuLibraryGetKernel", plan.spec->arch);
      }
      library->kernels.push_back(kernel);
    }
    unsigned count = 0;
    if (api_->LibraryGetKernelCount != nullptr &&
        api_->LibraryGetKernelCount(&count, library->library) == cuda::kSuccess &&
        count != cubin->entries.size()) {
      return make_error(ErrorCode::kCorrupt,
                        fmt::format("the driver finds {} kernels in the image, not {}", count,
                                    cubin->entries.size()),
                        "image", "compile it again");
    }
  }
  std::unique_ptr<Kernel> kernel(new Kernel(std::move(library), std::move(plan)));
  cuda::Context context = nullptr;
  if (api_->CtxGetCurrent(&context) == cuda::kSuccess && context != nullptr) {
    Kernel::Library& loaded = *kernel->loaded_;
    const auto where = loaded.context_of(nullptr);
    if (!where) return where.error();
    const auto ready = loaded.load_into(kernel->plan_, *where);
    if (!ready) return ready.error();
  }
  return kernel;
}

}  // namespace attnjit

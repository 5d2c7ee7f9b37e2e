// SPDX-License-Identifier: Apache-2.0
// Loads a cubin with cuLibraryLoadData, and makes its kernel ready in a context.
#include "driver/kernel_library.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "driver/device.h"

namespace attnjit {
namespace {

/// Makes a context current for a scope, if it is not.
class ScopedContext {
 public:
  ScopedContext(const CudaApi& api, cuda::Context context) : api_(api) {
    cuda::Context current = nullptr;
    if (api.CtxGetCurrent(&current) == cuda::kSuccess && current == context) return;
    status_ = api.CtxPushCurrent(context);
    pushed_ = status_ == cuda::kSuccess;
  }
  ~ScopedContext() {
    cuda::Context popped = nullptr;
    if (pushed_) api_.CtxPopCurrent(&popped);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  cuda::Result status() const { return status_; }

 private:
  const CudaApi& api_;
  cuda::Result status_ = cuda::kSuccess;
  bool pushed_ = false;
};

int attribute(const CudaApi& api, cuda::Device device, int which) {
  int value = 0;
  return api.DeviceGetAttribute(&value, which, device) == cuda::kSuccess ? value : 0;
}

Error forked_error() {
  return make_error(ErrorCode::kForked, "this process is a fork of the one that loaded the kernel",
                    {}, "create a Service in the child, and fork before CUDA is used");
}

}  // namespace

Result<bool> stream_is_capturing(const CudaApi& api, void* stream) {
  int status = cuda::kCaptureStatusNone;
  const cuda::Result code = api.StreamIsCapturing(static_cast<cuda::Stream>(stream), &status);
  // The legacy default stream while another stream of the context captures: using it would break
  // that capture.
  if (code == cuda::kCaptureImplicit) return true;
  if (code != cuda::kSuccess) return cuda_error(api, code, "cuStreamIsCapturing");
  return status != cuda::kCaptureStatusNone;
}

Error load_error(const CudaApi& api, cuda::Result code, std::string_view what, Arch arch) {
  Error error = cuda_error(api, code, what);
  if (code != cuda::kNoBinaryForGpu && code != cuda::kInvalidImage && code != cuda::kInvalidPtx) {
    return error;
  }
  cuda::Device device = 0;
  if (api.CtxGetDevice(&device) != cuda::kSuccess) {
    // Without a context no architecture was compared: the image itself is at fault.
    if (code == cuda::kInvalidImage) error.code = ErrorCode::kCorrupt;
    return error;
  }
  DeviceProperties properties;
  properties.major = attribute(api, device, cuda::kAttributeComputeCapabilityMajor);
  properties.minor = attribute(api, device, cuda::kAttributeComputeCapabilityMinor);
  char name[256] = "unnamed";
  if (api.DeviceGetName(name, sizeof name, device) != cuda::kSuccess) name[0] = '\0';
  const std::optional<Arch> device_arch = properties.arch();
  error.hint = fmt::format("the image is for {}, device {} ({}) has compute capability {}.{}: ",
                           to_string(arch), device, name, properties.major, properties.minor);
  if (!device_arch) {
    error.hint += "attnjit has no kernels for it";
  } else if (*device_arch != arch) {
    error.hint += fmt::format("set \"arch\": \"{}\" in the spec", to_string(*device_arch));
  } else if (code == cuda::kInvalidImage) {
    error.code = ErrorCode::kCorrupt;
    error.hint += "the image is damaged; compile it again";
  } else {
    error.hint += "the driver is older than the compiler that made the image; update it";
  }
  return error;
}

Kernel::Library::Library(std::shared_ptr<const CudaApi> cuda_api,
                         std::shared_ptr<const KernelImage> kernel_image)
    : api(std::move(cuda_api)), image(std::move(kernel_image)), pid(getpid()) {}

Kernel::Library::~Library() {
  // In a fork's child the handle belongs to the parent, and CUDA does not work.
  if (library == nullptr || forked()) return;
  const RelaxedCaptureMode relaxed(*api);
  // At process exit the driver may have shut down already: then the result is
  // CUDA_ERROR_DEINITIALIZED and there is nothing left to unload.
  (void)api->LibraryUnload(library);
}

bool Kernel::Library::forked() const { return getpid() != pid; }

std::optional<ReadyContext> Kernel::Library::find_ready(unsigned long long context_id) const {
  const std::lock_guard lock(ready_mutex_);
  for (const ReadyContext& context : ready_) {
    if (context.id == context_id) return context;
  }
  return std::nullopt;
}

Result<Kernel::Library::ContextOfStream> Kernel::Library::context_of(void* stream) const {
  ContextOfStream where;
  cuda::Result code = cuda::kCaptureImplicit;
  if (stream != nullptr) {
    code = api->StreamGetCtx(static_cast<cuda::Stream>(stream), &where.context);
    if (code != cuda::kSuccess && code != cuda::kCaptureImplicit) {
      return cuda_error(*api, code, "cuStreamGetCtx");
    }
  }
  // A legacy default stream belongs to the current context, even if a capture forbids to ask.
  if (code == cuda::kCaptureImplicit) code = api->CtxGetCurrent(&where.context);
  if (code != cuda::kSuccess) return cuda_error(*api, code, "cuCtxGetCurrent");
  if (where.context == nullptr) {
    return make_error(ErrorCode::kEnvironment, "this thread has no CUDA context", "stream",
                      "make one current (cudaSetDevice, cuCtxSetCurrent) or pass a stream of one");
  }
  code = api->CtxGetId(where.context, &where.id);
  if (code != cuda::kSuccess) return cuda_error(*api, code, "cuCtxGetId");
  return where;
}

Result<ReadyContext> Kernel::Library::make_ready(const KernelPlan& plan,
                                                 const ContextOfStream& where, void* stream) {
  // NOTE: before any lock: in a child of fork() another thread may have held it.
  if (forked()) return forked_error();
  if (const auto ready = find_ready(where.id)) return *ready;
  const Result<bool> capturing = stream_is_capturing(*api, stream);
  if (!capturing) return capturing.error();
  if (*capturing) {
    return make_error(ErrorCode::kCaptureInProgress,
                      "the kernel is not loaded into this context and a stream is capturing",
                      "stream", "call Kernel::prepare or launch once before the capture begins");
  }
  return load_into(plan, where);
}

Result<ReadyContext> Kernel::Library::load_into(const KernelPlan& plan,
                                                const ContextOfStream& where) {
  if (forked()) return forked_error();
  const std::lock_guard lock(load_mutex_);
  if (const auto ready = find_ready(where.id)) return *ready;
  const RelaxedCaptureMode relaxed(*api);
  const ScopedContext current(*api, where.context);
  if (current.status() != cuda::kSuccess) {
    return cuda_error(*api, current.status(), "cuCtxPushCurrent");
  }
  return load_into_current(plan, where.id);
}

Result<ReadyContext> Kernel::Library::load_into_current(const KernelPlan& plan,
                                                        unsigned long long id) {
  cuda::Device device = 0;
  if (const cuda::Result code = api->CtxGetDevice(&device); code != cuda::kSuccess) {
    return cuda_error(*api, code, "cuCtxGetDevice");
  }
  ReadyContext ready;
  ready.id = id;
  ready.device.sm_count = attribute(*api, device, cuda::kAttributeMultiprocessorCount);
  ready.device.max_smem_bytes =
      attribute(*api, device, cuda::kAttributeMaxSharedMemoryPerBlockOptin);

  for (std::size_t i = 0; i < kernels.size(); ++i) {
    Status loaded = load_kernel(plan.kernels[i], kernels[i], plan.spec->arch, device, ready.device);
    if (!loaded) return std::move(loaded).error();
  }
  const std::lock_guard lock(ready_mutex_);
  ready_.push_back(ready);
  return ready;
}

Status Kernel::Library::load_kernel(const PlannedKernel& planned, cuda::KernelHandle kernel,
                                    Arch arch, cuda::Device device,
                                    const DeviceShape& shape) const {
  cuda::Function function = nullptr;
  if (const cuda::Result code = api->KernelGetFunction(&function, kernel); code != cuda::kSuccess) {
    return load_error(*api, code, "cuKernelGetFunction", arch);
  }
  if (api->FuncLoad != nullptr) {
    if (const cuda::Result code = api->FuncLoad(function); code != cuda::kSuccess) {
      return load_error(*api, code, "cuFuncLoad", arch);
    }
  }
  if (planned.smem_bytes > shape.max_smem_bytes) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("the kernel needs {} bytes of shared memory per CTA, device {} "
                                  "has {}",
                                  planned.smem_bytes, device, shape.max_smem_bytes));
  }
  // NOTE: on the kernel and device, not the function: the attribute then holds in every context of
  // the device, also in one made after this one is destroyed.
  if (const cuda::Result code =
          api->KernelSetAttribute(cuda::kFunctionMaxDynamicSharedSizeBytes,
                                  static_cast<int>(planned.smem_bytes), kernel, device);
      code != cuda::kSuccess) {
    return cuda_error(*api, code, "cuKernelSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
  }
  if (planned.cluster > 8) {
    if (const cuda::Result code = api->KernelSetAttribute(
            cuda::kFunctionNonPortableClusterSizeAllowed, 1, kernel, device);
        code != cuda::kSuccess) {
      return cuda_error(*api, code, "cuKernelSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)");
    }
  }
  return {};
}

}  // namespace attnjit

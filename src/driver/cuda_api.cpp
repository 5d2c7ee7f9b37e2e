// SPDX-License-Identifier: Apache-2.0
// Opens libcuda, resolves its functions, and turns its result codes into Errors with hints.
#include "driver/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>
#include <utility>

namespace attnjit {
namespace {

using GetProcAddress = cuda::Result (*)(const char*, void**, int, std::uint64_t, int*);

constexpr int kOldestDriver = 12000;

std::string hint_for(cuda::Result code) {
  switch (code) {
    case cuda::kOutOfMemory:
      return "free GPU memory; attnjit itself holds only the kernels";
    case cuda::kNotInitialized:
      return "CUDA does not survive fork(); use it in the process that initialised it";
    case cuda::kDeinitialized:
      return "the process is exiting and the driver has shut down";
    case cuda::kNoDevice:
      return "no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES";
    case cuda::kInvalidContext:
    case cuda::kContextIsDestroyed:
      return "make a CUDA context current on this thread (cudaSetDevice, cuCtxSetCurrent)";
    case cuda::kIllegalAddress:
      return "an earlier kernel failed, and the context is lost; run it under compute-sanitizer";
    case cuda::kCaptureUnsupported:
    case cuda::kCaptureInvalidated:
    case cuda::kCaptureImplicit:
      return "the call is not allowed while a stream captures; do it before the capture";
    case cuda::kSystemDriverMismatch:
      return "the kernel module and libcuda are of different versions; reboot or reinstall";
    default:
      return {};
  }
}

}  // namespace

Error cuda_error(const CudaApi& api, cuda::Result code, std::string_view what, std::string hint) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.GetErrorName == nullptr || api.GetErrorName(code, &name) != cuda::kSuccess) {
    name = nullptr;
  }
  if (api.GetErrorString == nullptr || api.GetErrorString(code, &text) != cuda::kSuccess) {
    text = nullptr;
  }
  if (hint.empty()) hint = hint_for(code);
  return make_error(
      ErrorCode::kDriver,
      fmt::format("{}: {} ({}, {})", what, name != nullptr ? name : "unknown CUDA error",
                  text != nullptr ? text : "no description", code),
      {}, std::move(hint));
}

Result<std::shared_ptr<const CudaApi>> open_cuda_api(const DriverOptions& options) {
  const std::string wanted =
      options.driver_path.empty() ? std::string("libcuda.so.1") : options.driver_path;
  // NOTE: never dlclosed: libcuda keeps threads and exit handlers that run its code.
  void* library = dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return make_error(
        ErrorCode::kEnvironment,
        fmt::format("no CUDA driver: {}", reason != nullptr ? reason : wanted), {},
        "install the NVIDIA driver (in a container: run with --gpus); attnjit compiles without "
        "one, but does not launch");
  }
  auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return make_error(
        ErrorCode::kEnvironment,
        fmt::format("{} lacks cuGetProcAddress_v2: it is older than CUDA 12.0", wanted), wanted,
        "install driver 525 or newer (570 or newer for sm_100a)");
  }

  auto api = std::make_shared<CudaApi>();
  Dl_info info{};
  api->path = dladdr(reinterpret_cast<void*>(get), &info) != 0 && info.dli_fname != nullptr
                  ? info.dli_fname
                  : wanted;

  std::string missing;
  const auto resolve = [&](auto& member, const char* name, int version, bool needed) {
    void* address = nullptr;
    int status = 0;
    if (get(name, &address, version, 0, &status) != cuda::kSuccess) address = nullptr;
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(address);
    if (address == nullptr && needed) missing += missing.empty() ? name : std::string(", ") + name;
  };
#define ATTNJIT_RESOLVE(NAME, VERSION, ARGS) resolve(api->NAME, "cu" #NAME, VERSION, true);
#define ATTNJIT_RESOLVE_OPTIONAL(NAME, VERSION, ARGS) \
  resolve(api->NAME, "cu" #NAME, VERSION, false);
  ATTNJIT_CUDA_FUNCTIONS(ATTNJIT_RESOLVE)
  ATTNJIT_CUDA_OPTIONAL_FUNCTIONS(ATTNJIT_RESOLVE_OPTIONAL)
#undef ATTNJIT_RESOLVE
#undef ATTNJIT_RESOLVE_OPTIONAL

  if (api->DriverGetVersion != nullptr && api->DriverGetVersion(&api->version) != cuda::kSuccess) {
    api->version = 0;
  }
  if (!missing.empty()) {
    return make_error(ErrorCode::kEnvironment,
                      fmt::format("{} (CUDA {}.{}) lacks {}", api->path, api->version / 1000,
                                  api->version % 1000 / 10, missing),
                      api->path,
                      fmt::format("install a driver for CUDA {}.0 or newer", kOldestDriver / 1000));
  }
  if (const cuda::Result code = api->Init(0); code != cuda::kSuccess) {
    Error error = cuda_error(*api, code, "cuInit");
    error.code = ErrorCode::kEnvironment;
    error.field = api->path;
    if (error.hint.empty()) error.hint = "check nvidia-smi";
    return error;
  }
  return std::shared_ptr<const CudaApi>(std::move(api));
}

}  // namespace attnjit

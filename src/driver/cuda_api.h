// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API that attnjit uses: its types, declared here so that the library
// builds where there is no CUDA header, and the table of functions that is filled at run time.
//
// Names and values are those of the CUDA Driver API reference; a test compares sizes with <cuda.h>
// where that is installed. Thread rules: the table is constant once open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "attnjit/driver.h"
#include "attnjit/result.h"

namespace attnjit {
namespace cuda {

using Result = int;  // CUresult
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextOpaque*;
using Stream = struct StreamOpaque*;
using Event = struct EventOpaque*;
using Library = struct LibraryOpaque*;
using KernelHandle = struct KernelOpaque*;
using Function = struct FunctionOpaque*;
using Graph = struct GraphOpaque*;
using GraphExec = struct GraphExecOpaque*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kLaunchOutOfResources = 701;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kSystemDriverMismatch = 803;
inline constexpr Result kCaptureUnsupported = 900;
inline constexpr Result kCaptureInvalidated = 901;
inline constexpr Result kCaptureImplicit = 906;

// CUdevice_attribute
inline constexpr int kAttributeClockRate = 13;
inline constexpr int kAttributeMultiprocessorCount = 16;
inline constexpr int kAttributeMemoryClockRate = 36;
inline constexpr int kAttributeGlobalMemoryBusWidth = 37;
inline constexpr int kAttributeL2CacheSize = 38;
inline constexpr int kAttributeComputeCapabilityMajor = 75;
inline constexpr int kAttributeComputeCapabilityMinor = 76;
inline constexpr int kAttributeMaxSharedMemoryPerBlockOptin = 97;

// CUfunction_attribute
inline constexpr int kFunctionMaxDynamicSharedSizeBytes = 8;
inline constexpr int kFunctionNonPortableClusterSizeAllowed = 14;

// CUstreamCaptureStatus, CUstreamCaptureMode
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureModeGlobal = 0;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureModeRelaxed = 2;

inline constexpr unsigned kStreamNonBlocking = 1;

// CUlaunchAttributeID
inline constexpr int kLaunchAttributeClusterDimension = 4;
inline constexpr int kLaunchAttributeProgrammaticStreamSerialization = 6;

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int programmatic_stream_serialization_allowed;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72, "CUlaunchAttribute is 72 bytes");

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned dynamic_smem;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56, "CUlaunchConfig is 56 bytes");

/// CUtensorMap: opaque, what a kernel takes as __grid_constant__. (64-byte aligned up to CUDA 12.)
struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};

// CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
enum TensorMapType : int {
  kMapU8 = 0,
  kMapU16 = 1,
  kMapU32 = 2,
  kMapI32 = 3,
  kMapU64 = 4,
  kMapI64 = 5,
  kMapF16 = 6,
  kMapF32 = 7,
  kMapF64 = 8,
  kMapBf16 = 9,
};
enum TensorMapSwizzle : int {
  kSwizzleNone = 0,
  kSwizzle32B = 1,
  kSwizzle64B = 2,
  kSwizzle128B = 3
};
inline constexpr int kInterleaveNone = 0;
enum : std::uint8_t {
  kL2PromotionNone = 0,
  kL2Promotion64B = 1,
  kL2Promotion128B = 2,
  kL2Promotion256B = 3
};
inline constexpr int kOobZero = 0;
inline constexpr int kOobNan = 1;

}  // namespace cuda

// NOTE: the third column is the CUDA version that cuGetProcAddress is asked for: it selects the
// signature written here, whatever version the driver is of.
// clang-format off
#define ATTNJIT_CUDA_FUNCTIONS(X)                                                                      \
  X(GetErrorName, 6000, (cuda::Result, const char**))                                                  \
  X(GetErrorString, 6000, (cuda::Result, const char**))                                                \
  X(Init, 2000, (unsigned))                                                                            \
  X(DriverGetVersion, 2020, (int*))                                                                    \
  X(DeviceGetCount, 2000, (int*))                                                                      \
  X(DeviceGet, 2000, (cuda::Device*, int))                                                             \
  X(DeviceGetName, 2000, (char*, int, cuda::Device))                                                   \
  X(DeviceGetAttribute, 2000, (int*, int, cuda::Device))                                               \
  X(DeviceTotalMem, 3020, (std::size_t*, cuda::Device))                                                \
  X(DevicePrimaryCtxRetain, 7000, (cuda::Context*, cuda::Device))                                      \
  X(DevicePrimaryCtxRelease, 11000, (cuda::Device))                                                    \
  X(DevicePrimaryCtxGetState, 7000, (cuda::Device, unsigned*, int*))                                   \
  X(CtxGetCurrent, 4000, (cuda::Context*))                                                             \
  X(CtxSetCurrent, 4000, (cuda::Context))                                                              \
  X(CtxPushCurrent, 4000, (cuda::Context))                                                             \
  X(CtxPopCurrent, 4000, (cuda::Context*))                                                             \
  X(CtxGetDevice, 2000, (cuda::Device*))                                                               \
  X(CtxGetId, 12000, (cuda::Context, unsigned long long*))                                             \
  X(CtxSynchronize, 2000, ())                                                                          \
  X(MemAlloc, 3020, (cuda::DevicePtr*, std::size_t))                                                   \
  X(MemFree, 3020, (cuda::DevicePtr))                                                                  \
  X(MemHostAlloc, 2020, (void**, std::size_t, unsigned))                                               \
  X(MemFreeHost, 2000, (void*))                                                                        \
  X(MemGetInfo, 3020, (std::size_t*, std::size_t*))                                                    \
  X(MemcpyHtoDAsync, 3020, (cuda::DevicePtr, const void*, std::size_t, cuda::Stream))                  \
  X(MemcpyDtoHAsync, 3020, (void*, cuda::DevicePtr, std::size_t, cuda::Stream))                        \
  X(MemcpyDtoDAsync, 3020, (cuda::DevicePtr, cuda::DevicePtr, std::size_t, cuda::Stream))              \
  X(MemsetD8Async, 3020, (cuda::DevicePtr, unsigned char, std::size_t, cuda::Stream))                  \
  X(StreamCreate, 2000, (cuda::Stream*, unsigned))                                                     \
  X(StreamDestroy, 4000, (cuda::Stream))                                                               \
  X(StreamSynchronize, 2000, (cuda::Stream))                                                           \
  X(StreamGetCtx, 9020, (cuda::Stream, cuda::Context*))                                                \
  X(StreamIsCapturing, 10000, (cuda::Stream, int*))                                                    \
  X(StreamBeginCapture, 10010, (cuda::Stream, int))                                                    \
  X(StreamEndCapture, 10000, (cuda::Stream, cuda::Graph*))                                             \
  X(ThreadExchangeStreamCaptureMode, 10010, (int*))                                                    \
  X(GraphInstantiateWithFlags, 11040, (cuda::GraphExec*, cuda::Graph, unsigned long long))             \
  X(GraphLaunch, 10000, (cuda::GraphExec, cuda::Stream))                                               \
  X(GraphExecDestroy, 10000, (cuda::GraphExec))                                                        \
  X(GraphDestroy, 10000, (cuda::Graph))                                                                \
  X(EventCreate, 2000, (cuda::Event*, unsigned))                                                       \
  X(EventDestroy, 4000, (cuda::Event))                                                                 \
  X(EventRecord, 2000, (cuda::Event, cuda::Stream))                                                    \
  X(EventSynchronize, 2000, (cuda::Event))                                                             \
  X(EventElapsedTime, 2000, (float*, cuda::Event, cuda::Event))                                        \
  X(LibraryLoadData, 12000, (cuda::Library*, const void*, int*, void**, unsigned, int*, void**, unsigned)) \
  X(LibraryUnload, 12000, (cuda::Library))                                                             \
  X(LibraryGetKernel, 12000, (cuda::KernelHandle*, cuda::Library, const char*))                        \
  X(KernelGetFunction, 12000, (cuda::Function*, cuda::KernelHandle))                                   \
  X(KernelSetAttribute, 12000, (int, int, cuda::KernelHandle, cuda::Device))                           \
  X(LaunchKernelEx, 11060, (const cuda::LaunchConfig*, cuda::Function, void**, void**))                \
  X(TensorMapEncodeTiled, 12000, (cuda::TensorMap*, int, std::uint32_t, void*, const std::uint64_t*,   \
    const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int, int, int))             \
  X(TensorMapReplaceAddress, 12000, (cuda::TensorMap*, void*))

/// Functions of newer drivers, null where the driver lacks them.
#define ATTNJIT_CUDA_OPTIONAL_FUNCTIONS(X)                                                             \
  X(FuncLoad, 12040, (cuda::Function))                                                                 \
  X(LibraryGetKernelCount, 12040, (unsigned*, cuda::Library))
// clang-format on

/// The opened driver: each member is the function of its name with `cu` before it.
struct CudaApi {
  // NOLINTNEXTLINE(bugprone-macro-parentheses): the arguments are a name and a parameter list.
#define ATTNJIT_DECLARE(NAME, VERSION, ARGS) cuda::Result(*NAME) ARGS = nullptr;
  ATTNJIT_CUDA_FUNCTIONS(ATTNJIT_DECLARE)
  ATTNJIT_CUDA_OPTIONAL_FUNCTIONS(ATTNJIT_DECLARE)
#undef ATTNJIT_DECLARE

  std::string path;  ///< as dladdr names the library
  int version = 0;   ///< 12080 for 12.8
};

/// Opens the library, resolves every function and calls cuInit. The library is never closed: CUDA
/// keeps threads and exit handlers of its own. Errors: kEnvironment.
Result<std::shared_ptr<const CudaApi>> open_cuda_api(const DriverOptions& options);

/// A kDriver error: "WHAT: CUDA_ERROR_NAME (text)", with a hint for the codes that have one.
Error cuda_error(const CudaApi& api, cuda::Result code, std::string_view what,
                 std::string hint = {});

/// The thread may load and allocate while other threads capture (or this one does: the callers ask
/// first). CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED would otherwise break a capture of mode global.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(const CudaApi& api) : api_(api) {
    valid_ = api_.ThreadExchangeStreamCaptureMode(&mode_) == cuda::kSuccess;
  }
  ~RelaxedCaptureMode() {
    if (valid_) api_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const CudaApi& api_;
  int mode_ = cuda::kCaptureModeRelaxed;
  bool valid_ = false;
};

}  // namespace attnjit

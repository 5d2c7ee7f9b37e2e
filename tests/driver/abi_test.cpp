// SPDX-License-Identifier: Apache-2.0
// The driver API's types, declared in cuda_api.h, are those of <cuda.h>, where that is installed.
#include <gtest/gtest.h>

#include "driver/cuda_api.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace attnjit {
namespace {

#ifdef CUDA_VERSION
TEST(CudaAbi, TypesAndValuesAreThoseOfTheHeader) {
  static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
  static_assert(offsetof(cuda::LaunchConfig, dynamic_smem) ==
                offsetof(CUlaunchConfig, sharedMemBytes));
  static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
  static_assert(offsetof(cuda::LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
  static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
  static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
  static_assert(sizeof(cuda::TensorMap) == sizeof(CUtensorMap));
  static_assert(alignof(cuda::TensorMap) >= alignof(CUtensorMap));
  static_assert(sizeof(cuda::DevicePtr) == sizeof(CUdeviceptr));
  EXPECT_EQ(cuda::kLaunchAttributeClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(cuda::kFunctionMaxDynamicSharedSizeBytes,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(cuda::kFunctionNonPortableClusterSizeAllowed,
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  EXPECT_EQ(cuda::kMapU8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(cuda::kMapI64, CU_TENSOR_MAP_DATA_TYPE_INT64);
  EXPECT_EQ(cuda::kMapF16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  EXPECT_EQ(cuda::kMapF64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
  EXPECT_EQ(cuda::kMapBf16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(cuda::kSwizzle128B, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(cuda::kL2PromotionNone, CU_TENSOR_MAP_L2_PROMOTION_NONE);
  EXPECT_EQ(cuda::kL2Promotion64B, CU_TENSOR_MAP_L2_PROMOTION_L2_64B);
  EXPECT_EQ(cuda::kL2Promotion128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(cuda::kL2Promotion256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  EXPECT_EQ(cuda::kOobNan, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
  EXPECT_EQ(cuda::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cuda::kCaptureImplicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuda::kCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuda::kCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuda::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(cuda::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuda::kLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(cuda::kSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  EXPECT_EQ(cuda::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::kNotFound, CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuda::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(cuda::kAttributeMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(cuda::kAttributeMaxSharedMemoryPerBlockOptin,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(cuda::kAttributeComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(cuda::kAttributeClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  EXPECT_EQ(cuda::kAttributeMemoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  EXPECT_EQ(cuda::kAttributeGlobalMemoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  EXPECT_EQ(cuda::kAttributeL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
}
#else
TEST(CudaAbi, TypesAndValuesAreThoseOfTheHeader) { GTEST_SKIP() << "no <cuda.h>"; }
#endif

}  // namespace
}  // namespace attnjit

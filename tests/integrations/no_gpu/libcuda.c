// SPDX-License-Identifier: Apache-2.0
// A driver that finds no GPU: what vLLM's compiled code is linked with, where there is no libcuda.
#define NO_DEVICE(NAME) \
  int NAME(void) { return 100; /* CUDA_ERROR_NO_DEVICE */ }

NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuCtxSetCurrent)
NO_DEVICE(cuDeviceGetAttribute)
NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuDriverGetVersion)
NO_DEVICE(cuGetErrorString)
NO_DEVICE(cuGetProcAddress_v2)
NO_DEVICE(cuInit)
NO_DEVICE(cuMemAddressFree)
NO_DEVICE(cuMemAddressReserve)
NO_DEVICE(cuMemCreate)
NO_DEVICE(cuMemGetAllocationGranularity)
NO_DEVICE(cuMemMap)
NO_DEVICE(cuMemRelease)
NO_DEVICE(cuMemSetAccess)
NO_DEVICE(cuMemUnmap)
NO_DEVICE(cuPointerGetAttribute)
NO_DEVICE(cuTensorMapEncodeTiled)

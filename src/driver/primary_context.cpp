// SPDX-License-Identifier: Apache-2.0
// Retains a device's primary context, and makes it current for a scope.
#include "driver/primary_context.h"

namespace attnjit {

std::optional<int> device_of_current_primary_context(const CudaApi& api) {
  cuda::Context current = nullptr;
  cuda::Device device = 0;
  if (api.CtxGetCurrent(&current) != cuda::kSuccess || current == nullptr ||
      api.CtxGetDevice(&device) != cuda::kSuccess) {
    return std::nullopt;
  }
  unsigned flags = 0;
  int active = 0;
  if (api.DevicePrimaryCtxGetState(device, &flags, &active) != cuda::kSuccess || active == 0) {
    return std::nullopt;
  }
  cuda::Context primary = nullptr;
  if (api.DevicePrimaryCtxRetain(&primary, device) != cuda::kSuccess) return std::nullopt;
  (void)api.DevicePrimaryCtxRelease(device);
  if (primary != current) return std::nullopt;
  return device;
}

ScopedPrimaryContext::ScopedPrimaryContext(const CudaApi& api, int device)
    : api_(api), device_(device) {
  cuda::Context context = nullptr;
  retained_ = api_.DevicePrimaryCtxRetain(&context, device_) == cuda::kSuccess;
  pushed_ = retained_ && api_.CtxPushCurrent(context) == cuda::kSuccess;
}

ScopedPrimaryContext::~ScopedPrimaryContext() {
  cuda::Context popped = nullptr;
  if (pushed_) (void)api_.CtxPopCurrent(&popped);
  if (retained_) (void)api_.DevicePrimaryCtxRelease(device_);
}

}  // namespace attnjit

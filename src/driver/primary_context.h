// SPDX-License-Identifier: Apache-2.0
// The primary context of a device: how a background thread loads into the context that a framework
// uses, without keeping a handle that may be destroyed under it.
//
// Thread rules: any thread.
#pragma once

#include <optional>

#include "driver/cuda_api.h"

namespace attnjit {

/// The device whose primary context is current on this thread; nullopt where none is.
std::optional<int> device_of_current_primary_context(const CudaApi& api);

/// Retains a device's primary context and makes it current for a scope.
class ScopedPrimaryContext {
 public:
  ScopedPrimaryContext(const CudaApi& api, int device);
  ~ScopedPrimaryContext();
  ScopedPrimaryContext(const ScopedPrimaryContext&) = delete;
  ScopedPrimaryContext& operator=(const ScopedPrimaryContext&) = delete;

  bool ok() const { return pushed_; }

 private:
  const CudaApi& api_;
  int device_;
  bool retained_ = false;
  bool pushed_ = false;
};

}  // namespace attnjit

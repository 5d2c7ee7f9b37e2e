// SPDX-License-Identifier: Apache-2.0
// Chooses the GPU that runs images of an architecture.
#pragma once

#include <memory>
#include <utility>

#include "driver/device.h"

namespace attnjit::verify {

struct GpuChoice {
  std::shared_ptr<const Driver> driver;
  Device device;
};

/// Opens the first GPU of an architecture. Errors: kEnvironment with what was found instead.
Result<GpuChoice> open_gpu(Arch arch, const DriverOptions& options = {});

}  // namespace attnjit::verify

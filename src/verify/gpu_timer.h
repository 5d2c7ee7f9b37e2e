// SPDX-License-Identifier: Apache-2.0
// GpuTimer: times launches of kernels over copies of one problem that rotate past the L2 cache.
//
// Thread rules: used by one thread at a time; dies before its Device.
#pragma once

#include <vector>

#include "attnjit/driver.h"
#include "driver/device.h"
#include "verify/gpu_problem.h"
#include "verify/problem.h"

namespace attnjit::verify {

class GpuTimer {
 public:
  /// Uploads the copies: enough to pass twice the L2 cache, at most 16, at most half of the free
  /// memory. The tensors must be filled. The device must outlive the timer.
  static Result<GpuTimer> make(const Device& device, const Problem& problem);

  /// What a kernel keeps from one launch to the next, one a copy.
  using States = std::vector<LaunchState>;

  /// Milliseconds a launch of `launches` launches in a row, between two events.
  Result<double> time(const Kernel& kernel, States& states, int launches);

  int sets() const { return static_cast<int>(sets_.size()); }

 private:
  explicit GpuTimer(const Device& device) : device_(&device) {}
  const Device* device_;
  DeviceStream stream_;
  DeviceEvent begin_, end_;
  std::vector<GpuProblem> sets_;
  const Kernel* prepared_ = nullptr;  // whose workspaces the copies have
  std::size_t next_ = 0;
};

}  // namespace attnjit::verify

// SPDX-License-Identifier: Apache-2.0
// GpuProblem: a Problem's tensors in device memory, with the arguments of its launch.
//
// Thread rules: used by one thread at a time; dies before its Device.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "attnjit/driver.h"
#include "driver/device.h"
#include "verify/problem.h"

namespace attnjit::verify {

class GpuProblem {
 public:
  /// Uploads the inputs; o and lse are poisoned, with a poisoned band behind each.
  static Result<GpuProblem> upload(const Device& device, const Problem& problem, void* stream);

  /// Fills in the workspace for a kernel. Call before launching it. Of a kernel whose waits are
  /// bounded (debug_waits) it lies in host memory, with the seed of the kernel's random sleeps.
  Status prepare(const Device& device, const Kernel& kernel, std::uint64_t seed = 0);

  /// "byte 8 of the workspace is 0x01 ..", where the launch did not leave zero what it is to leave
  /// so (WorkspaceNeed::kZeroBytes); else empty. After the launch; waits.
  Result<std::string> spoiled_workspace(const Device& device) const;

  /// What such a kernel left there, as text; empty: all its waits ended. Works after an error.
  std::string unended_waits(const KernelPlan& plan) const;

  const LaunchArgs& args() const { return args_; }

  /// Copies o (and lse, where the spec returns it) back and waits. `overrun` names outputs that
  /// were written past their end.
  Status download(const Device& device, const Problem& problem, Tensor& o,
                  std::optional<Tensor>& lse, std::vector<std::string>& overrun) const;

  /// Device memory that upload() takes, in bytes.
  static std::int64_t bytes_of(const Problem& problem);

 private:
  std::int64_t left_zero_bytes() const;

  std::map<std::string, DeviceBuffer> buffers_;
  HostBuffer host_workspace_;
  std::uint32_t* wait_words_ = nullptr;  // in it
  LaunchArgs args_;
};

}  // namespace attnjit::verify

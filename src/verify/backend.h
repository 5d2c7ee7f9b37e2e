// SPDX-License-Identifier: Apache-2.0
// Backend: runs a compiled kernel on a Problem, on a GPU or in the emulator.
//
// Thread rules: a Backend is used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/driver.h"
#include "attnjit/plan.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// Outputs are poisoned with NaN before the run: what the kernel does not write shows.
struct BackendRun {
  Tensor o;
  std::optional<Tensor> lse;
  double kernel_ms = 0;               ///< of one launch; 0 where that has no meaning
  std::vector<std::string> findings;  ///< defects that the numbers need not show; none: good
  std::string model;                  ///< of the emulator: "isa", "silicon"
  std::vector<std::string> waivers;   ///< orders that its model was told to grant
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// "gpu", "emulator".
  virtual std::string name() const = 0;
  /// The machine: "NVIDIA H200".
  virtual std::string device() const = 0;
  /// Whether images must carry their PTX.
  virtual bool needs_ptx() const { return false; }
  /// Errors: those of the launch.
  virtual Result<BackendRun> run(const KernelPlan& plan,
                                 const std::shared_ptr<const KernelImage>& image,
                                 const Problem& problem) = 0;
};

/// The first GPU whose architecture is `arch`. Errors: kEnvironment with what was found.
Result<std::unique_ptr<Backend>> make_gpu_backend(Arch arch, const DriverOptions& options = {});

}  // namespace attnjit::verify

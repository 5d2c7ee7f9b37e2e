// SPDX-License-Identifier: Apache-2.0
// TuningRig: what runs and times a kernel's variants: a GPU, the clock's model of one, or a test.
//
// Thread rules: used by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "attnjit/cache.h"
#include "attnjit/compile.h"
#include "attnjit/driver.h"
#include "attnjit/plan.h"
#include "attnjit/result.h"
#include "verify/backend.h"
#include "verify/problem.h"

namespace attnjit::tune {

/// What the numbers were measured on.
struct RigDevice {
  std::string name;    ///< "NVIDIA H200"
  std::string driver;  ///< "CUDA 13.0"
  int sm_count = 0;
  int model_version = 0;  ///< of the clock's model; 0: a GPU
};

class TuningRig {
 public:
  virtual ~TuningRig() = default;
  virtual RigDevice device() const = 0;
  /// Whether it reads the kernels' PTX.
  virtual PtxNeed needs_ptx() const { return PtxNeed::kSkip; }
  /// Whether a wrong kernel may be timed: it can do no harm there, and verifying is what takes
  /// long. Those that come near to being chosen are verified then, and no others.
  virtual bool times_wrong_kernels() const { return false; }

  /// Makes a compiled variant ready to run. Numbers are given out by the caller, once each.
  virtual Status load(std::size_t variant, const KernelPlan& plan,
                      const std::shared_ptr<const KernelImage>& image) = 0;

  /// Runs a variant once; its outputs were poisoned before.
  virtual Result<verify::BackendRun> run(std::size_t variant, const verify::Problem& problem) = 0;

  /// Makes the buffers that time() uses; those of the problem before are gone.
  virtual Status use(const verify::Problem& problem) = 0;

  /// Milliseconds a launch, of `launches` in a row over rotating buffers.
  virtual Result<double> time(std::size_t variant, int launches) = 0;
};

/// The first GPU of an architecture. Errors: kEnvironment with what was found instead.
Result<std::unique_ptr<TuningRig>> make_gpu_rig(Arch arch, const DriverOptions& options = {});
/// The clock's model of an architecture's GPU, of which `timed_sms` SMs are run; kernels are
/// verified in the emulator. Errors: as time_launches.
Result<std::unique_ptr<TuningRig>> make_model_rig(Arch arch, unsigned timed_sms);

}  // namespace attnjit::tune

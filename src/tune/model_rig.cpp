// SPDX-License-Identifier: Apache-2.0
// Implements the tuning rig that is the clock's model of a GPU.
#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "attnjit/emulator.h"
#include "attnjit/launch.h"
#include "clock/clock.h"
#include "tune/rig.h"
#include "verify/emulator_backend.h"

namespace attnjit::tune {
namespace {

class ModelRig final : public TuningRig {
 public:
  ModelRig(Arch arch, unsigned timed_sms, std::unique_ptr<verify::Backend> backend)
      : arch_(arch), timed_sms_(timed_sms), backend_(std::move(backend)) {}

  RigDevice device() const override {
    return {fmt::format("model of {}", to_string(arch_)), fmt::format("model {}", version()),
            clock::sms_of(arch_), version()};
  }
  PtxNeed needs_ptx() const override { return PtxNeed::kRequired; }
  bool times_wrong_kernels() const override { return true; }

  Status load(std::size_t variant, const KernelPlan& plan,
              const std::shared_ptr<const KernelImage>& image) override {
    Result<PtxModule> module = PtxModule::load(image->ptx);
    if (!module) return std::move(module).error();
    loaded_.emplace(variant, Loaded{plan, image, std::move(*module), {}});
    return {};
  }

  Result<verify::BackendRun> run(std::size_t variant, const verify::Problem& problem) override {
    const Loaded& loaded = loaded_.at(variant);
    return backend_->run(loaded.plan, loaded.image, problem);
  }

  Status use(const verify::Problem& problem) override {
    lengths_ = {problem.q_lens, problem.kv_lens};
    buffers_ = verify::emulator_buffers(problem);
    shapes_ = problem.launch_shapes();
    scalars_ = problem.launch_scalars();
    values_ = problem.param_values();
    return {};
  }

  // The model gives the same time again: it is asked once about a problem of some lengths.
  Result<double> time(std::size_t variant, int) override {
    Loaded& loaded = loaded_.at(variant);
    const auto known = loaded.ms.find(lengths_);
    if (known != loaded.ms.end()) return known->second;
    DeviceShape device;
    device.sm_count = clock::sms_of(arch_);
    const Result<LaunchSequence> sequence =
        plan_launch(loaded.plan, shapes_, scalars_, values_, device);
    if (!sequence) return sequence.error();
    clock::ClockOptions options;
    options.arch = arch_;
    options.sms = timed_sms_;
    for (const LaunchRecipe& launch : sequence->launches) {
      const auto& usage = loaded.image->entry_usage;
      options.registers.push_back(
          launch.kernel < usage.size() ? static_cast<unsigned>(usage[launch.kernel].registers) : 0);
    }
    const Result<clock::ClockReport> timed =
        clock::time_launches(loaded.module, *sequence, buffers_, options);
    if (!timed) return timed.error();
    return loaded.ms[lengths_] = timed->us / 1000;
  }

 private:
  using Lengths = std::pair<std::vector<int>, std::vector<int>>;  ///< of queries and of keys
  struct Loaded {
    KernelPlan plan;
    std::shared_ptr<const KernelImage> image;
    PtxModule module;
    std::map<Lengths, double> ms;
  };

  static int version() { return clock::kModelVersion; }

  Arch arch_;
  unsigned timed_sms_;
  std::unique_ptr<verify::Backend> backend_;
  std::map<std::size_t, Loaded> loaded_;
  Lengths lengths_;  ///< of the problem in use
  std::vector<EmulatorBuffer> buffers_;
  LaunchShapes shapes_;
  LaunchScalars scalars_;
  std::vector<UserParamShape> values_;
};

}  // namespace

Result<std::unique_ptr<TuningRig>> make_model_rig(Arch arch, unsigned timed_sms) {
  Result<std::unique_ptr<verify::Backend>> backend = verify::make_emulator_backend();
  if (!backend) return std::move(backend).error();
  return std::unique_ptr<TuningRig>(
      std::make_unique<ModelRig>(arch, timed_sms, std::move(*backend)));
}

}  // namespace attnjit::tune

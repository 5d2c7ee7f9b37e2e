// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's PTX in the emulator, with line information where there is something to find.
#include "verify/emulator_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "attnjit/emulator.h"
#include "base/environment.h"
#include "verify/emulator_settings.h"
#include "verify/finding_text.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

constexpr std::int64_t kMaxSms = 1 << 20;

EmulatorBuffer output_buffer(const std::string& name, Tensor tensor) {
  poison(tensor);
  EmulatorBuffer buffer = emulator_buffer(name, tensor);
  buffer.uninitialised = true;
  return buffer;
}

Tensor output_of(const Problem& problem) {
  return make_tensor(problem.spec.output_dtype.value_or(problem.spec.qkv_dtype), problem.o_shape());
}

std::vector<EmulatorBuffer> buffers_of(const Problem& problem, const Tensor& o,
                                       const std::optional<Tensor>& lse) {
  std::vector<EmulatorBuffer> buffers;
  for (const auto& [name, tensor] : problem.tensors) {
    buffers.push_back(emulator_buffer(name, tensor));
  }
  buffers.push_back(output_buffer("o", o));
  if (lse) buffers.push_back(output_buffer("lse", *lse));
  if (problem.spec.accumulate) {
    buffers.back() = emulator_buffer("lse", problem.lse_before());
    buffers[buffers.size() - 2].uninitialised = false;  // o: NaN that is read and does not count
  }
  return buffers;
}

class EmulatorBackend final : public Backend {
 public:
  explicit EmulatorBackend(EmulatorSettings settings) : settings_(std::move(settings)) {}
  std::string name() const override { return "emulator"; }
  std::string device() const override { return "CPU"; }

  bool needs_ptx() const override { return true; }

  Result<BackendRun> run(const KernelPlan& plan, const std::shared_ptr<const KernelImage>& image,
                         const Problem& problem) override {
    DeviceShape device;
    device.sm_count = static_cast<int>(settings_.sm_count);
    Result<LaunchSequence> sequence = plan_launch(
        plan, problem.launch_shapes(), problem.launch_scalars(), problem.param_values(), device);
    if (!sequence) return std::move(sequence).error();
    if (!module_ || image_ != image) {
      Result<PtxModule> module = PtxModule::load(image->ptx);
      if (!module) return std::move(module).error();
      module_ = std::move(*module);
      image_ = image;
    }

    BackendRun run;
    run.model = settings_.model;
    if (settings_.model == "isa") {
      run.waivers = settings_.waivers;
      for (const Waiver& waiver : plan.waivers) {
        if (std::find(run.waivers.begin(), run.waivers.end(), waiver.name) == run.waivers.end()) {
          run.waivers.push_back(waiver.name);
        }
      }
    }
    const Result<EmulatorOptions> options =
        read_emulator_settings(settings_.model, run.waivers, settings_.seeds);
    if (!options) return options.error();
    if (Status s = execute(*module_, *sequence, problem, *options, run); !s) {
      return std::move(s).error();
    }
    if (run.findings.empty()) return run;

    // The image's PTX names no source lines. The same code with them gives the same findings.
    Result<std::string> ptx = ptx_with_lines(plan);
    if (!ptx) return run;
    Result<PtxModule> lines = PtxModule::load(std::move(*ptx));
    if (!lines) return std::move(lines).error();
    BackendRun again = run;
    if (Status s = execute(*lines, *sequence, problem, *options, again); !s) {
      return std::move(s).error();
    }
    return again.findings.empty() ? run : again;
  }

 private:
  static Status execute(const PtxModule& module, const LaunchSequence& sequence,
                        const Problem& problem, const EmulatorOptions& options, BackendRun& run) {
    run.o = output_of(problem);
    if (problem.spec.return_lse) run.lse = make_tensor(Dtype::kF32, problem.lse_shape());
    std::vector<EmulatorBuffer> buffers = buffers_of(problem, run.o, run.lse);
    run.findings.clear();
    Result<EmulatorReport> report = emulate(module, sequence, buffers, options);
    if (!report) return std::move(report).error();
    for (const Finding& finding : report->findings) {
      if (!finding.warning) run.findings.push_back(finding_text(finding));
    }
    for (EmulatorBuffer& buffer : buffers) {
      if (buffer.name == "o") {
        run.o.bytes = std::move(buffer.data);
      } else if (buffer.name == "lse") {
        run.lse->bytes = std::move(buffer.data);
      }
    }
    return {};
  }

  /// The PTX of a compile with line information, so that findings name source lines. No cache has
  /// it: it is needed only where something is wrong.
  static Result<std::string> ptx_with_lines(const KernelPlan& plan) {
    const std::optional<std::string> folder = read_environment().templates;
    Result<TemplateSet> templates =
        folder ? TemplateSet::from_folder(*folder) : Result<TemplateSet>(TemplateSet::embedded());
    if (!templates) return std::move(templates).error();
    Result<KernelSource> source = generate(plan, *templates);
    if (!source) return std::move(source).error();
    CompileRequest request;
    request.source = std::move(*source);
    request.ptx_only = true;
    request.line_info = true;
    const std::unique_ptr<Compiler> compiler =
        request.source.trusted ? make_helper_compiler() : make_in_process_compiler();
    Result<KernelImage> lines =
        compiler->compile(request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
    if (!lines) return std::move(lines).error();
    return std::move(lines->ptx);
  }

  EmulatorSettings settings_;
  std::shared_ptr<const KernelImage> image_;  // what module_ was made of
  std::optional<PtxModule> module_;
};

}  // namespace

EmulatorBuffer emulator_buffer(const std::string& name, const Tensor& tensor) {
  EmulatorBuffer buffer;
  buffer.name = name;
  buffer.dtype = tensor.dtype;
  for (const std::int64_t extent : tensor.shape) {
    buffer.shape.push_back(static_cast<std::uint64_t>(extent));
  }
  buffer.data = tensor.bytes;
  return buffer;
}

std::vector<EmulatorBuffer> emulator_buffers(const Problem& problem) {
  std::optional<Tensor> lse;
  if (problem.spec.return_lse) lse = make_tensor(Dtype::kF32, problem.lse_shape());
  return buffers_of(problem, output_of(problem), lse);
}

Result<std::unique_ptr<Backend>> make_emulator_backend(const EmulatorSettings& settings) {
  const Result<EmulatorOptions> valid =
      read_emulator_settings(settings.model, settings.waivers, settings.seeds);
  if (!valid) return valid.error();
  if (settings.sm_count < 1 || settings.sm_count > kMaxSms) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; allowed: 1 to {}", settings.sm_count, kMaxSms),
                      "sm_count");
  }
  return std::unique_ptr<Backend>(std::make_unique<EmulatorBackend>(settings));
}

}  // namespace attnjit::verify

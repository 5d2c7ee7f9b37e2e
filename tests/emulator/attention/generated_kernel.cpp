// SPDX-License-Identifier: Apache-2.0
// Plans, generates and compiles attention kernels, and runs them in the emulator.
#include "generated_kernel.h"

#include <chrono>

#include "attnjit/compile.h"
#include "verify/emulator_backend.h"
#include "verify/numeric.h"

namespace attnjit::emulator {
namespace {

EmulatorBuffer output_of(const std::string& name, verify::Tensor tensor) {
  verify::poison(tensor);
  EmulatorBuffer buffer = verify::emulator_buffer(name, tensor);
  buffer.uninitialised = true;
  return buffer;
}

}  // namespace

Result<GeneratedKernel> generate_kernel(const AttentionSpec& spec, const PlanOptions& options,
                                        const TemplateSet& templates, const Tuning* tuning,
                                        CompileTo to) {
  GeneratedKernel kernel;
  Result<KernelPlan> planned = plan(spec, options, tuning);
  if (!planned) return std::move(planned).error();
  kernel.plan = std::move(*planned);
  Result<KernelSource> source = generate(kernel.plan, templates);
  if (!source) return std::move(source).error();
  CompileRequest request;
  request.source = std::move(*source);
  request.want_ptx = true;
  request.ptx_only = to == CompileTo::kPtx;
  // Tests ask for the kernel of another launch of the same spec, one after the other.
  thread_local std::pair<std::string, KernelImage> last;
  std::string key = request.ptx_only ? "ptx" : "image";
  for (const std::string& option : request.source.options) key += '\n' + option;
  key += '\n' + request.source.template_digest + '\n' + request.source.text;
  if (last.first != key) {
    Result<KernelImage> image = make_in_process_compiler()->compile(
        request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
    if (!image) return std::move(image).error();
    last = {std::move(key), std::move(*image)};
  }
  kernel.ptx = last.second.ptx;
  kernel.usage = last.second.usage;
  kernel.log = last.second.log;
  return kernel;
}

Result<LaunchSequence> launch_of(const KernelPlan& plan, const verify::Problem& problem,
                                 const DeviceShape& device) {
  return plan_launch(plan, problem.launch_shapes(), problem.launch_scalars(),
                     problem.param_values(), device);
}

Result<KernelRun> run_kernel(const PtxModule& module, const LaunchSequence& sequence,
                             const verify::Problem& problem, const EmulatorOptions& options,
                             std::map<std::string, std::vector<std::uint8_t>> workspaces) {
  std::vector<EmulatorBuffer> buffers;
  for (const auto& [name, tensor] : problem.tensors)
    buffers.push_back(verify::emulator_buffer(name, tensor));
  KernelRun run;
  run.o = verify::make_tensor(problem.spec.output_dtype.value_or(problem.spec.qkv_dtype),
                              problem.o_shape());
  buffers.push_back(output_of("o", run.o));
  if (problem.spec.return_lse) {
    run.lse = verify::make_tensor(Dtype::kF32, problem.lse_shape());
    buffers.push_back(output_of("lse", *run.lse));
  }
  for (auto& [name, bytes] : workspaces) {
    EmulatorBuffer buffer;
    buffer.name = name;
    buffer.dtype = Dtype::kU8;
    buffer.shape = {bytes.size()};
    buffer.data = std::move(bytes);
    buffers.push_back(std::move(buffer));
  }
  Result<EmulatorReport> report = emulate(module, sequence, buffers, options);
  if (!report) return std::move(report).error();
  run.report = std::move(*report);
  for (EmulatorBuffer& buffer : buffers) {
    if (buffer.name == "o") run.o.bytes = std::move(buffer.data);
    if (buffer.name == "lse") run.lse->bytes = std::move(buffer.data);
    if (workspaces.contains(buffer.name)) run.workspaces[buffer.name] = std::move(buffer.data);
  }
  return run;
}

}  // namespace attnjit::emulator

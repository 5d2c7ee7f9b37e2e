// SPDX-License-Identifier: Apache-2.0
// Plans, generates and compiles attention kernels, and runs them in the emulator.
#include "generated_kernel.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "attnjit/compile.h"
#include "base/sha256.h"
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

/// By NVRTC. PTX is shared by the processes of a run of tests, in the folder that scripts/test
/// makes for it and names in ATTNJIT_TEST_PTX: a file's name is the digest of all that the compiler
/// is given.
Result<KernelImage> compiled(const CompileRequest& request, const std::string& key) {
  const std::shared_ptr<Compiler> compiler = make_in_process_compiler();
  const char* const folder = std::getenv("ATTNJIT_TEST_PTX");
  std::string path;
  if (folder != nullptr && request.ptx_only) {
    const Result<std::string> build = compiler->build_id();
    if (!build) return build.error();
    path = std::string(folder) + '/' + to_hex(sha256(*build + '\n' + key));
    if (std::ifstream file(path, std::ios::binary); file) {
      KernelImage image;
      image.ptx.assign(std::istreambuf_iterator<char>(file), {});
      return image;
    }
  }
  Result<KernelImage> image =
      compiler->compile(request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
  if (image && !path.empty()) {
    const std::string own = path + '.' + std::to_string(::getpid());
    std::ofstream(own, std::ios::binary) << image->ptx;
    std::filesystem::rename(own, path);
  }
  return image;
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
  std::string key = request.ptx_only ? "ptx" : "image";
  for (const std::string& option : request.source.options) key += '\n' + option;
  key += '\n' + request.source.template_digest + '\n' + request.source.text;
  // Tests ask for the kernel of another launch of the same spec, soon after the first.
  thread_local std::deque<std::pair<std::string, KernelImage>> made;
  auto found = std::find_if(made.begin(), made.end(), [&](auto& one) { return one.first == key; });
  if (found == made.end()) {
    Result<KernelImage> image = compiled(request, key);
    if (!image) return std::move(image).error();
    if (made.size() == 8) made.pop_back();
    made.emplace_front(std::move(key), std::move(*image));
    found = made.begin();
  }
  kernel.ptx = found->second.ptx;
  kernel.usage = found->second.usage;
  kernel.log = found->second.log;
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

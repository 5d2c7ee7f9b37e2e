// SPDX-License-Identifier: Apache-2.0
// Writes LAUNCH.json and the tensors that it names into a folder.
#include "cli/launch_folder.h"

#include <fmt/format.h>

#include "cli/files.h"
#include "cli/spec_source.h"
#include "plan/launch/launch_json.h"
#include "verify/npy.h"

namespace attnjit::cli {
namespace {

// .npy has no bf16 and no e4m3: they travel as integers of their size.
verify::Tensor storable(const verify::Tensor& tensor) {
  verify::Tensor result = tensor;
  if (tensor.dtype == Dtype::kBf16) result.dtype = Dtype::kU16;
  if (tensor.dtype == Dtype::kE4m3) result.dtype = Dtype::kU8;
  return result;
}

}  // namespace

Status write_launch(const std::string& folder, const KernelPlan& plan,
                    const ProblemArguments& arguments, const DeviceShape& device,
                    std::vector<std::string>& files) {
  Result<verify::ProblemRequest> request = read_problem(arguments, plan.spec);
  if (!request) return std::move(request).error();
  Result<verify::Problem> problem = verify::make_problem(plan.spec, *request);
  if (!problem) return std::move(problem).error();
  Result<LaunchSequence> sequence = plan_launch(
      plan, problem->launch_shapes(), problem->launch_scalars(), problem->param_values(), device);
  if (!sequence) return std::move(sequence).error();

  LaunchDocument launch;
  launch.sequence = std::move(*sequence);
  launch.seed = request->seed;
  for (const auto& [name, tensor] : problem->tensors) {
    const std::string file = name + ".npy";
    files.push_back(fmt::format("{}/{}", folder, file));
    if (Status s = verify::write_npy(files.back(), storable(tensor)); !s) return s;
    LaunchBuffer buffer;
    buffer.name = name;
    buffer.dtype = tensor.dtype;
    buffer.file = file;
    launch.buffers.push_back(std::move(buffer));
  }
  const auto output = [&](const char* name, Dtype dtype, std::vector<std::int64_t> shape) {
    LaunchBuffer buffer;
    buffer.name = name;
    buffer.dtype = dtype;
    buffer.shape = std::move(shape);
    launch.buffers.push_back(std::move(buffer));
    launch.out[name] = std::string(name) + ".npy";
  };
  output("o", plan.spec->output_dtype.value_or(plan.spec->qkv_dtype), problem->o_shape());
  if (plan.spec->return_lse) output("lse", Dtype::kF32, problem->lse_shape());
  if (plan.spec->accumulate) {
    launch.buffers.back().file = "lse_before.npy";
    launch.buffers.back().shape.clear();
    files.push_back(folder + "/lse_before.npy");
    if (Status s = verify::write_npy(files.back(), problem->lse_before()); !s) return s;
    launch.buffers[launch.buffers.size() - 2].fill = 0;  // o: it does not count
  }
  files.push_back(folder + "/LAUNCH.json");
  return write_file(files.back(), launch_to_json(launch));
}

}  // namespace attnjit::cli

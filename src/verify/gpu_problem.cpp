// SPDX-License-Identifier: Apache-2.0
// Copies a Problem's tensors to the GPU, and the kernel's outputs back.
#include "verify/gpu_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "plan/kernel/sequence.h"
#include "plan/launch/wait_records.h"

namespace attnjit::verify {
namespace {

constexpr std::int64_t kGuardBytes = 4096;
constexpr std::uint8_t kPoison = 0xff;  // a NaN in every float type

constexpr std::array<std::pair<const char*, DevicePointer LaunchBuffers::*>, 27> kBuffers{{
    {"q", &LaunchBuffers::q},
    {"k", &LaunchBuffers::k},
    {"v", &LaunchBuffers::v},
    {"o", &LaunchBuffers::o},
    {"lse", &LaunchBuffers::lse},
    {"sink", &LaunchBuffers::sink},
    {"page_table", &LaunchBuffers::page_table},
    {"kv_lens", &LaunchBuffers::kv_lens},
    {"q_offsets", &LaunchBuffers::q_offsets},
    {"kv_offsets", &LaunchBuffers::kv_offsets},
    {"pairs_o", &LaunchBuffers::pairs_o},
    {"pairs_lse", &LaunchBuffers::pairs_lse},
    {"q_scale", &LaunchBuffers::q_scale},
    {"k_scale", &LaunchBuffers::k_scale},
    {"v_scale", &LaunchBuffers::v_scale},
    {"output_scale", &LaunchBuffers::output_scale},
    {"mask", &LaunchBuffers::mask},
    {"kv_num_blocks", &LaunchBuffers::kv_num_blocks},
    {"kv_indices", &LaunchBuffers::kv_indices},
    {"full_kv_num_blocks", &LaunchBuffers::full_kv_num_blocks},
    {"full_kv_indices", &LaunchBuffers::full_kv_indices},
    {"kv_bits", &LaunchBuffers::kv_bits},
    {"block_bits", &LaunchBuffers::block_bits},
    {"slopes", &LaunchBuffers::slopes},
    {"topk_indices", &LaunchBuffers::topk_indices},
    {"q_rope", &LaunchBuffers::q_rope},
    {"k_rope", &LaunchBuffers::k_rope},
}};

/// Absorbed MLA's V is part of K: a launch is given none.
bool is_given(const Problem& problem, const std::string& tensor) {
  return problem.spec.mla != Mla::kDecode || tensor != "v";
}

Tensor empty_output(const Problem& problem, bool is_lse) {
  if (is_lse) return make_tensor(Dtype::kF32, problem.lse_shape());
  return make_tensor(problem.spec.output_dtype.value_or(problem.spec.qkv_dtype), problem.o_shape());
}

}  // namespace

Result<GpuProblem> GpuProblem::upload(const Device& device, const Problem& problem, void* stream) {
  GpuProblem gpu;
  for (const auto& [name, tensor] : problem.tensors) {
    if (!is_given(problem, name)) continue;
    const auto bytes = static_cast<std::int64_t>(tensor.bytes.size());
    // NOTE: never empty: a null pointer would say that the tensor is missing.
    Result<DeviceBuffer> buffer = device.allocate(std::max<std::int64_t>(bytes, 16));
    if (!buffer) return std::move(buffer).error();
    if (bytes > 0) {
      Status status = device.upload(buffer->pointer(), tensor.bytes.data(), bytes, stream);
      if (!status) return std::move(status).error();
    }
    gpu.buffers_[name] = std::move(*buffer);
  }
  for (const bool is_lse : {false, true}) {
    if (is_lse && !problem.spec.return_lse) continue;
    const auto bytes =
        static_cast<std::int64_t>(empty_output(problem, is_lse).bytes.size()) + kGuardBytes;
    Result<DeviceBuffer> buffer = device.allocate(bytes);
    if (!buffer) return std::move(buffer).error();
    Status status = device.fill(buffer->pointer(), kPoison, bytes, stream);
    if (!status) return std::move(status).error();
    if (is_lse && problem.spec.accumulate) {
      const Tensor before = problem.lse_before();
      status = device.upload(buffer->pointer(), before.bytes.data(),
                             static_cast<std::int64_t>(before.bytes.size()), stream);
      // NOTE: `before` is read until the stream has copied it.
      if (status) status = device.synchronize(stream);
      if (!status) return std::move(status).error();
    }
    gpu.buffers_[is_lse ? "lse" : "o"] = std::move(*buffer);
  }
  if (Status status = device.synchronize(stream); !status) return std::move(status).error();

  gpu.args_.shapes = problem.launch_shapes();
  gpu.args_.scalars = problem.launch_scalars();
  gpu.args_.stream = stream;
  for (const auto& [name, member] : kBuffers) {
    const auto found = gpu.buffers_.find(name);
    if (found != gpu.buffers_.end()) gpu.args_.buffers.*member = found->second.pointer();
  }
  for (const UserParamShape& value : problem.param_values()) {
    const std::string name = "param_" + value.name;
    const Tensor& tensor = problem.at(name);
    UserParam param;
    param.name = value.name;
    if (!tensor.shape.empty()) {
      param.value = DeviceArray{gpu.buffers_[name].pointer(), tensor.dtype, value.extent};
    } else {
      std::visit([&](auto number) { param.value = number; }, value.scalar);
    }
    gpu.args_.params.push_back(std::move(param));
  }
  return gpu;
}

std::string GpuProblem::unended_waits(const KernelPlan& plan) const {
  if (wait_words_ == nullptr) return {};
  return describe_waits(plan, {wait_words_, kWaitRecordsWords});
}

Status GpuProblem::prepare(const Device& device, const Kernel& kernel, std::uint64_t seed) {
  Result<WorkspaceNeed> need = kernel.workspace(args_);
  if (!need) return std::move(need).error();
  if (need->bytes == 0) return {};
  args_.workspace_bytes = need->bytes;
  if (has_wait_records(kernel.plan())) {
    Result<HostBuffer> host = device.allocate_host(need->bytes);
    if (!host) return std::move(host).error();
    // NOTE: the last of what must be zero.
    wait_words_ = reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(host->data()) +
                                                   need->zero_bytes - kWaitRecordsBytes);
    wait_words_[kWaitSeedWord] = static_cast<std::uint32_t>(seed);
    args_.workspace = host->pointer();
    host_workspace_ = std::move(*host);
    return {};
  }
  Result<DeviceBuffer> buffer = device.allocate(need->bytes);
  if (!buffer) return std::move(buffer).error();
  Status status = device.fill(buffer->pointer(), kPoison, need->bytes, args_.stream);
  // Who takes no tile leaves the tile counters as they are, for those who do.
  const std::int64_t zero_bytes = std::max(need->zero_bytes, left_zero_bytes());
  if (status) status = device.fill(buffer->pointer(), 0, zero_bytes, args_.stream);
  args_.workspace = buffer->pointer();
  buffers_["workspace"] = std::move(*buffer);
  return status;
}

std::int64_t GpuProblem::left_zero_bytes() const {
  return std::min(args_.workspace_bytes, WorkspaceNeed::kZeroBytes);
}

Result<std::string> GpuProblem::spoiled_workspace(const Device& device) const {
  std::vector<std::uint8_t> left(static_cast<std::size_t>(left_zero_bytes()));
  if (left.empty()) return std::string();
  const auto bytes = static_cast<std::int64_t>(left.size());
  Status status = device.download(left.data(), args_.workspace, bytes, args_.stream);
  if (status) status = device.synchronize(args_.stream);
  if (!status) return std::move(status).error();
  const auto found =
      std::find_if(left.begin(), left.end(), [](std::uint8_t byte) { return byte != 0; });
  if (found == left.end()) return std::string();
  return fmt::format(
      "byte {} of the workspace is {:#04x} after the launch, which is to leave it zero",
      found - left.begin(), *found);
}

Status GpuProblem::download(const Device& device, const Problem& problem, Tensor& o,
                            std::optional<Tensor>& lse, std::vector<std::string>& overrun) const {
  for (const bool is_lse : {false, true}) {
    if (is_lse && !problem.spec.return_lse) continue;
    const char* name = is_lse ? "lse" : "o";
    Tensor tensor = empty_output(problem, is_lse);
    const std::size_t bytes = tensor.bytes.size();
    tensor.bytes.resize(bytes + kGuardBytes);
    Status status = device.download(tensor.bytes.data(), buffers_.find(name)->second.pointer(),
                                    static_cast<std::int64_t>(tensor.bytes.size()), args_.stream);
    if (!status) return status;
    if (status = device.synchronize(args_.stream); !status) return status;
    if (std::any_of(tensor.bytes.begin() + static_cast<std::ptrdiff_t>(bytes), tensor.bytes.end(),
                    [](std::uint8_t byte) { return byte != kPoison; })) {
      overrun.push_back(std::string(name) + " was written past its end");
    }
    tensor.bytes.resize(bytes);
    if (is_lse) {
      lse = std::move(tensor);
    } else {
      o = std::move(tensor);
    }
  }
  return {};
}

std::int64_t GpuProblem::bytes_of(const Problem& problem) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : problem.tensors) {
    if (is_given(problem, name)) bytes += static_cast<std::int64_t>(tensor.bytes.size());
  }
  bytes += static_cast<std::int64_t>(empty_output(problem, false).bytes.size()) + kGuardBytes;
  if (problem.spec.return_lse) {
    bytes += static_cast<std::int64_t>(empty_output(problem, true).bytes.size()) + kGuardBytes;
  }
  return bytes;
}

}  // namespace attnjit::verify

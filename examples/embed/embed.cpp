// SPDX-License-Identifier: Apache-2.0
// Embeds attnjit: compiles an attention kernel, launches it on the GPU and checks the result.
//
//     embed [ARCH]        ARCH: sm_90a (the default), sm_100a or sm_103a
//
// It exits with 4 and says what is missing where there is no NVRTC or no GPU, with 1 where the
// result is wrong, and with 0 where it is right.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "attnjit/service.h"
#include "attnjit/spec.h"
#include "attnjit/types.h"
#include "gpu.h"
#include "reference.h"

namespace {

using namespace std::chrono_literals;
using Tensor = std::vector<std::uint16_t>;

/// The value of a Result, or its Error as an exception of this program: attnjit throws none.
template <class T>
T take(attnjit::Result<T> result) {
  if (!result) throw std::move(result).error();
  return *std::move(result);
}
void take(const attnjit::Status& status) {
  if (!status) throw status.error();
}

gpu open_gpu() {
  gpu device = {};
  const char* problem = gpu_open(&device);
  if (problem != nullptr) throw attnjit::make_error(attnjit::ErrorCode::kEnvironment, problem);
  return device;
}

Tensor random_tensor(std::size_t size, std::uint32_t seed) {
  Tensor tensor(size);
  fill(tensor.data(), size, seed);
  return tensor;
}

std::uint64_t upload(const gpu& device, const Tensor& tensor) {
  return gpu_upload(&device, tensor.data(), tensor.size() * sizeof tensor[0]);
}

Tensor download(const gpu& device, std::uint64_t pointer, std::size_t size) {
  Tensor tensor(size);
  gpu_download(&device, tensor.data(), pointer, size * sizeof tensor[0]);
  return tensor;
}

/// Compares O with the reference, and returns this program's exit code.
int check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o) {
  const double error = relative_error(q.data(), k.data(), v.data(), o.data());
  const bool right = error <= 1e-2;  // what bf16 allows; false for NaN
  std::printf("relative error %.1e: %s\n", error, right ? "right" : "wrong");
  return right ? 0 : 1;
}

int run(attnjit::Arch arch) {
  const Tensor q = random_tensor(kQuerySize, 1), k = random_tensor(kKeySize, 2);
  const Tensor v = random_tensor(kKeySize, 3), unwritten(kQuerySize);

  // NOTE: README.md shows the lines from here to the end of the function; a test compares them.
  auto service = take(attnjit::Service::create());
  const char* json = R"({"num_q_heads": 8, "group": 4, "qk_depth": 128, "mask": "causal"})";
  auto spec = take(attnjit::spec_from_json(json)).spec;
  spec.arch = arch;
  auto prepared = take(service->prepare(spec));      // once per model: planned and hashed
  auto* kernel = take(service->get(prepared, 60s));  // from the cache, or compiled now
  const gpu device = open_gpu();
  attnjit::LaunchArgs args;
  args.shapes = {.q_len = kRows, .kv_len = kKeys};
  args.buffers = {.q = upload(device, q), .k = upload(device, k), .v = upload(device, v)};
  args.buffers.o = upload(device, unwritten);
  attnjit::LaunchState state;  // one per stream, or per stream and kernel
  take(kernel->launch(args, state));
  const Tensor o = download(device, args.buffers.o, kQuerySize);
  return check(q, k, v, o);  // against a small reference on the CPU
}

}  // namespace

int main(int argc, char** argv) {
  const auto arch = attnjit::arch_from_string(argc > 1 ? argv[1] : "sm_90a");
  if (!arch) {
    std::fprintf(stderr, "%s is no architecture that attnjit knows\n", argv[1]);
    return 2;
  }
  try {
    return run(*arch);
  } catch (const attnjit::Error& error) {
    std::fprintf(stderr, "%s\n", error.to_string().c_str());
    return attnjit::exit_code(error.code);
  }
}

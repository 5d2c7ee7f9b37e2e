// SPDX-License-Identifier: Apache-2.0
// What a problem's tensors take in device memory.
#include "verify/gpu_problem.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "../driver/fake_cuda.h"
#include "../driver/test_cubin.h"
#include "attnjit/plan.h"

namespace attnjit::verify {
namespace {

TEST(GpuProblem, AbsorbedMlaHasNoVOfItsOwn) {
  AttentionSpec spec;
  spec.num_q_heads = spec.group = 16;
  spec.qk_depth = 192;
  spec.ov_depth = 128;
  ProblemRequest request;
  request.q_lens = {2};
  request.kv_lens = {100};
  const auto bytes = [&] { return GpuProblem::bytes_of(make_problem(spec, request).value()); };
  const std::int64_t with_v = bytes();
  spec.mla = Mla::kDecode;
  EXPECT_EQ(with_v - bytes(), 100 * 128 * 2);
}

// The fake driver's memory is the host's: the test spoils it as a kernel would.
TEST(GpuProblem, WordsThatALaunchDoesNotLeaveZeroAreTold) {
  DriverOptions options;
  options.driver_path = ATTNJIT_FAKE_CUDA;
  const auto driver = Driver::open(options).value();
  const Device device = Device::open(driver, 0).value();
  ASSERT_TRUE(device.make_current().ok());
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 2;
  spec.qk_depth = 64;
  spec.ragged = true;
  for (const bool splits : {false, true}) {
    spec.num_partitions = splits ? 2 : 1;
    ProblemRequest request;
    request.q_lens = {2, 3};
    request.kv_lens = {100};
    const Problem problem = make_problem(spec, request).value();
    const KernelPlan planned = plan(spec).value();
    auto image = std::make_shared<KernelImage>();
    for (const PlannedKernel& kernel : planned.kernels) image->entries.push_back(kernel.entry);
    image->cubin = fake::make_cubin(image->entries);
    fake::fake_cuda().kernel_names = image->entries;
    const auto kernel = driver->load(image, planned).value();
    GpuProblem gpu = GpuProblem::upload(device, problem, nullptr).value();
    ASSERT_TRUE(gpu.prepare(device, *kernel).ok());
    ASSERT_GE(gpu.args().workspace_bytes, WorkspaceNeed::kZeroBytes);
    EXPECT_EQ(gpu.spoiled_workspace(device).value(), "");
    auto* const words = reinterpret_cast<std::uint8_t*>(gpu.args().workspace);
    for (const int byte : {0, 8, 15, 16, 255}) {
      words[byte] = 3;
      EXPECT_EQ(gpu.spoiled_workspace(device).value(),
                "byte " + std::to_string(byte) +
                    " of the workspace is 0x03 after the launch, which is to leave it zero");
      words[byte] = 0;
    }
    EXPECT_EQ(gpu.spoiled_workspace(device).value(), "");
  }
  fake::fake_cuda().reset();
}

}  // namespace
}  // namespace attnjit::verify

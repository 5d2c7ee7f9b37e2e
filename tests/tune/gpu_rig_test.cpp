// SPDX-License-Identifier: Apache-2.0
// The GPU rig against a driver without a GPU: what it loads, launches and times.
#include "fake_cuda.h"
#include "test_cubin.h"
#include "tune_fixture.h"
#include "verify/random_inputs.h"

namespace attnjit::tune {
namespace {

class GpuRig : public ::testing::Test {
 protected:
  GpuRig() : cuda_(fake::fake_cuda()) {
    cuda_.reset();
    cuda_.kernel_names = {"attnjit_forward"};
    options_.driver_path = ATTNJIT_FAKE_CUDA;
  }
  ~GpuRig() override { cuda_.reset(); }

  static std::shared_ptr<const KernelImage> image() {
    auto image = std::make_shared<KernelImage>();
    image->entries = {"attnjit_forward"};
    image->cubin = fake::make_cubin(image->entries);
    return image;
  }
  static verify::Problem problem(std::int64_t length) {
    verify::ProblemRequest request;
    request.q_lens = request.kv_lens = {length};
    return verify::make_problem(small_spec(), request).value();
  }

  fake::FakeCuda& cuda_;
  DriverOptions options_;
};

TEST_F(GpuRig, TimesVariantsInTurnOverBuffersOfEachProblem) {
  std::unique_ptr<TuningRig> rig = make_gpu_rig(Arch::kSm90a, options_).value();
  EXPECT_EQ(rig->device().name, "NVIDIA H200 (fake)");
  EXPECT_EQ(rig->device().driver, "CUDA 12.8");
  EXPECT_EQ(rig->device().sm_count, 132);
  const Variants variants = enumerate_variants(small_spec(), {}, 2).value();
  ASSERT_EQ(variants.list.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(rig->load(i, variants.list[i].plan, image()).ok());
  }
  for (const std::int64_t length : {64, 128}) {
    ASSERT_TRUE(rig->use(problem(length)).ok());
    for (const std::size_t variant : {0, 1, 0}) {
      const std::size_t before = cuda_.launches.size();
      const Result<double> ms = rig->time(variant, 3);
      ASSERT_TRUE(ms.ok()) << ms.error().to_string();
      EXPECT_NEAR(*ms, 0.5, 1e-6);  // the fake's 1.5 ms, of three launches
      ASSERT_EQ(cuda_.launches.size(), before + 3);
      EXPECT_EQ(cuda_.launches.back().config.dynamic_smem,
                static_cast<unsigned>(variants.list[variant].plan.main().smem_bytes));
    }
  }
}

TEST_F(GpuRig, AnotherArchitectureIsNotServed) {
  const Result<std::unique_ptr<TuningRig>> rig = make_gpu_rig(Arch::kSm100a, options_);
  ASSERT_FALSE(rig.ok());
  EXPECT_EQ(rig.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(rig.error().message.find("H200"), std::string::npos);
}

// Whatever call of the driver fails, the rig returns an error.
TEST_F(GpuRig, EveryDriverErrorIsReturned) {
  const Variants variants = enumerate_variants(small_spec(), {}, 1).value();
  const verify::Problem small = problem(64);
  bool whole = false;
  for (int nth = 1; !whole && nth < 200; ++nth) {
    cuda_.reset();
    cuda_.kernel_names = {"attnjit_forward"};
    cuda_.fail_nth_call = nth;
    cuda_.fail_nth_code = 2;  // out of memory
    Result<std::unique_ptr<TuningRig>> rig = make_gpu_rig(Arch::kSm90a, options_);
    bool failed = !rig.ok();
    if (!failed) failed = !(*rig)->load(0, variants.list[0].plan, image()).ok();
    if (!failed) failed = !(*rig)->run(0, small).ok();
    if (!failed) failed = !(*rig)->use(small).ok();
    if (!failed) failed = !(*rig)->time(0, 2).ok();
    if (cuda_.fail_nth_call > 0) {
      EXPECT_FALSE(failed);
      whole = true;
    }
  }
  EXPECT_TRUE(whole);
}

}  // namespace
}  // namespace attnjit::tune

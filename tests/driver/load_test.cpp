// SPDX-License-Identifier: Apache-2.0
// Opening the driver, loading kernels, contexts and stream capture, against the fake driver.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "driver/device.h"
#include "driver/primary_context.h"
#include "driver_fixture.h"

namespace attnjit {
namespace {

using LoadTest = DriverFixture;

TEST_F(LoadTest, NoSuchLibraryIsAnEnvironmentErrorThatNamesIt) {
  DriverOptions options;
  options.driver_path = "/nonexistent/libcuda.so.1";
  const auto driver = Driver::open(options);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(driver.error().message.find("/nonexistent/libcuda.so.1"), std::string::npos);
  EXPECT_FALSE(driver.error().hint.empty());
}

TEST_F(LoadTest, LibraryThatIsNoDriverIsRefused) {
  DriverOptions options;
  options.driver_path = "libm.so.6";
  const auto driver = Driver::open(options);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(driver.error().message.find("cuGetProcAddress_v2"), std::string::npos);
}

TEST_F(LoadTest, OldDriverIsRefusedWithWhatItLacks) {
  cuda_.version = 11080;
  DriverOptions options;
  options.driver_path = ATTNJIT_FAKE_CUDA;
  const auto driver = Driver::open(options);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(driver.error().message.find("cuLibraryLoadData"), std::string::npos);
  EXPECT_NE(driver.error().message.find("11.8"), std::string::npos);
}

TEST_F(LoadTest, OptionalFunctionsMayBeAbsent) {
  cuda_.absent = {"cuFuncLoad", "cuLibraryGetKernelCount"};
  open();
  cuda_.primary(0);
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 0);
}

TEST_F(LoadTest, FailingInitIsAnEnvironmentErrorWithTheCudaName) {
  cuda_.fail("cuInit", 1, cuda::kNoDevice);
  DriverOptions options;
  options.driver_path = ATTNJIT_FAKE_CUDA;
  const auto driver = Driver::open(options);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(driver.error().message.find("CUDA_ERROR_NO_DEVICE"), std::string::npos);
  EXPECT_NE(driver.error().hint.find("nvidia-smi"), std::string::npos);
}

TEST_F(LoadTest, ReportsVersionAndPath) {
  open();
  EXPECT_EQ(driver_->version(), 12080);
  EXPECT_EQ(driver_->path(), ATTNJIT_FAKE_CUDA);
}

TEST_F(LoadTest, LoadsWithoutAContextAndUnloadsOnce) {
  open();
  {
    const auto kernel = load();
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    EXPECT_EQ((*kernel)->plan().main().entry, "attnjit_kernel");
    EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
    EXPECT_EQ(cuda_.count("cuKernelGetFunction"), 0);
    const auto other = (*kernel)->with_plan(test_plan());
    EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
  }
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
  EXPECT_FALSE(cuda_.libraries[1].loaded);
}

TEST_F(LoadTest, LibraryLivesUntilItsLastKernel) {
  open();
  auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  const auto other = (*kernel)->with_plan(test_plan());
  kernel->reset();
  EXPECT_TRUE(cuda_.libraries[1].loaded);
}

TEST_F(LoadTest, WithAContextTheKernelIsLoadedWhole) {
  open();
  cuda_.primary(0);
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 1);
  EXPECT_EQ(cuda_.libraries[1].max_dynamic_smem[0], 100000);
  EXPECT_TRUE((*kernel)->prepare().ok());
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 1) << "a second time it was done already";
}

TEST_F(LoadTest, UnloadAfterTheDriverShutDownIsQuiet) {
  open();
  auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  cuda_.shut_down = true;
  kernel->reset();
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
}

TEST_F(LoadTest, DestroyedContextLeavesNoStaleHandle) {
  open();
  const cuda::Context first = cuda_.create_context(0);
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  LaunchState state;
  ASSERT_TRUE((*kernel)->launch(args(), state).ok());
  cuda_.destroy_context(first);
  cuda_.create_context(0);
  const Status again = (*kernel)->launch(args(), state);
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
  EXPECT_EQ(cuda_.launches.size(), 2U);
  EXPECT_NE(cuda_.launches[0].context_id, cuda_.launches[1].context_id);
}

TEST_F(LoadTest, WrongArchSaysWhichArchTheDeviceHas) {
  open();
  cuda_.primary(0);
  AttentionSpec spec = test_spec();
  spec.arch = Arch::kSm100a;
  const KernelPlan plan = test_plan(spec);
  for (const char* function : {"cuLibraryLoadData", "cuKernelGetFunction", "cuFuncLoad"}) {
    cuda_.fail(function, 1, cuda::kNoBinaryForGpu);
    const auto kernel = driver_->load(image(100), plan);
    ASSERT_FALSE(kernel.ok()) << function;
    EXPECT_EQ(kernel.error().code, ErrorCode::kDriver);
    EXPECT_NE(kernel.error().message.find(function), std::string::npos) << kernel.error().message;
    EXPECT_NE(kernel.error().message.find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos);
    EXPECT_NE(kernel.error().hint.find("sm_100a"), std::string::npos) << kernel.error().hint;
    EXPECT_NE(kernel.error().hint.find("sm_90a"), std::string::npos) << kernel.error().hint;
  }
}

TEST_F(LoadTest, TooMuchSharedMemoryIsRefusedBeforeTheLaunch) {
  open();
  cuda_.primary(0);
  KernelPlan plan = test_plan();
  plan.main().smem_bytes = 300000;
  const auto kernel = load(plan);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(kernel.error().message.find("232448"), std::string::npos);
}

TEST_F(LoadTest, DamagedImagesNeverReachTheDriver) {
  open();
  const std::vector<std::uint8_t> good = image()->cubin;
  for (std::size_t size = 0; size < good.size(); ++size) {
    auto cut = std::make_shared<KernelImage>();
    cut->cubin.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    const auto kernel = driver_->load(cut, test_plan());
    ASSERT_FALSE(kernel.ok()) << size;
    EXPECT_EQ(kernel.error().code, ErrorCode::kCorrupt);
  }
  auto foreign = std::make_shared<KernelImage>();
  foreign->cubin = fake::make_cubin({"another_kernel"});
  const auto kernel = driver_->load(foreign, test_plan());
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 0);
}

TEST_F(LoadTest, MoreKernelsThanTheImageShouldHaveAreRefused) {
  open();
  cuda_.kernel_names = {"attnjit_kernel", "evil"};
  const auto kernel = load();
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(cuda_.libraries[1].loaded) << "and it is not left loaded";
}

TEST_F(LoadTest, EveryFailingCallGivesATypedErrorAndLeaksNothing) {
  open();
  cuda_.primary(0);
  int failures = 0;
  for (int nth = 1; nth < 200; ++nth) {
    cuda_.libraries.resize(1);
    cuda_.fail_nth_code = cuda::kOutOfMemory;
    cuda_.fail_nth_call = nth;
    bool failed = false;
    {
      auto kernel = load();
      failed = !kernel.ok();
      if (kernel) {
        LaunchState state;
        const Status launched = (*kernel)->launch(args(), state);
        failed = !launched.ok();
        if (failed) {
          EXPECT_EQ(launched.error().code, ErrorCode::kDriver) << nth;
          // The next launch starts afresh and succeeds.
          cuda_.fail_nth_call = 0;
          const Status retried = (*kernel)->launch(args(), state);
          EXPECT_TRUE(retried.ok()) << nth << retried.error().to_string();
        }
      } else {
        // An attribute that cannot be read counts as 0, which no kernel fits into.
        EXPECT_TRUE(kernel.error().code == ErrorCode::kDriver ||
                    kernel.error().code == ErrorCode::kUnsupported)
            << nth << kernel.error().to_string();
      }
    }
    const bool all_done = cuda_.fail_nth_call > 0;
    cuda_.fail_nth_call = 0;
    failures += failed ? 1 : 0;
    if (all_done) break;
    for (std::size_t i = 1; i < cuda_.libraries.size(); ++i) {
      // Unless the unloading itself was what failed.
      if (cuda_.libraries[i].loaded) {
        EXPECT_EQ(cuda_.trace.back(), "cuThreadExchangeStreamCaptureMode") << nth;
      }
    }
  }
  EXPECT_GT(failures, 10);
}

// --- Capture ------------------------------------------------------------------------------------

TEST_F(LoadTest, LaunchOfALoadedKernelIsCaptured) {
  open();
  cuda_.primary(0);
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  LaunchArgs arguments = args();
  const cuda::Stream stream = cuda_.create_stream();
  arguments.stream = stream;
  cuda_.begin_capture(stream);
  LaunchState state;
  const Status launched = (*kernel)->launch(arguments, state);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  EXPECT_EQ(cuda_.end_capture(stream), 1) << "the capture is still valid";
  EXPECT_EQ(cuda_.launches.size(), 1U);
}

TEST_F(LoadTest, LaunchThatWouldLoadDuringCaptureIsRefusedAndBreaksNothing) {
  open();
  const auto kernel = load();  // without a context: not loaded into any
  ASSERT_TRUE(kernel.ok());
  cuda_.primary(0);
  LaunchArgs arguments = args();
  const cuda::Stream stream = cuda_.create_stream();
  arguments.stream = stream;
  cuda_.begin_capture(stream);
  LaunchState state;
  const Status launched = (*kernel)->launch(arguments, state);
  ASSERT_FALSE(launched.ok());
  EXPECT_EQ(launched.error().code, ErrorCode::kCaptureInProgress);
  const Status prepared = (*kernel)->prepare(stream);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code, ErrorCode::kCaptureInProgress);
  EXPECT_EQ(cuda_.count("cuKernelGetFunction"), 0);
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 0);
  EXPECT_EQ(cuda_.count("cuKernelSetAttribute"), 0);
  EXPECT_EQ(cuda_.count("cuLaunchKernelEx"), 0);
  EXPECT_EQ(cuda_.end_capture(stream), 1) << "the capture is still valid";
  // After the capture it works.
  EXPECT_TRUE((*kernel)->launch(arguments, state).ok());
}

TEST_F(LoadTest, DefaultStreamDuringAnothersCaptureCountsAsCapture) {
  open();
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  cuda_.primary(0);
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream);
  const Status prepared = (*kernel)->prepare(nullptr);
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.error().code, ErrorCode::kCaptureInProgress);
  const auto capturing = driver_->is_capturing(nullptr);
  ASSERT_TRUE(capturing.ok());
  EXPECT_TRUE(*capturing);
}

TEST_F(LoadTest, LoadingInAnotherThreadDoesNotBreakACapture) {
  open();
  cuda_.primary(0);
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream, cuda::kCaptureModeGlobal);
  std::thread loader([&] {
    cuda_.primary(0);
    const auto kernel = load();
    EXPECT_TRUE(kernel.ok()) << kernel.error().to_string();
  });
  loader.join();
  EXPECT_EQ(cuda_.end_capture(stream), 1) << "the capture is still valid";
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
}

// --- Threads and processes
// ------------------------------------------------------------------------

TEST_F(LoadTest, ManyThreadsLoadIntoAContextOnce) {
  open();
  const auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  const cuda::Context context = cuda_.primary(0);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      cuda_.set_current(context);
      LaunchState state;
      for (int j = 0; j < 50; ++j) {
        if (!(*kernel)->launch(args(), state).ok()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 1);
  EXPECT_EQ(cuda_.launches.size(), 400U);
}

TEST_F(LoadTest, ForkedChildIsRefusedAndUnloadsNothing) {
  open();
  cuda_.primary(0);
  auto kernel = load();
  ASSERT_TRUE(kernel.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    LaunchState state;
    const Status launched = (*kernel)->launch(args(), state);
    kernel->reset();
    const bool right = !launched.ok() && cuda_.count("cuLibraryUnload") == 0 &&
                       cuda_.count("cuLaunchKernelEx") == 0;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// --- Primary contexts and devices
// -----------------------------------------------------------------

TEST_F(LoadTest, KnowsThePrimaryContextFromAnother) {
  open();
  EXPECT_FALSE(device_of_current_primary_context(driver_->api()).has_value());
  cuda_.create_context(0);
  EXPECT_FALSE(device_of_current_primary_context(driver_->api()).has_value());
  cuda_.primary(0);
  EXPECT_EQ(device_of_current_primary_context(driver_->api()), 0);
}

TEST_F(LoadTest, DeviceGivesPropertiesMemoryAndTiming) {
  open();
  ASSERT_EQ(device_count(*driver_).value(), 1);
  const auto device = Device::open(driver_);
  ASSERT_TRUE(device.ok()) << device.error().to_string();
  EXPECT_EQ(device->properties().arch(), Arch::kSm90a);
  EXPECT_EQ(device->properties().shape().max_smem_bytes, 232448);
  auto buffer = device->allocate(64);
  ASSERT_TRUE(buffer.ok());
  ASSERT_TRUE(device->fill(buffer->pointer(), 0x5a, 64).ok());
  std::vector<std::uint8_t> back(64);
  ASSERT_TRUE(device->download(back.data(), buffer->pointer(), 64).ok());
  EXPECT_EQ(back, std::vector<std::uint8_t>(64, 0x5a));
  EXPECT_EQ(device->allocate(0)->pointer(), 0U);
  const auto missing = Device::open(driver_, 3);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kEnvironment);
  cuda_.fail("cuMemAlloc", 1, cuda::kOutOfMemory);
  const auto refused = device->allocate(1024);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
}

}  // namespace
}  // namespace attnjit

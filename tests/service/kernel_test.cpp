// SPDX-License-Identifier: Apache-2.0
// Service with a (fake) GPU: get, find, try_get, stream capture, images that the driver rejects.
#include <filesystem>
#include <fstream>

#include "service_fixture.h"

namespace attnjit {
namespace {

using KernelTest = ServiceFixture;

TEST_F(KernelTest, GetLoadsAndFindFinds) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  EXPECT_EQ(service_->find(spec), nullptr);
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(service_->find(spec), *kernel);
  EXPECT_EQ(service_->get(spec, in(seconds(10))).value(), *kernel);
  EXPECT_EQ(service_->try_get(spec).value(), *kernel);
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 1) << "it was loaded into the current context";
  EXPECT_EQ(service_->statistics().memory_hits, 1U) << "find and try_get count nothing";
  service_.reset();
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
}

TEST_F(KernelTest, SpecsOfOneKeyShareTheLibraryAndKeepTheirPlans) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec narrow = prepare(*service_, window_spec(128));
  const PreparedSpec wide = prepare(*service_, window_spec(4096));
  const auto kernel = service_->get(narrow, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const Kernel* other = service_->find(wide);
  ASSERT_NE(other, nullptr) << "one load serves both";
  EXPECT_EQ((*kernel)->plan().spec->mask.window, 128);
  EXPECT_EQ(other->plan().spec->mask.window, 4096);
  // One that is prepared later too.
  const PreparedSpec late = prepare(*service_, window_spec(77));
  ASSERT_NE(service_->find(late), nullptr);
  EXPECT_EQ(service_->find(late)->plan().spec->mask.window, 77);
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
}

TEST_F(KernelTest, ManyThreadsLoadOnce) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      cuda_.primary(0);
      if (service_->get(spec, in(seconds(30))).ok()) ++served;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 12);
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(KernelTest, WithoutADriverTheErrorSaysSo) {
  ServiceOptions no_driver = options();
  no_driver.driver_path = "/nonexistent/libcuda.so.1";
  remake(no_driver);
  const auto kernel = service_->get(prepare(*service_), in(seconds(10)));
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kEnvironment);
}

TEST_F(KernelTest, TryGetNeverBlocksAndCompilesOnce) {
  compiler_->hold = true;
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  for (int i = 0; i < 100; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto kernel = service_->try_get(spec);
    ASSERT_TRUE(kernel.ok());
    EXPECT_EQ(*kernel, nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(500));
  }
  compiler_->await_start();
  compiler_->release();
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(service_->try_get(spec).value(), service_->find(spec));
}

TEST_F(KernelTest, TryGetLoadsIntoTheCallersPrimaryContext) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->try_get(spec).ok());
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 1);
  // So a launch there can be captured at once.
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream);
  EXPECT_TRUE(service_->find(spec)->prepare(stream).ok());
  EXPECT_EQ(cuda_.end_capture(stream), 1);
}

TEST_F(KernelTest, FailedBackgroundCompileIsReportedThenTriedAgain) {
  ServiceOptions short_memory = options();
  short_memory.failure_ttl = seconds(1);
  remake(short_memory);
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  compiler_->failure = make_error(ErrorCode::kCompileFailed, "no such name");
  ASSERT_TRUE(service_->try_get(spec).ok());
  ASSERT_TRUE(eventually([&] { return !service_->try_get(spec).ok(); }));
  EXPECT_EQ(service_->try_get(spec).error().code, ErrorCode::kCompileFailed);
  EXPECT_EQ(compiler_->compiles, 1);
  compiler_->failure.reset();
  EXPECT_TRUE(eventually([&] {
    const auto kernel = service_->try_get(spec);
    return kernel.ok() && *kernel != nullptr;
  }));
  EXPECT_EQ(compiler_->compiles, 2);
}

TEST_F(KernelTest, FailedBackgroundLoadIsReported) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  cuda_.fail("cuLibraryLoadData", 1, cuda::kOutOfMemory);
  ASSERT_TRUE(service_->try_get(spec).ok());
  ASSERT_TRUE(eventually([&] { return !service_->try_get(spec).ok(); }));
  EXPECT_EQ(service_->try_get(spec).error().code, ErrorCode::kDriver);
  // get tries again: only what the input is to blame for is remembered for it.
  EXPECT_TRUE(service_->get(spec, in(seconds(10))).ok());
  EXPECT_TRUE(service_->try_get(spec).ok());
}

TEST_F(KernelTest, OneThreadServesTryGetAndGetOfOneKey) {
  // The background job must not wait for a flight that is queued behind it.
  ServiceOptions single = options();
  single.compile_threads = 1;
  for (int i = 0; i < 50; ++i) {
    remake(single);
    cuda_.primary(0);
    const PreparedSpec spec = prepare(*service_);
    std::thread background([&] { EXPECT_TRUE(service_->try_get(spec).ok()); });
    const auto kernel = service_->get(spec, in(seconds(20)));
    background.join();
    ASSERT_TRUE(kernel.ok()) << i << kernel.error().to_string();
  }
}

// --- Capture
// --------------------------------------------------------------------------------------

TEST_F(KernelTest, GetDuringCaptureTouchesNothing) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream);
  for (void* given : {static_cast<void*>(stream), static_cast<void*>(nullptr)}) {
    const auto kernel = service_->get(spec, in(seconds(10)), given);
    ASSERT_FALSE(kernel.ok());
    EXPECT_EQ(kernel.error().code, ErrorCode::kCaptureInProgress);
  }
  EXPECT_EQ(compiler_->compiles, 0);
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 0);
  EXPECT_EQ(cuda_.end_capture(stream), 1);
  ASSERT_TRUE(service_->get(spec, in(seconds(10)), stream).ok());
  cuda_.begin_capture(stream);
  EXPECT_TRUE(service_->get(spec, in(seconds(10)), stream).ok()) << "a hit works in capture";
  EXPECT_NE(service_->find(spec), nullptr);
  EXPECT_EQ(cuda_.end_capture(stream), 1);
}

TEST_F(KernelTest, BackgroundLoadDoesNotBreakACapture) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream, cuda::kCaptureModeGlobal);
  ASSERT_TRUE(service_->try_get(spec).ok());
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_EQ(cuda_.end_capture(stream), 1);
}

// --- Rejected images
// ------------------------------------------------------------------------------

class RejectedTest : public ServiceFixture {
 protected:
  /// A disk whose verified entry is no kernel.
  void poison() {
    cached_ = options();
    cached_.use_disk_cache = true;
    cached_.cache_layers = {folder_.path()};
    remake(cached_);
    const PreparedSpec spec = prepare(*service_);
    CacheOptions cache_options;
    cache_options.layers = cached_.cache_layers;
    auto cache = open_cache(cache_options);
    KernelImage bad;
    bad.cubin.assign(4096, 0x5a);
    bad.entries = {spec.plan().main().entry};
    bad.nvrtc_version = "13.0.88";
    ASSERT_TRUE(cache->store(spec.key(), compiler_->build_id().value(), bad).ok());
  }
  ServiceOptions cached_;
};

TEST_F(RejectedTest, ImageFromDiskThatIsNoImageIsCompiledAnewOnce) {
  poison();
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(service_->statistics().disk_hits, 1U);
  remake(cached_);
  const auto healed = service_->get(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(healed.ok());
  EXPECT_EQ(compiler_->compiles, 1) << "the disk was put right";
}

TEST_F(RejectedTest, WhatTheDriverCallsInvalidCountsAsDamaged) {
  cached_ = options();
  cached_.use_disk_cache = true;
  cached_.cache_layers = {folder_.path()};
  remake(cached_);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  remake(cached_);
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  cuda_.fail("cuLibraryLoadData", 1, cuda::kInvalidImage);
  ASSERT_TRUE(service_->get(spec, in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, 2);
}

TEST_F(RejectedTest, FreshImageThatIsRejectedIsAnError) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  cuda_.fail("cuLibraryLoadData", 1, cuda::kInvalidImage);
  const auto kernel = service_->get(spec, in(seconds(10)));
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(RejectedTest, ManyThreadsHealOnce) {
  poison();
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      cuda_.primary(0);
      if (service_->get(spec, in(seconds(30))).ok()) ++served;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 8);
  EXPECT_EQ(compiler_->compiles, 1);
}

}  // namespace
}  // namespace attnjit

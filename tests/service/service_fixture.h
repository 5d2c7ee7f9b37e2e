// SPDX-License-Identifier: Apache-2.0
// What the service's tests share: a compiler that the test steers, specs, a folder of one's own and
// the fake driver.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../temporary_folder.h"
#include "attnjit/service.h"
#include "fake_cuda.h"
#include "test_cubin.h"

namespace attnjit {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Whether it holds within ten seconds.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

inline Compiler::Deadline in(milliseconds time) { return std::chrono::steady_clock::now() + time; }

/// Makes cubins that the fake driver takes. What it does is set by its public members.
class FakeCompiler final : public Compiler {
 public:
  Result<std::string> build_id() override {
    if (no_compiler) return make_error(ErrorCode::kEnvironment, "no NVRTC was found");
    return build;
  }

  Result<KernelImage> compile(const CompileRequest& request, Deadline) override {
    ++compiles;
    const int now = ++running;
    int before = most_at_once;
    while (now > before && !most_at_once.compare_exchange_weak(before, now)) {
    }
    std::unique_lock lock(mutex);
    last_source_trusted = request.source.trusted;
    changed.notify_all();
    changed.wait(lock, [&] { return !hold || (cancelled && heeds_cancel); });
    --running;
    if (cancelled && heeds_cancel) return make_error(ErrorCode::kCancelled, "cancelled");
    if (delay.count() > 0) {
      lock.unlock();
      std::this_thread::sleep_for(delay);
      lock.lock();
    }
    if (failure) return *failure;
    KernelImage image;
    image.cubin = fake::make_cubin(request.source.entries);
    image.entries = request.source.entries;
    image.nvrtc_version = "13.0.88";
    image.usage.registers = 168;
    if (request.want_ptx) image.ptx = "// ptx";
    return image;
  }

  void cancel() override {
    const std::lock_guard lock(mutex);
    cancelled = true;
    changed.notify_all();
  }

  void release() {
    const std::lock_guard lock(mutex);
    hold = false;
    changed.notify_all();
  }
  /// Waits until a compile runs.
  void await_start(int count = 1) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return compiles >= count; });
  }

  std::atomic<bool> no_compiler{false};
  std::atomic<int> compiles{0}, running{0}, most_at_once{0};
  std::mutex mutex;
  std::condition_variable changed;
  bool hold = false;  // compiles wait for release()
  bool cancelled = false;
  bool heeds_cancel = true;
  milliseconds delay{0};
  std::optional<Error> failure;
  std::string build = "nvrtc-13.0.88-test";
  bool last_source_trusted = false;
};

inline AttentionSpec test_spec(int num_q_heads = 8) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = num_q_heads;
  spec.group = 2;
  spec.qk_depth = 128;
  return spec;
}

inline AttentionSpec window_spec(std::int64_t window) {
  AttentionSpec spec = test_spec();
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  spec.mask.window = window;
  return spec;
}

inline AttentionSpec trusted_spec() {
  AttentionSpec spec = test_spec();
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "mine";
  spec.mask.custom.code = "return kv_idx <= q_idx;";
  spec.mask.custom.trusted = true;
  return spec;
}

class ServiceFixture : public ::testing::Test {
 protected:
  ServiceFixture() : cuda_(fake::fake_cuda()), compiler_(std::make_shared<FakeCompiler>()) {
    cuda_.reset();
  }
  ~ServiceFixture() override {
    compiler_->release();
    service_.reset();
    cuda_.reset();
  }

  ServiceOptions options() {
    ServiceOptions options;
    options.use_disk_cache = false;
    options.compiler = compiler_;
    options.driver_path = ATTNJIT_FAKE_CUDA;
    options.compile_threads = 4;
    options.log = [this](LogLevel, std::string_view text) {
      const std::lock_guard lock(log_mutex_);
      log_.emplace_back(text);
    };
    return options;
  }

  std::unique_ptr<Service> make(ServiceOptions service_options) {
    auto service = Service::create(std::move(service_options));
    EXPECT_TRUE(service.ok()) << service.error().to_string();
    return service ? *std::move(service) : nullptr;
  }

  /// Ends the Service, then makes another one with the same compilers.
  void remake(const ServiceOptions& service_options) {
    service_.reset();
    for (const auto& compiler : {service_options.compiler, service_options.helper_compiler}) {
      if (auto* fake = dynamic_cast<FakeCompiler*>(compiler.get())) fake->cancelled = false;
    }
    service_ = make(service_options);
  }

  PreparedSpec prepare(Service& service, const AttentionSpec& spec = test_spec()) {
    auto prepared = service.prepare(spec);
    EXPECT_TRUE(prepared.ok()) << prepared.error().to_string();
    if (!prepared) std::abort();
    cuda_.kernel_names = {prepared->plan().main().entry};
    return *std::move(prepared);
  }

  fake::FakeCuda& cuda_;
  std::shared_ptr<FakeCompiler> compiler_;
  test::TemporaryFolder folder_;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<Service> service_;
};

}  // namespace attnjit

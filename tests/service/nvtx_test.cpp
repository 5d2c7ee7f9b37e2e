// SPDX-License-Identifier: Apache-2.0
// ServiceOptions::nvtx_ranges: a profiler sees compiles, loads and launches, and pays for no more.
#include <dlfcn.h>

#include <cstdlib>
#include <new>
#include <string>

#include "base/nvtx.h"
#include "service_fixture.h"

namespace attnjit {
namespace {

/// The fake profiler, as a test reads it.
class Profiler {
 public:
  Profiler() : library_(dlopen(ATTNJIT_FAKE_NVTX, RTLD_NOW)) {
    setenv("NVTX_INJECTION64_PATH", ATTNJIT_FAKE_NVTX, 1);
    take();
  }
  ~Profiler() { unsetenv("NVTX_INJECTION64_PATH"); }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  std::string take() const { return function<const char* (*)()>("attnjit_fake_nvtx_take")(); }
  int asked() const { return function<int (*)()>("attnjit_fake_nvtx_asked")(); }
  int clients() const { return function<int (*)()>("attnjit_fake_nvtx_clients")(); }

 private:
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;
};

class NvtxTest : public ServiceFixture {
 protected:
  /// What a request and two launches of a Service show the profiler.
  std::string ranges(bool wanted) {
    ServiceOptions chosen = options();
    chosen.nvtx_ranges = wanted;
    remake(chosen);
    cuda_.primary(0);
    const PreparedSpec spec = prepare(*service_, window_spec(9));
    key_ = spec.key().hex.substr(0, 12);
    const auto kernel = service_->get(spec, in(seconds(10)));
    EXPECT_TRUE(kernel.ok()) << kernel.error().to_string();
    if (!kernel) return {};
    LaunchArgs args;
    args.buffers.q = 0x10000;
    args.buffers.k = 0x20000;
    args.buffers.v = 0x30000;
    args.buffers.o = 0x40000;
    args.shapes.batch = 2;
    args.shapes.q_len = 300;
    args.shapes.kv_len = 500;
    LaunchState state;
    for (int i = 0; i < 2; ++i) {
      const Status launched = (*kernel)->launch(args, state);
      EXPECT_TRUE(launched.ok()) << launched.error().to_string();
    }
    args.buffers.q = 4;  // refused: its range ends, too
    EXPECT_FALSE((*kernel)->launch(args, state).ok());
    return profiler_.take();
  }

  /// What the log says of NVTX.
  std::string warnings() {
    const std::lock_guard lock(log_mutex_);
    std::string all;
    for (const std::string& line : log_) {
      if (line.find("NVTX") != std::string::npos) all += line + "\n";
    }
    return all;
  }

  Profiler profiler_;
  std::string key_;
};

TEST_F(NvtxTest, CompilesLoadsAndLaunchesAreRanges) {
  const std::string launch = "attnjit sliding_window batch 2 q_len 300 kv_len 500\nend\n";
  const std::string seen = ranges(true);
  EXPECT_EQ(seen, "attnjit compile " + key_ + " sm_90a\nend\nattnjit load " + key_ + "\nend\n" +
                      launch + launch + launch);
  EXPECT_EQ(profiler_.clients(), 1);
  EXPECT_EQ(ranges(true), seen);
  EXPECT_EQ(profiler_.clients(), 1) << "a process attaches once";
}

TEST_F(NvtxTest, ThereAreNoneUnlessTheyAreAskedFor) {
  const int clients = profiler_.clients();
  EXPECT_EQ(ranges(false), "");
  EXPECT_EQ(profiler_.clients(), clients);
}

TEST_F(NvtxTest, WithoutAProfilerThereAreNone) {
  unsetenv("NVTX_INJECTION64_PATH");
  EXPECT_EQ(ranges(true), "");
  EXPECT_EQ(warnings(), "");
}

// A profiler that does not attach costs its ranges, and nothing else.
TEST_F(NvtxTest, AnotherLibraryIsAWarning) {
  for (const char* path : {ATTNJIT_FAKE_CUDA, "/nonexistent/injection.so"}) {
    setenv("NVTX_INJECTION64_PATH", path, 1);
    EXPECT_EQ(ranges(true), "");
    EXPECT_NE(warnings().find(path), std::string::npos) << warnings();
  }
}

// Each Service warns, and the profiler is left alone.
TEST_F(NvtxTest, ALibraryThatDoesNotAttachIsAskedOnce) {
  std::string path = ATTNJIT_FAKE_NVTX;  // by a name that no other test gives it
  path.insert(path.rfind('/'), "/.");
  setenv("NVTX_INJECTION64_PATH", path.c_str(), 1);
  setenv("ATTNJIT_FAKE_NVTX_REFUSES", "1", 1);
  const int before = profiler_.asked();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ranges(true), "");
    EXPECT_NE(warnings().find(path), std::string::npos) << warnings();
  }
  unsetenv("ATTNJIT_FAKE_NVTX_REFUSES");
  EXPECT_EQ(profiler_.asked(), before + 1);
}

// Kernel::launch throws nothing, and is a range.
TEST_F(NvtxTest, ANameThatCannotBeMadeCostsItsRange) {
  const auto nvtx = Nvtx::open(ATTNJIT_FAKE_NVTX);
  ASSERT_TRUE(nvtx.ok()) << nvtx.error().to_string();
  EXPECT_NO_THROW(NvtxRange(*nvtx, []() -> std::string { throw std::bad_alloc(); }));
  EXPECT_EQ(profiler_.take(), "");
}

}  // namespace
}  // namespace attnjit

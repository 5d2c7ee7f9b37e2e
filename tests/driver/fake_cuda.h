// SPDX-License-Identifier: Apache-2.0
// FakeCuda: a libcuda without a GPU, as a shared library that Driver opens like the real one.
//
// It keeps the rules that attnjit relies on (contexts, lazy loading, stream capture and its modes,
// dynamic shared memory opt-in), records what it is asked and fails where it is told to. One state
// a process; tests reset it. Thread rules: the state is guarded by `mutex`; tests that run no
// threads of their own read it freely.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/cuda_api.h"

namespace attnjit::fake {

struct FakeDevice {
  std::string name = "NVIDIA H200 (fake)";
  int major = 9, minor = 0;
  int sm_count = 132;
  int max_smem = 232448;
};

struct FakeLaunch {
  cuda::LaunchConfig config{};
  cuda::LaunchAttribute attribute{};  // the first one
  std::string kernel;                 // its name
  void* function = nullptr;
  unsigned long long context_id = 0;
  std::vector<std::vector<std::uint8_t>> args;  // as many as arg_sizes, or arg_sizes_of, says
};

struct FakeEncode {
  int type = 0;
  std::uint64_t address = 0;
  std::vector<std::uint64_t> dims, strides;
  std::vector<std::uint32_t> box, element_strides;
  int interleave = 0, swizzle = 0, l2_promotion = 0, oob = 0;
};

struct FakeContext {
  unsigned long long id = 0;
  int device = 0;
  bool alive = true;
  bool primary = false;
  int retained = 0;
};

struct FakeStream {
  int context = 0;       // index into contexts
  int capturing = 0;     // CUstreamCaptureStatus
  int capture_mode = 0;  // CUstreamCaptureMode
  std::thread::id capturing_thread;
};

struct FakeLibrary {
  bool loaded = true;
  std::vector<std::uint8_t> head;         // the first bytes that were loaded
  std::set<unsigned long long> contexts;  // ids of those it is loaded into
  std::map<int, int> max_dynamic_smem;    // of the first kernel, by device
  std::map<std::pair<std::size_t, int>, int> max_dynamic_smem_of;  // by kernel and device
};

class FakeCuda {
 public:
  virtual ~FakeCuda() = default;
  virtual void reset() = 0;

  // Contexts and streams as an application makes them.
  virtual cuda::Context create_context(int device) = 0;  // becomes current
  virtual void destroy_context(cuda::Context context) = 0;
  virtual void set_current(cuda::Context context) = 0;
  virtual cuda::Context primary(int device) = 0;  // retained and current, as cudaSetDevice does
  virtual cuda::Stream create_stream() = 0;       // in the current context
  virtual void begin_capture(cuda::Stream stream, int mode = cuda::kCaptureModeGlobal) = 0;
  virtual int end_capture(cuda::Stream stream) = 0;  // the capture's status before the end

  int count(const std::string& function) {
    const std::lock_guard lock(mutex);
    const auto found = calls.find(function);
    return found == calls.end() ? 0 : found->second;
  }
  /// The nth next call of a function (1: the next) returns `code`.
  void fail(const std::string& function, int nth, cuda::Result code) {
    const std::lock_guard lock(mutex);
    failures[function] = {nth, code};
  }

  std::mutex mutex;
  std::map<std::string, int> calls;
  std::vector<std::string> trace;  // in order
  std::map<std::string, std::pair<int, cuda::Result>> failures;
  int fail_nth_call = 0;  // 0: none; counts all calls but look-ups of error texts
  cuda::Result fail_nth_code = 0;
  std::set<std::string> absent;  // what cuGetProcAddress does not know
  int version = 12080;
  bool shut_down = false;
  std::vector<FakeDevice> devices;
  std::vector<std::string> kernel_names;  // that every loaded image has
  std::vector<std::size_t> arg_sizes;
  std::map<std::string, std::vector<std::size_t>> arg_sizes_of;  // of kernels that differ, by name
  std::vector<FakeContext> contexts;
  std::vector<FakeStream> streams;
  std::vector<FakeLibrary> libraries;
  std::vector<FakeLaunch> launches;
  std::vector<FakeEncode> encodes;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> moves;  // from, to
  int load_delay_ms = 0;                                       // of cuLibraryLoadData
};

/// The state of the fake at ATTNJIT_FAKE_CUDA, which Driver opens too.
FakeCuda& fake_cuda();

}  // namespace attnjit::fake

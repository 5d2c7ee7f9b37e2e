// SPDX-License-Identifier: Apache-2.0
// The driver and service rooms on a real GPU: contexts, stream capture, tensor maps, and what a
// launch and a look-up cost. Needs an sm_90a GPU and either NVRTC or a prewarmed cache in
// ATTNJIT_CACHE_DIR; skips, saying so, where one of them is missing. Measurements are printed as
// lines that begin with MEASURED.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "attnjit/service.h"
#include "driver/cuda_api.h"
#include "driver/device.h"
#include "driver/kernel_library.h"
#include "driver/launch_state.h"
#include "driver/tensor_map.h"

namespace attnjit {
namespace {

using Clock = std::chrono::steady_clock;

Compiler::Deadline soon() { return Clock::now() + std::chrono::seconds(60); }

double nanoseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(const char* name, double value, const char* unit) {
  std::printf("MEASURED %s %.1f %s\n", name, value, unit);
  std::fflush(stdout);
}

AttentionSpec spec_of(MaskSpec::Kind mask) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 8;
  spec.group = 2;
  spec.qk_depth = 128;
  spec.return_lse = true;
  spec.mask.kind = mask;
  return spec;
}

// Ends with the process, after the driver has: its destructor must not mind.
std::unique_ptr<Service>& service_until_exit() {
  static std::unique_ptr<Service> service;
  return service;
}

class GpuTest : public ::testing::Test {
 protected:
  static constexpr int kBatch = 1, kQLen = 200, kKvLen = 333, kHeads = 8, kKvHeads = 4,
                       kDepth = 128;

  void SetUp() override {
    auto driver = Driver::open();
    if (!driver) GTEST_SKIP() << driver.error().to_string();
    driver_ = *std::move(driver);
    const auto properties = device_properties(*driver_, 0);
    if (!properties) GTEST_SKIP() << properties.error().to_string();
    if (properties->arch() != Arch::kSm90a) {
      GTEST_SKIP() << properties->name << " is not of sm_90a";
    }
    auto service = Service::create();
    ASSERT_TRUE(service.ok()) << service.error().to_string();
    service_ = *std::move(service);
    causal_.emplace(prepare(MaskSpec::Kind::kCausal));
    const auto compiled = service_->compile(*causal_, soon());
    if (!compiled && compiled.error().code == ErrorCode::kEnvironment) {
      GTEST_SKIP() << compiled.error().to_string();
    }
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
  }

  PreparedSpec prepare(MaskSpec::Kind mask) {
    auto prepared = service_->prepare(spec_of(mask));
    EXPECT_TRUE(prepared.ok()) << prepared.error().to_string();
    return *std::move(prepared);
  }

  void open_device() {
    auto device = Device::open(driver_);
    ASSERT_TRUE(device.ok()) << device.error().to_string();
    device_.emplace(*std::move(device));
  }

  const CudaApi& api() const { return driver_->api(); }

  /// A launch of so many parts takes little longer than its kernels' own calls.
  void expect_cheap_launch(int partitions);

  /// Tensors in the current context, with the same random values each time.
  struct Tensors {
    cuda::DevicePtr q = 0, k = 0, v = 0, o = 0, lse = 0;
    std::size_t o_bytes = 0;
  };

  Tensors make_tensors() {
    Tensors tensors;
    const std::size_t q_elements = std::size_t{kBatch} * kQLen * kHeads * kDepth;
    const std::size_t kv_elements = std::size_t{kBatch} * kKvLen * kKvHeads * kDepth;
    tensors.o_bytes = q_elements * 2;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](cuda::DevicePtr& pointer, std::size_t elements) {
      std::vector<std::uint16_t> values(elements);
      for (std::uint16_t& value : values) {
        const float x = normal(random);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &x, 4);
        value = static_cast<std::uint16_t>(bits >> 16);
      }
      ASSERT_EQ(api().MemAlloc(&pointer, elements * 2), cuda::kSuccess);
      ASSERT_EQ(api().MemcpyHtoDAsync(pointer, values.data(), elements * 2, nullptr),
                cuda::kSuccess);
      ASSERT_EQ(api().CtxSynchronize(), cuda::kSuccess);
    };
    fill(tensors.q, q_elements);
    fill(tensors.k, kv_elements);
    fill(tensors.v, kv_elements);
    EXPECT_EQ(api().MemAlloc(&tensors.o, tensors.o_bytes), cuda::kSuccess);
    EXPECT_EQ(api().MemAlloc(&tensors.lse, std::size_t{kBatch} * kHeads * kQLen * 4),
              cuda::kSuccess);
    return tensors;
  }

  void free_tensors(const Tensors& tensors) {
    for (const cuda::DevicePtr pointer :
         {tensors.q, tensors.k, tensors.v, tensors.o, tensors.lse}) {
      EXPECT_EQ(api().MemFree(pointer), cuda::kSuccess);
    }
  }

  static LaunchArgs args_of(const Tensors& tensors, void* stream) {
    LaunchArgs args;
    args.buffers.q = tensors.q;
    args.buffers.k = tensors.k;
    args.buffers.v = tensors.v;
    args.buffers.o = tensors.o;
    args.buffers.lse = tensors.lse;
    args.shapes.batch = kBatch;
    args.shapes.q_len = kQLen;
    args.shapes.kv_len = kKvLen;
    args.stream = stream;
    return args;
  }

  void poison(const Tensors& tensors) {
    ASSERT_EQ(api().MemsetD8Async(tensors.o, 0xff, tensors.o_bytes, nullptr), cuda::kSuccess);
    ASSERT_EQ(api().CtxSynchronize(), cuda::kSuccess);
  }

  std::vector<std::uint8_t> output_of(const Tensors& tensors) {
    std::vector<std::uint8_t> bytes(tensors.o_bytes);
    EXPECT_EQ(api().CtxSynchronize(), cuda::kSuccess);
    EXPECT_EQ(api().MemcpyDtoHAsync(bytes.data(), tensors.o, bytes.size(), nullptr),
              cuda::kSuccess);
    EXPECT_EQ(api().CtxSynchronize(), cuda::kSuccess);
    return bytes;
  }

  static bool all_written(const std::vector<std::uint8_t>& output) {
    for (std::size_t i = 0; i + 1 < output.size(); i += 2) {
      if (output[i] == 0xff && output[i + 1] == 0xff) return false;  // bf16 NaN: the poison
    }
    return !output.empty();
  }

  std::shared_ptr<const Driver> driver_;
  std::optional<Device> device_;
  std::unique_ptr<Service> service_;
  std::optional<PreparedSpec> causal_;
};

TEST_F(GpuTest, DestroyedContextLeavesNoStaleHandle) {
  void* libcuda = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(libcuda, nullptr);
  auto create =
      reinterpret_cast<int (*)(cuda::Context*, unsigned, int)>(dlsym(libcuda, "cuCtxCreate_v2"));
  auto destroy = reinterpret_cast<int (*)(cuda::Context)>(dlsym(libcuda, "cuCtxDestroy_v2"));
  ASSERT_NE(create, nullptr);
  ASSERT_NE(destroy, nullptr);
  LaunchState state;
  std::vector<std::uint8_t> outputs[3];
  const Kernel* first = nullptr;
  for (auto& output : outputs) {
    cuda::Context context = nullptr;
    ASSERT_EQ(create(&context, 0, 0), cuda::kSuccess);
    const auto kernel = service_->get(*causal_, soon());
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    if (first == nullptr) first = *kernel;
    EXPECT_EQ(*kernel, first) << "the handle survives its context";
    const Tensors tensors = make_tensors();
    poison(tensors);
    const Status launched = (*kernel)->launch(args_of(tensors, nullptr), state);
    ASSERT_TRUE(launched.ok()) << launched.error().to_string();
    output = output_of(tensors);
    EXPECT_TRUE(all_written(output));
    ASSERT_EQ(destroy(context), cuda::kSuccess);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0], outputs[2]);
}

TEST_F(GpuTest, CaptureOfAHitWorksAndAMissIsRefusedWithoutHarm) {
  open_device();
  const auto kernel = service_->get(*causal_, soon());
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const PreparedSpec missing = prepare(MaskSpec::Kind::kNull);
  const Tensors tensors = make_tensors();
  const auto stream = device_->create_stream();
  ASSERT_TRUE(stream.ok());
  auto* const handle = static_cast<cuda::Stream>(stream->stream());
  LaunchState state;
  poison(tensors);
  ASSERT_TRUE((*kernel)->launch(args_of(tensors, handle), state).ok());
  const std::vector<std::uint8_t> direct = output_of(tensors);
  ASSERT_TRUE(all_written(direct));

  poison(tensors);
  ASSERT_EQ(api().StreamBeginCapture(handle, cuda::kCaptureModeGlobal), cuda::kSuccess);
  const auto refused = service_->get(missing, soon(), handle);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCaptureInProgress) << refused.error().to_string();
  LaunchState fresh;  // maps are encoded within the capture
  const Status captured = (*kernel)->launch(args_of(tensors, handle), fresh);
  ASSERT_TRUE(captured.ok()) << captured.error().to_string();
  // Another thread compiles and loads meanwhile.
  std::thread other([&] {
    EXPECT_TRUE(device_->make_current().ok());
    const auto loaded = service_->try_get(missing);
    EXPECT_TRUE(loaded.ok());
    for (int i = 0; i < 600 && service_->find(missing) == nullptr; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_NE(service_->find(missing), nullptr);
  });
  other.join();
  cuda::Graph graph = nullptr;
  ASSERT_EQ(api().StreamEndCapture(handle, &graph), cuda::kSuccess) << "the capture was broken";
  cuda::GraphExec executable = nullptr;
  ASSERT_EQ(api().GraphInstantiateWithFlags(&executable, graph, 0), cuda::kSuccess);
  ASSERT_EQ(api().GraphLaunch(executable, handle), cuda::kSuccess);
  EXPECT_EQ(output_of(tensors), direct);
  EXPECT_EQ(api().GraphExecDestroy(executable), cuda::kSuccess);
  EXPECT_EQ(api().GraphDestroy(graph), cuda::kSuccess);
  free_tensors(tensors);
}

// What a serving runtime does: one graph per bound, replayed with the lengths, the tables and the
// offsets of each step. The launch plans for the bound alone, so that a replay gives the bits that
// a launch with the same contents gives.
TEST_F(GpuTest, AGraphReplaysWithOtherLengths) {
  open_device();
  constexpr int kSequences = 4, kPageSize = 16, kMaxPages = 128, kPages = kSequences * kMaxPages;
  struct Step {
    std::vector<std::int32_t> kv_lens, q_offsets, page_table;
  };
  const auto step_of = [&](std::vector<std::int32_t> kv_lens, std::vector<std::int32_t> q_offsets,
                           unsigned seed) {
    Step step{std::move(kv_lens), std::move(q_offsets), std::vector<std::int32_t>(kPages)};
    std::iota(step.page_table.begin(), step.page_table.end(), 0);
    std::shuffle(step.page_table.begin(), step.page_table.end(), std::mt19937(seed));
    return step;
  };
  const Step steps[] = {step_of({2048, 1, 700, 0}, {0, 1, 30, 30, 64}, 1),
                        step_of({5, 2048, 0, 1333}, {0, 40, 41, 42, 50}, 2)};
  for (const bool ragged : {false, true}) {
    SCOPED_TRACE(ragged ? "ragged" : "decode");
    AttentionSpec spec = spec_of(MaskSpec::Kind::kCausal);
    spec.page_size = kPageSize;
    spec.ragged = ragged;
    spec.num_partitions = 0;
    spec.max_q_len = ragged ? 0 : 1;
    const auto prepared = service_->prepare(spec);
    ASSERT_TRUE(prepared.ok()) << prepared.error().to_string();
    const auto kernel = service_->get(*prepared, soon());
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();

    const int rows = ragged ? 64 : kSequences;
    const auto allocate = [&](std::size_t bytes) {
      cuda::DevicePtr pointer = 0;
      EXPECT_EQ(api().MemAlloc(&pointer, bytes), cuda::kSuccess);
      return pointer;
    };
    const auto write = [&](cuda::DevicePtr to, const void* from, std::size_t bytes) {
      ASSERT_EQ(api().MemcpyHtoDAsync(to, from, bytes, nullptr), cuda::kSuccess);
      ASSERT_EQ(api().CtxSynchronize(), cuda::kSuccess);
    };
    std::mt19937 random(7);
    const auto random_tensor = [&](std::size_t elements) {
      std::vector<std::uint16_t> values(elements);
      for (std::uint16_t& value : values) {
        value = static_cast<std::uint16_t>(0x3c00 + random() % 0x0400 + (random() & 1) * 0x8000);
      }
      const cuda::DevicePtr pointer = allocate(2 * elements);
      write(pointer, values.data(), 2 * elements);
      return pointer;
    };
    Tensors tensors;
    tensors.q = random_tensor(std::size_t{64} * kHeads * kDepth);
    tensors.k = random_tensor(std::size_t{kPages} * kPageSize * kKvHeads * kDepth);
    tensors.v = random_tensor(std::size_t{kPages} * kPageSize * kKvHeads * kDepth);
    tensors.o_bytes = std::size_t{64} * kHeads * kDepth * 2;
    tensors.o = allocate(tensors.o_bytes);
    tensors.lse = allocate(std::size_t{64} * kHeads * 4);
    const cuda::DevicePtr kv_lens = allocate(4 * kSequences);
    const cuda::DevicePtr q_offsets = allocate(4 * (kSequences + 1));
    const cuda::DevicePtr page_table = allocate(4 * kPages);

    const auto stream = device_->create_stream();
    ASSERT_TRUE(stream.ok());
    auto* const handle = static_cast<cuda::Stream>(stream->stream());
    LaunchArgs args = args_of(tensors, handle);
    args.buffers.kv_lens = kv_lens;
    args.buffers.page_table = page_table;
    args.shapes.batch = kSequences;
    args.shapes.q_len = ragged ? 40 : 1;
    args.shapes.kv_len = kMaxPages * kPageSize;
    args.shapes.num_pages = kPages;
    args.shapes.max_pages = kMaxPages;
    if (ragged) {
      args.buffers.q_offsets = q_offsets;
      args.shapes.total_q = rows;
    }
    const auto need = (*kernel)->workspace(args);
    ASSERT_TRUE(need.ok()) << need.error().to_string();
    args.workspace_bytes = need->bytes;
    if (need->bytes > 0) args.workspace = allocate(static_cast<std::size_t>(need->bytes));
    const auto set = [&](const Step& step) {
      write(kv_lens, step.kv_lens.data(), 4 * kSequences);
      write(q_offsets, step.q_offsets.data(), 4 * (kSequences + 1));
      write(page_table, step.page_table.data(), 4 * kPages);
      poison(tensors);
    };

    LaunchState state;
    std::vector<std::uint8_t> direct[2];
    for (int i = 0; i < 2; ++i) {
      set(steps[i]);
      const Status launched = (*kernel)->launch(args, state);
      ASSERT_TRUE(launched.ok()) << launched.error().to_string();
      direct[i] = output_of(tensors);
    }
    EXPECT_NE(direct[0], direct[1]);
    EXPECT_EQ(state.counters().plans, 1u);

    set(steps[0]);
    ASSERT_EQ(api().StreamBeginCapture(handle, cuda::kCaptureModeGlobal), cuda::kSuccess);
    const Status captured = (*kernel)->launch(args, state);
    ASSERT_TRUE(captured.ok()) << captured.error().to_string();
    cuda::Graph graph = nullptr;
    ASSERT_EQ(api().StreamEndCapture(handle, &graph), cuda::kSuccess) << "the capture was broken";
    cuda::GraphExec executable = nullptr;
    ASSERT_EQ(api().GraphInstantiateWithFlags(&executable, graph, 0), cuda::kSuccess);
    for (const int i : {1, 0, 1}) {
      set(steps[i]);
      ASSERT_EQ(api().GraphLaunch(executable, handle), cuda::kSuccess);
      EXPECT_EQ(output_of(tensors), direct[i]) << "step " << i;
    }
    EXPECT_EQ(api().GraphExecDestroy(executable), cuda::kSuccess);
    EXPECT_EQ(api().GraphDestroy(graph), cuda::kSuccess);
    for (const cuda::DevicePtr pointer :
         {kv_lens, q_offsets, page_table, cuda::DevicePtr{args.workspace}}) {
      EXPECT_TRUE(pointer == 0 || api().MemFree(pointer) == cuda::kSuccess);
    }
    free_tensors(tensors);
  }
}

TEST_F(GpuTest, LaunchIntoAnUnpreparedContextDuringCaptureIsRefused) {
  // Loaded without any context: it is in none.
  const auto image = service_->compile(*causal_, soon());
  ASSERT_TRUE(image.ok());
  ASSERT_EQ(api().CtxSetCurrent(nullptr), cuda::kSuccess);
  const auto kernel = driver_->load(image->image, causal_->plan());
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  open_device();
  const Tensors tensors = make_tensors();
  const auto stream = device_->create_stream();
  ASSERT_TRUE(stream.ok());
  auto* const handle = static_cast<cuda::Stream>(stream->stream());
  LaunchState state;
  ASSERT_EQ(api().StreamBeginCapture(handle, cuda::kCaptureModeGlobal), cuda::kSuccess);
  const Status launched = (*kernel)->launch(args_of(tensors, handle), state);
  ASSERT_FALSE(launched.ok());
  EXPECT_EQ(launched.error().code, ErrorCode::kCaptureInProgress);
  cuda::Graph graph = nullptr;
  ASSERT_EQ(api().StreamEndCapture(handle, &graph), cuda::kSuccess) << "the capture was broken";
  EXPECT_EQ(api().GraphDestroy(graph), cuda::kSuccess);
  const Status after = (*kernel)->launch(args_of(tensors, handle), state);
  EXPECT_TRUE(after.ok()) << after.error().to_string();
  EXPECT_TRUE(device_->synchronize(handle).ok());
  free_tensors(tensors);
}

TEST_F(GpuTest, ImageOfAnotherArchitectureIsRefusedWithAHint) {
  open_device();
  const auto compiled = service_->compile(*causal_, soon());
  ASSERT_TRUE(compiled.ok());
  auto image = std::make_shared<KernelImage>(*compiled->image);
  // e_flags of the ELF header: bits 8 to 15 are the SM.
  ASSERT_EQ(image->cubin[49], 90) << "the ABI of this cubin is another one; adapt the test";
  image->cubin[49] = 100;
  KernelPlan plan = causal_->plan();
  AttentionSpec other = *plan.spec;
  other.arch = Arch::kSm100a;
  plan.spec = ResolvedSpec::make(other).value();
  const auto kernel = driver_->load(image, plan);
  ASSERT_FALSE(kernel.ok());
  std::printf("%s\n", kernel.error().to_string().c_str());
  EXPECT_NE(kernel.error().hint.find("sm_90a"), std::string::npos) << kernel.error().to_string();
}

TEST_F(GpuTest, MovingAMapIsEncodingItAnew) {
  open_device();
  const auto kernel = service_->get(*causal_, soon());
  ASSERT_TRUE(kernel.ok());
  const Tensors tensors = make_tensors();
  LaunchState state;
  ASSERT_TRUE((*kernel)->launch(args_of(tensors, nullptr), state).ok());
  ASSERT_NE(state.sequence(), nullptr);
  for (const TensorMapDescription& map : state.sequence()->launches.at(0).tensor_maps) {
    cuda::TensorMap moved, fresh;
    ASSERT_TRUE(encode_tensor_map(api(), map, tensors.q, moved).ok());
    ASSERT_TRUE(encode_tensor_map(api(), map, tensors.k + 4096, fresh).ok());
    ASSERT_EQ(api().TensorMapReplaceAddress(&moved, reinterpret_cast<void*>(tensors.k + 4096)),
              cuda::kSuccess);
    EXPECT_EQ(std::memcmp(&moved, &fresh, sizeof moved), 0) << map.name;
  }
  ASSERT_TRUE(device_->synchronize().ok());
  free_tensors(tensors);
}

TEST_F(GpuTest, MovedPointersGiveTheSameResult) {
  open_device();
  const auto kernel = service_->get(*causal_, soon());
  ASSERT_TRUE(kernel.ok());
  const Tensors a = make_tensors(), b = make_tensors();
  LaunchState state;
  poison(a);
  poison(b);
  ASSERT_TRUE((*kernel)->launch(args_of(a, nullptr), state).ok());
  ASSERT_TRUE((*kernel)->launch(args_of(b, nullptr), state).ok());
  EXPECT_EQ(state.counters().plans, 1U);
  EXPECT_GT(state.counters().maps_moved, 0U);
  const auto first = output_of(a);
  EXPECT_TRUE(all_written(first));
  EXPECT_EQ(first, output_of(b));
  free_tensors(a);
  free_tensors(b);
}

// Of one kernel, and of two where the keys are split.
TEST_F(GpuTest, LaunchCostsAtMostHalfAMicrosecondMoreThanBare) {
  open_device();
  for (const int partitions : {1, 3}) expect_cheap_launch(partitions);
}

void GpuTest::expect_cheap_launch(int partitions) {
  SCOPED_TRACE(partitions);
  AttentionSpec spec = spec_of(MaskSpec::Kind::kCausal);
  spec.num_partitions = partitions;
  const auto prepared = service_->prepare(spec);
  ASSERT_TRUE(prepared.ok()) << prepared.error().to_string();
  const auto kernel = service_->get(*prepared, soon());
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const Tensors tensors = make_tensors();
  const Tensors others = make_tensors();
  const auto stream = device_->create_stream();
  ASSERT_TRUE(stream.ok());
  LaunchArgs args = args_of(tensors, stream->stream());
  args.shapes.q_len = 1;  // as short a kernel as there is
  args.shapes.kv_len = 64 * partitions;
  const auto needed = (*kernel)->workspace(args);
  ASSERT_TRUE(needed.ok()) << needed.error().to_string();
  args.workspace_bytes = 2 * needed->bytes;  // for a longer kv_len too
  cuda::DevicePtr workspace = 0;
  if (needed->bytes > 0) {
    ASSERT_EQ(api().MemAlloc(&workspace, static_cast<std::size_t>(args.workspace_bytes)),
              cuda::kSuccess);
  }
  args.workspace = workspace;
  LaunchArgs moved = args_of(others, stream->stream());
  moved.shapes = args.shapes;
  moved.workspace = args.workspace;
  moved.workspace_bytes = args.workspace_bytes;
  LaunchArgs grown = args;
  ++grown.shapes.kv_len;
  LaunchState state;
  ASSERT_TRUE((*kernel)->launch(args, state).ok());
  const auto& bound = KernelAccess::state(state).calls.front()->launches;
  const auto& functions = KernelAccess::library(**kernel).kernels;
  ASSERT_EQ(bound.size(), partitions == 1 ? 1U : 2U);

  LaunchState reused, alternating, by_turns, replanned, again;
  struct Way {
    const char* name;
    std::function<void(int)> launch;
    std::vector<double> ns;
  };
  const auto ok = [](const Status& status) {
    if (!status) ADD_FAILURE() << status.error().to_string();
  };
  // With other lengths a caller of the driver has to encode the maps of K and V, too.
  const auto bare = [&](bool encodes) {
    for (std::size_t i = 0; i < bound.size(); ++i) {
      for (BoundLaunch::Map& map : bound[i]->maps) {
        const BufferId::Kind viewed = map.description.id.kind;
        if (!encodes || (viewed != BufferId::Kind::kK && viewed != BufferId::Kind::kV)) continue;
        ok(encode_tensor_map(api(), map.description, map.address, map.encoded));
      }
      const cuda::Result code =
          api().LaunchKernelEx(&bound[i]->config, reinterpret_cast<cuda::Function>(functions[i]),
                               bound[i]->arguments.data(), nullptr);
      if (code != cuda::kSuccess) ADD_FAILURE();
    }
  };
  constexpr int kLengths = 50;  // more than a state remembers
  Way ways[] = {
      {"bare cuLaunchKernelEx", [&](int) { bare(false); }, {}},
      {"the same, the maps of K and V encoded", [&](int) { bare(true); }, {}},
      {"launch, everything reused", [&](int) { ok((*kernel)->launch(args, reused)); }, {}},
      {"launch, all pointers moved",
       [&](int i) { ok((*kernel)->launch(i % 2 == 0 ? args : moved, alternating)); },
       {}},
      {"launch, two kv_len by turns",
       [&](int i) { ok((*kernel)->launch(i % 2 == 0 ? args : grown, by_turns)); },
       {}},
      {"launch, kv_len is new",
       [&](int i) {
         LaunchArgs other = args;
         other.shapes.kv_len += i % kLengths;
         ok((*kernel)->launch(other, replanned));
       },
       {}},
      {"launch, planned and all maps encoded again",
       [&](int) {
         again.reset();
         ok((*kernel)->launch(args, again));
       },
       {}},
  };
  constexpr int kRounds = 301, kLaunches = 100;
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      ASSERT_TRUE(device_->synchronize(stream->stream()).ok());
      const auto begin = Clock::now();
      for (int i = 0; i < kLaunches; ++i) way.launch(i);
      way.ns.push_back(nanoseconds(begin, Clock::now()) / kLaunches);
    }
  }
  ASSERT_TRUE(device_->synchronize(stream->stream()).ok());
  const auto overhead = [&](std::size_t way, std::size_t over) {
    std::vector<double> more;
    for (std::size_t round = 0; round < kRounds; ++round) {
      more.push_back(ways[way].ns[round] - ways[over].ns[round]);
    }
    return median(more);
  };
  report("kernels of a launch", static_cast<double>(bound.size()), "");
  for (const Way& way : ways) report(way.name, median(way.ns), "ns");
  // Medians of paired rounds.
  report("overhead of a launch with everything reused", overhead(2, 0), "ns");
  report("overhead of two kv_len by turns", overhead(4, 0), "ns");
  report("overhead of a new kv_len, over bare calls that encode", overhead(5, 1), "ns");
  EXPECT_LE(overhead(2, 0), 500);
  EXPECT_LE(overhead(4, 0), 500);
  if (workspace != 0) api().MemFree(workspace);
  free_tensors(tensors);
  free_tensors(others);
}

TEST_F(GpuTest, FindAndGetAreQuick) {
  open_device();
  ASSERT_TRUE(service_->get(*causal_, soon()).ok());
  constexpr int kCalls = 1000000;
  for (const int count : {1, 8}) {
    std::atomic<bool> go{false};
    std::atomic<int> missed{0};
    std::vector<std::thread> threads;
    std::vector<double> find_ns(static_cast<std::size_t>(count)),
        get_ns(static_cast<std::size_t>(count));
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&, t] {
        const auto index = static_cast<std::size_t>(t);
        if (!device_->make_current()) ++missed;
        while (!go) std::this_thread::yield();
        auto begin = Clock::now();
        for (int i = 0; i < kCalls; ++i) {
          if (service_->find(*causal_) == nullptr) ++missed;
        }
        find_ns[index] = nanoseconds(begin, Clock::now()) / kCalls;
        begin = Clock::now();
        for (int i = 0; i < kCalls / 10; ++i) {
          if (!service_->get(*causal_, Compiler::Deadline::max())) ++missed;
        }
        get_ns[index] = nanoseconds(begin, Clock::now()) / (kCalls / 10);
      });
    }
    go = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(missed, 0);
    const double find = *std::max_element(find_ns.begin(), find_ns.end());
    const double get = *std::max_element(get_ns.begin(), get_ns.end());
    report(count == 1 ? "find, 1 thread" : "find, 8 threads (the slowest)", find, "ns");
    report(count == 1 ? "get in memory, 1 thread" : "get in memory, 8 threads (the slowest)", get,
           "ns");
    EXPECT_LE(find, 200);
    EXPECT_LE(get, 5000);
  }
}

TEST_F(GpuTest, ServiceMayEndAfterTheDriver) {
  open_device();
  ASSERT_TRUE(service_->get(*causal_, soon()).ok());
  service_until_exit() = std::move(service_);
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// What a launch costs beside the driver's calls, without a GPU: here these return at once.
//
// The names say which launch (one kernel, the keys split, a ragged batch over pages, the same
// split, decodes that choose their split, few causal tiles, the same where the launch may deal them
// out in runs, custom code with two arrays), through which interface, and what differs from the
// launch before. A caller without attnjit who launches with other lengths has to encode the maps of
// K and V, too: "bare, maps encoded" is that. tests/gpu/gpu_driver_test.cpp measures the same with
// a driver.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/attnjit.h"
#include "attnjit/driver.h"
#include "attnjit/plan.h"
#include "driver/kernel_library.h"
#include "driver/launch_state.h"
#include "driver/tensor_map.h"

namespace attnjit {
namespace {

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  std::abort();
}

// ---- A driver whose functions do nothing

template <class... Args>
cuda::Result succeed(Args...) {
  return cuda::kSuccess;
}

// NOTE: not inlined, as the driver's are not.
template <class Handle>
[[gnu::noinline]] Handle some_handle() {
  static int object = 0;
  return reinterpret_cast<Handle>(&object);
}

std::shared_ptr<const CudaApi> idle_driver() {
  auto api = std::make_shared<CudaApi>();
#define ATTNJIT_SUCCEED(NAME, VERSION, ARGS) api->NAME = &succeed;
  ATTNJIT_CUDA_FUNCTIONS(ATTNJIT_SUCCEED)
  ATTNJIT_CUDA_OPTIONAL_FUNCTIONS(ATTNJIT_SUCCEED)
#undef ATTNJIT_SUCCEED
  api->CtxGetCurrent = [](cuda::Context* context) {
    *context = some_handle<cuda::Context>();
    return cuda::kSuccess;
  };
  api->StreamGetCtx = [](cuda::Stream, cuda::Context* context) {
    *context = some_handle<cuda::Context>();
    return cuda::kSuccess;
  };
  api->CtxGetId = [](cuda::Context, unsigned long long* id) {
    *id = 1;
    return cuda::kSuccess;
  };
  api->DeviceGetAttribute = [](int* value, int which, cuda::Device) {
    *value = which == cuda::kAttributeMultiprocessorCount ? 132 : 232448;
    return cuda::kSuccess;
  };
  api->StreamIsCapturing = [](cuda::Stream, int* status) {
    *status = cuda::kCaptureStatusNone;
    return cuda::kSuccess;
  };
  return api;
}

// ---- Launches

struct Case {
  std::string name;
  AttentionSpec spec;
  LaunchShapes shapes;
};

AttentionSpec base_spec() {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 32;
  spec.group = 4;
  spec.qk_depth = 128;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made;
    LaunchShapes dense;
    dense.batch = 4;
    dense.q_len = 1024;
    dense.kv_len = 8192;
    made.push_back({"dense", base_spec(), dense});
    AttentionSpec split = base_spec();
    split.num_partitions = 4;
    made.push_back({"split", split, dense});
    AttentionSpec ragged = base_spec();
    ragged.page_size = 16;
    ragged.ragged = true;
    LaunchShapes pages = dense;
    pages.total_q = 2048;
    pages.num_pages = 4096;
    pages.max_pages = 512;
    made.push_back({"pages", ragged, pages});
    ragged.num_partitions = 4;
    made.push_back({"pages, split", ragged, pages});
    AttentionSpec decode = base_spec();
    decode.page_size = 16;
    decode.max_q_len = 1;
    decode.num_partitions = 0;
    LaunchShapes steps = pages;
    steps.q_len = 1;
    made.push_back({"decode", decode, steps});
    LaunchShapes few = dense;
    few.batch = 1;
    made.push_back({"few tiles", base_spec(), few});
    AttentionSpec runs = base_spec();
    runs.num_partitions = 0;
    made.push_back({"few tiles, runs", runs, few});
    few.kv_len = few.q_len;
    made.push_back({"few short tiles, runs", runs, few});
    AttentionSpec custom = base_spec();
    custom.mask.kind = MaskSpec::Kind::kCustom;
    custom.mask.custom.name = "documents";
    custom.mask.custom.code = "p.first[q_idx] <= kv_idx && kv_idx < p.last[q_idx]";
    custom.mask.custom.params = {{"first", ParamSpec::Type::kI32Array},
                                 {"last", ParamSpec::Type::kI32Array}};
    made.push_back({"arrays", custom, dense});
    return made;
  }();
  return all;
}

std::unique_ptr<Kernel> kernel_of(const Case& one) {
  auto plan = attnjit::plan(one.spec);
  if (!plan) give_up(plan.error());
  auto library =
      std::make_shared<Kernel::Library>(idle_driver(), std::make_shared<const KernelImage>());
  library->kernels.assign(plan->kernels.size(), some_handle<cuda::KernelHandle>());
  return KernelAccess::make(std::move(library), *std::move(plan));
}

constexpr std::int64_t kWorkspaceBytes = std::int64_t{1} << 34;

/// The arguments of a case, with buffers of their own for each `place`.
LaunchArgs args_of(const Case& one, DevicePointer place) {
  LaunchArgs args;
  DevicePointer next = 0x700000000000 + place * 0x10000000;
  const auto take = [&] { return next += 0x100000; };
  args.buffers = {.q = take(), .k = take(), .v = take(), .o = take()};
  if (one.spec.page_size > 0) args.buffers.page_table = take();
  if (one.spec.page_size > 0) args.buffers.kv_lens = take();
  if (one.spec.ragged) args.buffers.q_offsets = take();
  args.shapes = one.shapes;
  for (const ParamSpec& param : one.spec.mask.custom.params) {
    args.params.push_back({param.name, DeviceArray{take(), Dtype::kI32, {one.shapes.q_len}}});
  }
  args.workspace = 0x600000000000;  // the same for all layers
  args.workspace_bytes = kWorkspaceBytes;
  args.stream = some_handle<void*>();
  return args;
}

/// The same as the C ABI takes them. `params` must outlive them.
attnjit_launch_args c_args(const LaunchArgs& args, std::vector<attnjit_param>& params) {
  attnjit_launch_args c{};
  c.struct_size = sizeof c;
  c.q = args.buffers.q;
  c.k = args.buffers.k;
  c.v = args.buffers.v;
  c.o = args.buffers.o;
  c.page_table = args.buffers.page_table;
  c.kv_lens = args.buffers.kv_lens;
  c.q_offsets = args.buffers.q_offsets;
  c.batch = args.shapes.batch;
  c.q_len = args.shapes.q_len;
  c.kv_len = args.shapes.kv_len;
  c.total_q = args.shapes.total_q;
  c.num_pages = args.shapes.num_pages;
  c.max_pages = args.shapes.max_pages;
  c.workspace = args.workspace;
  c.workspace_bytes = args.workspace_bytes;
  c.stream = args.stream;
  for (const UserParam& param : args.params) {
    const auto& array = std::get<DeviceArray>(param.value);
    attnjit_param& out = params.emplace_back();
    out.struct_size = sizeof out;
    out.name = param.name.c_str();
    out.type = ATTNJIT_PARAM_I32_ARRAY;
    out.pointer = array.pointer;
    out.extent[0] = array.extent[0];
  }
  c.params = params.data();
  c.num_params = params.size();
  return c;
}

// ---- Measurements

/// cuLaunchKernelEx alone, of each kernel; perhaps after the maps of K and V were encoded.
void bare(benchmark::State& state, const Case& one, bool encodes) {
  const auto kernel = kernel_of(one);
  LaunchState launch;
  if (Status done = kernel->launch(args_of(one, 0), launch); !done) give_up(done.error());
  const auto& bound = KernelAccess::state(launch).calls.front()->launches;
  const auto& library = KernelAccess::library(*kernel);
  for (auto _ : state) {
    for (std::size_t i = 0; i < bound.size(); ++i) {
      for (BoundLaunch::Map& map : bound[i]->maps) {
        const BufferId::Kind viewed = map.description.id.kind;
        if (!encodes || (viewed != BufferId::Kind::kK && viewed != BufferId::Kind::kV)) continue;
        Status encoded = encode_tensor_map(*library.api, map.description, map.address, map.encoded);
        if (!encoded) give_up(encoded.error());
      }
      benchmark::DoNotOptimize(library.api->LaunchKernelEx(
          &bound[i]->config, reinterpret_cast<cuda::Function>(library.kernels[bound[i]->rank]),
          bound[i]->arguments.data(), nullptr));
    }
  }
}

/// Launches two calls by turns.
void by_turns(benchmark::State& state, const Case& one, const std::array<LaunchArgs, 2>& calls) {
  const auto kernel = kernel_of(one);
  LaunchState launch;
  std::size_t turn = 0;
  for (auto _ : state) {
    if (Status done = kernel->launch(calls.at(turn ^= 1), launch); !done) give_up(done.error());
  }
}

/// Launches with a length that is not among those that the state remembers.
void grows(benchmark::State& state, const Case& one) {
  constexpr std::int32_t kLengths = 1000;
  const auto kernel = kernel_of(one);
  LaunchState launch;
  LaunchArgs args = args_of(one, 0);
  const std::int32_t longest = args.shapes.kv_len;
  std::int32_t turn = 0;
  for (auto _ : state) {
    args.shapes.kv_len = longest - (turn = (turn + 1) % kLengths);
    if (Status done = kernel->launch(args, launch); !done) give_up(done.error());
  }
}

void by_turns_in_c(benchmark::State& state, const Case& one,
                   const std::array<LaunchArgs, 2>& calls) {
  const auto kernel = kernel_of(one);
  const auto* const handle = reinterpret_cast<const attnjit_kernel*>(kernel.get());
  attnjit_launch_state* launch = nullptr;
  if (attnjit_launch_state_create(&launch) != nullptr) std::abort();
  std::array<std::vector<attnjit_param>, 2> params;
  const std::array<attnjit_launch_args, 2> args{c_args(calls[0], params[0]),
                                                c_args(calls[1], params[1])};
  std::size_t turn = 0;
  for (auto _ : state) {
    if (attnjit_error* error = attnjit_launch(handle, &args.at(turn ^= 1), launch)) {
      std::fprintf(stderr, "%s\n", attnjit_error_message(error));
      std::abort();
    }
  }
  attnjit_launch_state_free(launch);
}

void add(const Case& one) {
  const LaunchArgs args = args_of(one, 0);
  LaunchArgs longer = args;
  longer.shapes.kv_len -= 64;
  const struct {
    const char* name;
    std::array<LaunchArgs, 2> calls;
  } changes[] = {{"nothing differs", {args, args}},
                 {"pointers differ", {args, args_of(one, 1)}},
                 {"kv_len by turns", {args, longer}}};
  benchmark::RegisterBenchmark((one.name + "/bare").c_str(),
                               [&one](benchmark::State& state) { bare(state, one, false); });
  benchmark::RegisterBenchmark((one.name + "/bare, maps encoded").c_str(),
                               [&one](benchmark::State& state) { bare(state, one, true); });
  benchmark::RegisterBenchmark((one.name + "/C++/kv_len is new").c_str(),
                               [&one](benchmark::State& state) { grows(state, one); });
  for (const auto& [name, calls] : changes) {
    benchmark::RegisterBenchmark(
        (one.name + "/C++/" + name).c_str(),
        [&one, calls](benchmark::State& state) { by_turns(state, one, calls); });
    benchmark::RegisterBenchmark(
        (one.name + "/C/" + name).c_str(),
        [&one, calls](benchmark::State& state) { by_turns_in_c(state, one, calls); });
  }
}

}  // namespace
}  // namespace attnjit

int main(int argc, char** argv) {
  for (const attnjit::Case& one : attnjit::cases()) attnjit::add(one);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// What launches cost beside what their CTAs do: gaps between launches, with and without overlap,
// and between CTAs of an SM.
#include <algorithm>
#include <map>

#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kShared = 200 * 1024, kThreads = 384, kSms = 132;

struct Stay {
  u32 sm;
  u32 unused;
  u64 begin, end;        ///< cycles of the SM
  u64 begin_ns, end_ns;  ///< %globaltimer
};

/// A CTA that stays for `cycles`, and says when it was where. With `dependents` the next launch may
/// begin at once, and waits before it says anything.
__global__ __launch_bounds__(kThreads) void stay(Stay* stays, u32 cycles, bool dependents) {
  const u64 begin = cycle64(), begin_ns = global_timer();
  if (dependents) {
    launch_dependents();
    await_prerequisites();
  }
  const u64 awake = cycle64();
  while (cycle64() - awake < cycles) {
  }
  if (threadIdx.x == 0 && stays != nullptr)
    stays[blockIdx.x] = {sm_id(), 0, begin, cycle64(), begin_ns, global_timer()};
}

struct Arguments {
  unsigned char bytes[768];
};
/// The same with as many arguments as three tensor maps and some numbers are.
__global__ __launch_bounds__(kThreads) void with_arguments(const __grid_constant__ Arguments a) {
  if (a.bytes[threadIdx.x] == 255) __trap();
}

cudaGraphExec_t graph_of(cudaStream_t stream, int launches, const auto& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t instance;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) launch(i);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");
  return instance;
}

void launch_stay(cudaStream_t stream, int ctas, int shared, Stay* stays, u32 cycles,
                 bool dependents) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependents ? 1 : 0;
  check(cudaLaunchKernelEx(&config, stay, stays, cycles, dependents), "launch");
}

/// Nanoseconds per launch of a graph.
std::vector<double> per_launch(cudaStream_t stream, cudaGraphExec_t graph, int launches) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> samples;
  for (int sample = 0; sample < 11; ++sample) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "graph");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (sample >= 2) samples.push_back(ms * 1e6 / launches);
  }
  return samples;
}

/// From a launch's last CTA of each SM to the next launch's first on it.
void measure_gaps(Report& report, cudaStream_t stream, bool dependents) {
  constexpr int kLaunches = 24;
  const std::string name = dependents ? "launches.dependent" : "launches.plain";
  Stay* const stays = allocate<Stay>(kLaunches * kSms);
  const cudaGraphExec_t graph = graph_of(stream, kLaunches, [&](int i) {
    launch_stay(stream, kSms, kShared, stays + i * kSms, 20000, dependents);
  });
  report.add(name + ".each", "ns", per_launch(stream, graph, kLaunches));
  std::vector<Stay> all(kLaunches * kSms);
  check(cudaMemcpy(all.data(), stays, sizeof(Stay) * all.size(), cudaMemcpyDeviceToHost), "memcpy");
  std::vector<double> gaps, skews, lengths;
  for (int i = 1; i < kLaunches; ++i) {
    u64 last = 0, first = ~u64{0}, last_begin = 0;
    for (int c = 0; c < kSms; ++c) {
      last = std::max(last, all[(i - 1) * kSms + c].end_ns);
      const Stay& s = all[i * kSms + c];
      first = std::min(first, s.begin_ns);
      last_begin = std::max(last_begin, s.begin_ns);
      lengths.push_back(static_cast<double>(s.end - s.begin));
    }
    gaps.push_back(static_cast<double>(first) - static_cast<double>(last));
    skews.push_back(static_cast<double>(last_begin - first));
  }
  report.add(name + ".gap", "ns", gaps);
  report.add(name + ".skew", "ns", skews);
  report.add(name + ".stay", "cycles", lengths);
}

/// From the end of a CTA to the begin of the next on its SM, which holds one at a time.
void measure_cta_start(Report& report, cudaStream_t stream) {
  constexpr int kCtas = 16 * kSms;
  Stay* const stays = allocate<Stay>(kCtas);
  launch_stay(stream, kCtas, kShared, stays, 5000, false);
  check(cudaStreamSynchronize(stream), "stay");
  std::vector<Stay> all(kCtas);
  check(cudaMemcpy(all.data(), stays, sizeof(Stay) * kCtas, cudaMemcpyDeviceToHost), "memcpy");
  std::map<u32, std::vector<Stay>> by_sm;
  for (const Stay& s : all) by_sm[s.sm].push_back(s);
  std::vector<double> gaps;
  for (auto& [sm, own] : by_sm) {
    std::sort(own.begin(), own.end(),
              [](const Stay& a, const Stay& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < own.size(); ++i)
      gaps.push_back(static_cast<double>(own[i].begin) - static_cast<double>(own[i - 1].end));
  }
  report.add("launches.cta_start", "cycles", gaps);
}

}  // namespace

void measure_launches(Report& report) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  allow_shared(stay, kShared);
  allow_shared(with_arguments, kShared);
  constexpr int kLaunches = 64;
  for (const bool dependents : {false, true}) {
    const cudaGraphExec_t graph = graph_of(stream, kLaunches, [&](int) {
      launch_stay(stream, kSms, kShared, nullptr, 0, dependents);
    });
    report.add(dependents ? "launches.dependent.empty" : "launches.plain.empty", "ns",
               per_launch(stream, graph, kLaunches));
  }
  const Arguments arguments{};
  const cudaGraphExec_t graph = graph_of(stream, kLaunches, [&](int) {
    with_arguments<<<kSms, kThreads, kShared, stream>>>(arguments);
  });
  report.add("launches.plain.empty768", "ns", per_launch(stream, graph, kLaunches));
  measure_gaps(report, stream, false);
  measure_gaps(report, stream, true);
  measure_cta_start(report, stream);
}

}  // namespace attnjit::clock_bench

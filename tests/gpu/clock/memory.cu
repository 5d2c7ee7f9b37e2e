// SPDX-License-Identifier: Apache-2.0
// Latencies of a thread's loads and atomic operations from L2 and HBM.
#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kLoads = 16;

/// Loads of zeros, each from a place that the one before decides: spread over 2^bits bytes.
__global__ void load_chain(u32* out, const u32* memory, int bits) {
  u32 place = threadIdx.x;
  const u32 mask = (1u << (bits - 2)) - 1;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      u32 value;
      asm volatile("ld.global.cg.u32 %0, [%1];"
                   : "=r"(value)
                   : "l"(memory + (place & mask & ~31u))
                   : "memory");
      place = place * 1664525u + 1013904223u + value;
    }
    const u32 end = cycle() + (place & 0);
    out[sample] = end - begin;
    keep(out, place);
  }
}

/// Additions of 0, each at a place that the one before decides.
__global__ void atomic_chain(u32* out, u32* memory, int bits) {
  u32 place = threadIdx.x;
  const u32 mask = (1u << (bits - 2)) - 1;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      place = place * 1664525u + 1013904223u + atomicAdd(memory + (place & mask & ~31u), 0u);
    const u32 end = cycle();
    out[sample] = end - begin;
    keep(out, place);
  }
}

std::vector<double> each(std::vector<double> samples) {
  for (double& cycles : samples) cycles /= kLoads;
  return samples;
}

}  // namespace

void measure_memory(Report& report) {
  auto* const memory = allocate<u32>(std::size_t{1} << 30);
  // 64 KiB are read once by the first samples; 4 GiB never are.
  report.add("memory.load.l2", "cycles", each(cycles_of({1, 1}, load_chain, memory, 13)));
  report.add("memory.load.hbm", "cycles", each(cycles_of({1, 1}, load_chain, memory, 31)));
  report.add("memory.atomic.l2", "cycles", each(cycles_of({1, 1}, atomic_chain, memory, 13)));
  check(cudaFree(memory), "cudaFree");
}

}  // namespace attnjit::clock_bench

// SPDX-License-Identifier: Apache-2.0
// Latencies of a thread's loads and atomic operations from L2 and HBM.
#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kAccesses = 16;

/// Accesses of which each is at a place that the one before decides, spread over 2^bits bytes:
/// `access` returns the zero that it finds there.
template <class Access>
ATTNJIT_DEVICE void chain(u32* out, int bits, const Access& access) {
  u32 place = threadIdx.x;
  const u32 mask = (1u << (bits - 2)) - 1;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kAccesses; ++i)
      place = place * 1664525u + 1013904223u + access(place & mask & ~31u);
    const u32 end = cycle();
    out[sample] = end - begin;
    keep(out, place);
  }
}

__global__ void load_chain(u32* out, const u32* memory, int bits) {
  chain(out, bits, [&](u32 place) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(memory + place) : "memory");
    return value;
  });
}

__global__ void atomic_chain(u32* out, u32* memory, int bits) {
  chain(out, bits, [&](u32 place) { return atomicAdd(memory + place, 0u); });
}

}  // namespace

void measure_memory(Report& report) {
  auto* const memory = allocate<u32>(std::size_t{1} << 30);
  // 64 KiB are read once by the first samples; 4 GiB never are.
  report.add("memory.load.l2", "cycles",
             each(cycles_of({1, 1}, load_chain, memory, 13), kAccesses));
  report.add("memory.load.hbm", "cycles",
             each(cycles_of({1, 1}, load_chain, memory, 31), kAccesses));
  report.add("memory.atomic.l2", "cycles",
             each(cycles_of({1, 1}, atomic_chain, memory, 13), kAccesses));
  check(cudaFree(memory), "cudaFree");
}

}  // namespace attnjit::clock_bench

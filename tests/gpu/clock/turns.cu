// SPDX-License-Identifier: Apache-2.0
// Which of a sub-partition's warps issues where several can: when each of three warpgroups ends
// that began the same work together.
#include "device.cuh"
#include "work.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kPieces = 8, kGroups = 3;

/// Field i: when the warpgroup i had ended, from the begin of all.
template <class Work>
__global__ __launch_bounds__(128 * kGroups) void ends(u32* out) {
  Work work;
  const u32 mine = shared_base() + threadIdx.x % 128 * 16;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
#pragma unroll 1
    for (int piece = 0; piece < kPieces; ++piece) work.run(mine);
    const u32 end = cycle();
    if (threadIdx.x % 128 == 0) out[threadIdx.x / 128 * kSamples + sample] = end - begin;
  }
  keep(out, work.result());
}

template <class Work>
void measure_ends(Report& report, const std::string& name) {
  const auto fields = fields_of(kGroups, {1, 128 * kGroups, 16384}, ends<Work>);
  for (int i = 0; i < kGroups; ++i)
    report.add("turns." + name + ".end" + std::to_string(i), "cycles", each(fields[i], kPieces));
}

}  // namespace

void measure_turns(Report& report) {
  measure_ends<FmaWork>(report, "fma");
  measure_ends<MaxWork>(report, "max");
  measure_ends<Ex2Work>(report, "ex2");
  measure_ends<SoftmaxWork>(report, "softmax");
}

}  // namespace attnjit::clock_bench

// SPDX-License-Identifier: Apache-2.0
// Latencies of barriers, fences, and what warps hand over to one another.
#include "common/wgmma.cuh"
#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kRounds = 16;

/// Two warps hand an mbarrier's phase to and fro: a round is two hand-overs.
__global__ void mbarrier_rounds(u32* out, int other) {
  const u32 first = shared_base(), second = first + 8;
  if (threadIdx.x == 0) {
    mbarrier_init(first, 1);
    mbarrier_init(second, 1);
    fence_mbarrier_init();
  }
  const int warp = threadIdx.x / 32;
  int phase = 0;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    if (warp == 0) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        if (elect_one()) mbarrier_arrive(first);
        mbarrier_wait(second, phase);
      }
    } else if (warp == other) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        mbarrier_wait(first, phase);
        if (elect_one()) mbarrier_arrive(second);
      }
    }
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// A whole warpgroup arrives, another waits, and the other way round.
__global__ void mbarrier_groups(u32* out) {
  const u32 first = shared_base(), second = first + 8;
  if (threadIdx.x == 0) {
    mbarrier_init(first, 128);
    mbarrier_init(second, 128);
    fence_mbarrier_init();
  }
  int phase = 0;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    if (threadIdx.x < 128) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        mbarrier_arrive(first);
        mbarrier_wait(second, phase);
      }
    } else {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        mbarrier_wait(first, phase);
        mbarrier_arrive(second);
      }
    }
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// Waits of which each finds its phase complete.
template <int kWaits>
__global__ void mbarrier_passed(u32* out) {
  const u32 barrier = shared_base();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive(barrier);
  }
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kWaits; ++i) mbarrier_wait(barrier, 0);
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// Arrivals one behind another, of one lane.
template <int kArrivals>
__global__ void mbarrier_arrivals(u32* out) {
  const u32 barrier = shared_base();
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
  }
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    if (elect_one()) {
#pragma unroll
      for (int i = 0; i < kArrivals; ++i) mbarrier_arrive(barrier);
    }
    __syncthreads();
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// All threads meet again and again.
template <int kMeetings>
__global__ void named_barrier(u32* out) {
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kMeetings; ++i) named_barrier_sync(1, blockDim.x);
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// Two warpgroups give each other the turn, as consumers do: one arrives, the other waits.
__global__ void named_turns(u32* out) {
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    if (threadIdx.x < 128) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        named_barrier_arrive(1, 256);
        named_barrier_sync(2, 256);
      }
    } else {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round) {
        named_barrier_sync(1, 256);
        named_barrier_arrive(2, 256);
      }
    }
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

enum class Fence { kProxy, kProxyBehindStore, kWgmma, kWgmmaWait, kSyncWarp };

template <Fence kFence, int kCount>
__global__ void fences(u32* out) {
  const u32 mine = shared_base() + 16 * threadIdx.x;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kFence == Fence::kProxyBehindStore) store_shared_v4(mine, i, i, i, i);
      if constexpr (kFence == Fence::kProxy || kFence == Fence::kProxyBehindStore)
        fence_proxy_async_shared();
      if constexpr (kFence == Fence::kWgmma) wgmma_fence();
      if constexpr (kFence == Fence::kWgmmaWait) {
        wgmma_commit();
        wgmma_wait<0>();
      }
      if constexpr (kFence == Fence::kSyncWarp) __syncwarp();
    }
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

template <Fence kFence>
void measure_fence(Report& report, const std::string& name) {
  report.add("barriers." + name, "cycles",
             slope(cycles_of({1, 128, 4096}, fences<kFence, 24>),
                   cycles_of({1, 128, 4096}, fences<kFence, 8>), 16));
}

std::vector<double> each(std::vector<double> rounds, double parts) {
  for (double& cycles : rounds) cycles /= parts;
  return rounds;
}

}  // namespace

void measure_barriers(Report& report) {
  for (const int other : {1, 4}) {
    report.add("barriers.mbarrier.handover.warp" + std::to_string(other), "cycles",
               each(cycles_of({1, 160, 2048}, mbarrier_rounds, other), 2 * kRounds));
  }
  report.add("barriers.mbarrier.handover.warpgroups", "cycles",
             each(cycles_of({1, 256, 2048}, mbarrier_groups), 2 * kRounds));
  for (const int threads : {32, 128}) {
    report.add("barriers.mbarrier.passed.threads" + std::to_string(threads), "cycles",
               slope(cycles_of({1, threads, 2048}, mbarrier_passed<12>),
                     cycles_of({1, threads, 2048}, mbarrier_passed<4>), 8));
  }
  report.add("barriers.mbarrier.arrive", "cycles",
             slope(cycles_of({1, 32, 2048}, mbarrier_arrivals<12>),
                   cycles_of({1, 32, 2048}, mbarrier_arrivals<4>), 8));
  for (const int threads : {64, 128, 256, 384}) {
    report.add("barriers.named.threads" + std::to_string(threads), "cycles",
               slope(cycles_of({1, threads}, named_barrier<24>),
                     cycles_of({1, threads}, named_barrier<8>), 16));
  }
  report.add("barriers.named.turn", "cycles", each(cycles_of({1, 256}, named_turns), 2 * kRounds));
  measure_fence<Fence::kProxy>(report, "fence_proxy");
  measure_fence<Fence::kProxyBehindStore>(report, "fence_proxy_behind_store");
  measure_fence<Fence::kWgmma>(report, "wgmma_fence");
  measure_fence<Fence::kWgmmaWait>(report, "wgmma_commit_wait");
  measure_fence<Fence::kSyncWarp>(report, "syncwarp");
}

}  // namespace attnjit::clock_bench

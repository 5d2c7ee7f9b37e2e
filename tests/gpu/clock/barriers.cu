// SPDX-License-Identifier: Apache-2.0
// Latencies of barriers, fences, and what warps hand over to one another.
#include "common/wgmma.cuh"
#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

constexpr int kRounds = 16;

/// Two parties hand a phase to and fro, the `giver` first: a round is two hand-overs. `arrive` and
/// `wait` are handed the place, 0 of the giver and 1 of the taker, and the wait the round.
template <class Arrive, class Wait>
ATTNJIT_DEVICE void hand_over(u32* out, bool giver, bool taker, const Arrive& arrive,
                              const Wait& wait) {
  int phase = 0;
  take_samples<Until::kThread0>(out, [&] {
    if (giver) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        arrive(0);
        wait(1, phase);
      }
    } else if (taker) {
#pragma unroll 1
      for (int round = 0; round < kRounds; ++round, phase ^= 1) {
        wait(0, phase);
        arrive(1);
      }
    }
  });
}

/// `count` mbarriers of as many arrivals; where they lie.
ATTNJIT_DEVICE u32 make_mbarriers(int count, int arrivals) {
  const u32 first = shared_base();
  if (threadIdx.x == 0) {
    for (int i = 0; i < count; ++i) mbarrier_init(first + 8 * i, arrivals);
    fence_mbarrier_init();
  }
  return first;
}

/// Of two warps.
__global__ void mbarrier_rounds(u32* out, int other) {
  const u32 first = make_mbarriers(2, 1);
  const int warp = threadIdx.x / 32;
  hand_over(
      out, warp == 0, warp == other,
      [&](int place) {
        if (elect_one()) mbarrier_arrive(first + 8 * place);
      },
      [&](int place, int phase) { mbarrier_wait(first + 8 * place, phase); });
}

/// Of two warpgroups, of which all threads arrive.
__global__ void mbarrier_groups(u32* out) {
  const u32 first = make_mbarriers(2, 128);
  hand_over(
      out, threadIdx.x < 128, true, [&](int place) { mbarrier_arrive(first + 8 * place); },
      [&](int place, int phase) { mbarrier_wait(first + 8 * place, phase); });
}

/// Waits of which each finds its phase complete.
template <int kWaits>
__global__ void mbarrier_passed(u32* out) {
  const u32 barrier = make_mbarriers(1, 1);
  if (threadIdx.x == 0) mbarrier_arrive(barrier);
  take_samples_of<Until::kThread0, kWaits>(out, [&](int) { mbarrier_wait(barrier, 0); });
}

/// Arrivals one behind another, of one lane.
template <int kArrivals>
__global__ void mbarrier_arrivals(u32* out) {
  const u32 barrier = make_mbarriers(1, 1);
  take_samples<Until::kAll>(out, [&] {
    if (!elect_one()) return;
#pragma unroll
    for (int i = 0; i < kArrivals; ++i) mbarrier_arrive(barrier);
  });
}

/// All threads meet again and again.
template <int kMeetings>
__global__ void named_barrier(u32* out) {
  take_samples_of<Until::kThread0, kMeetings>(out, [](int) { named_barrier_sync(1, blockDim.x); });
}

/// Two warpgroups give each other the turn, as consumers do: one arrives, the other waits.
__global__ void named_turns(u32* out) {
  hand_over(
      out, threadIdx.x < 128, true, [](int place) { named_barrier_arrive(1 + place, 256); },
      [](int place, int) { named_barrier_sync(1 + place, 256); });
}

enum class Fence { kProxy, kProxyBehindStore, kWgmma, kWgmmaWait, kSyncWarp };

template <Fence kFence, int kCount>
__global__ void fences(u32* out) {
  const u32 mine = shared_base() + 16 * threadIdx.x;
  take_samples_of<Until::kThread0, kCount>(out, [&](int i) {
    if constexpr (kFence == Fence::kProxyBehindStore) store_shared_v4(mine, i, i, i, i);
    if constexpr (kFence == Fence::kProxy || kFence == Fence::kProxyBehindStore)
      fence_proxy_async_shared();
    if constexpr (kFence == Fence::kWgmma) wgmma_fence();
    if constexpr (kFence == Fence::kWgmmaWait) {
      wgmma_commit();
      wgmma_wait<0>();
    }
    if constexpr (kFence == Fence::kSyncWarp) __syncwarp();
  });
}

template <Fence kFence>
void measure_fence(Report& report, const std::string& name) {
  report.add("barriers." + name, "cycles",
             slope(cycles_of({1, 128, 4096}, fences<kFence, 24>),
                   cycles_of({1, 128, 4096}, fences<kFence, 8>), 16));
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

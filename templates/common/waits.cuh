// SPDX-License-Identifier: Apache-2.0
// A CTA's mbarriers: where they lie, their initialisation, and the waits at them, which can be
// bounded in time to find out why a kernel hangs.
#pragma once

#include "common/blocks.cuh"
#include "common/ptx.cuh"

namespace attnjit {

/// Initialises the plan's barriers, which begin at `first`: one thread.
template <class Config>
ATTNJIT_DEVICE void init_barriers(u32 first) {
#pragma unroll
  for (int i = 0; i < Config::kBarriers; ++i) mbarrier_init(first + 8 * i, Config::kArrivals[i]);
  fence_mbarrier_init();
}

/// The arrivals that eight barriers from `first` on count, a byte each.
template <class Config>
constexpr u64 arrivals_of_eight(int first) {
  u64 bytes = 0;
  for (int i = 0; i < 8 && first + i < Config::kBarriers; ++i) {
    bytes |= static_cast<u64>(Config::kArrivals[first + i]) << 8 * i;
  }
  return bytes;
}

/// The same by a converged warp, a barrier a lane: one thread would take a step for each.
template <class Config, int kBegin = 0>
ATTNJIT_DEVICE void init_barriers_by_warp(u32 first) {
  const int lane = static_cast<int>(threadIdx.x & 31u);
  // NOTE: constants. A table would be loaded.
  constexpr u64 kBytes[] = {
      arrivals_of_eight<Config>(kBegin), arrivals_of_eight<Config>(kBegin + 8),
      arrivals_of_eight<Config>(kBegin + 16), arrivals_of_eight<Config>(kBegin + 24)};
  const u64 low = lane < 8 ? kBytes[0] : kBytes[1], high = lane < 24 ? kBytes[2] : kBytes[3];
  const u64 bytes = lane < 16 ? low : high;
  if (kBegin + lane < Config::kBarriers) {
    mbarrier_init(first + static_cast<u32>(8 * (kBegin + lane)),
                  static_cast<int>(bytes >> 8 * (lane & 7)) & 0xff);
  }
  if constexpr (kBegin + 32 < Config::kBarriers) {
    init_barriers_by_warp<Config, kBegin + 32>(first);
  } else {
    fence_mbarrier_init();
  }
}

/// One arrival for the warp, after what all its lanes did before. NOTE: a statement, without a
/// branch, for compile time.
ATTNJIT_DEVICE void arrive_warp(u32 barrier) {
  asm volatile(
      "{\n.reg .pred p;\n\tbar.warp.sync 0xffffffff;\n\telect.sync _|p, 0xffffffff;\n\t"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier)
      : "memory");
}

/// Traps unless shared memory begins where swizzled tiles can: one thread. NOTE: opaque: the
/// compiler believes the declared alignment, and another variable in shared memory could break it.
ATTNJIT_DEVICE void check_alignment(u32 base) {
  if (opaque(base) % kSwizzlePeriod != 0) trap();
}

/// The waits of a CTA. With kBounded (the plan's option debug_waits) a wait that takes too long is
/// written down in the launch's buffer `wait_records` and ends the kernel with a trap, and roles
/// sleep for random times before they wait. docs/bring-up.md has the buffer's words.
template <bool kBounded>
struct Waits {
  template <class Arguments>
  ATTNJIT_DEVICE Waits(u32, const Arguments&) {}

  ATTNJIT_DEVICE void wait(u32 barrier, int parity) const { mbarrier_wait(barrier, parity); }
  /// Says that the thread goes on to its next work tile.
  ATTNJIT_DEVICE void next_work_tile() const {}
};

template <>
struct Waits<true> {
  static constexpr u32 kHeaderWords = 8;
  static constexpr u32 kRecordWords = 8;
  static constexpr u32 kMaxRecords = 127;
  static constexpr u32 kDefaultMicroseconds = 2'000'000;

  // NOTE: no more state than this: each word is a register of every role.
  u32 first_barrier;
  u32* buffer;
  mutable int work_tile = -1;

  template <class Arguments>
  ATTNJIT_DEVICE Waits(u32 first, const Arguments& arguments)
      : first_barrier(first), buffer(arguments.wait_records) {}

  ATTNJIT_DEVICE void next_work_tile() const { ++work_tile; }

  ATTNJIT_DEVICE void wait(u32 barrier, int parity) const {
    if (const u32 seed = buffer[1]; seed != 0) sleep(seed, barrier);
    if (mbarrier_test(barrier, parity)) return;
    const u32 bound = bound_1024ns();
    const u32 begin = now_1024ns();
    do {
      nanosleep(32);
      if (now_1024ns() - begin > bound) give_up(barrier, parity);
    } while (!mbarrier_test(barrier, parity));
  }

 private:
  /// The global timer in units of 1024 ns, which wrap after 73 minutes.
  ATTNJIT_DEVICE static u32 now_1024ns() { return static_cast<u32>(global_timer() >> 10); }
  ATTNJIT_DEVICE u32 bound_1024ns() const {
    return buffer[2] != 0 ? buffer[2] : kDefaultMicroseconds;
  }

  /// One time in four, up to 4 microseconds: by the seed, the barrier, the warp and the time.
  ATTNJIT_DEVICE static void sleep(u32 seed, u32 barrier) {
    u32 random = seed ^ barrier << 16 ^ threadIdx.x >> 5 ^ static_cast<u32>(global_timer());
    random = (random ^ random >> 15) * 2654435769u;
    random = (random ^ random >> 13) * 1664525u;
    if (random >> 30 == 0) nanosleep(random >> 18 & 4095u);
  }

  ATTNJIT_DEVICE void give_up(u32 barrier, int parity) const {
    const u32 lane = threadIdx.x & 31u;
    if (lane + 1 == static_cast<u32>(__ffs(static_cast<int>(__activemask())))) {
      const u32 rank = atomicAdd(buffer, 1u);
      if (rank < kMaxRecords) {
        u32* const record = buffer + kHeaderWords + rank * kRecordWords;
        record[0] = blockIdx.x;
        record[1] = threadIdx.x >> 5;
        record[2] = static_cast<u32>(work_tile);
        record[3] = (barrier - first_barrier) / 8;
        record[4] = static_cast<u32>(parity);
        record[5] = lane;
      }
      __threadfence_system();
    }
    // The waits that had begun by now are to be written down, too.
    const u32 begin = now_1024ns();
    while (now_1024ns() - begin < bound_1024ns()) nanosleep(1000);
    trap();
  }
};

/// The shared memory of a CTA, by its begin, and its barriers by their rank in the plan.
template <class Config>
struct CtaMemory : Waits<Config::kDebugWaits> {
  u32 base;

  template <class Arguments>
  ATTNJIT_DEVICE CtaMemory(u32 begin, const Arguments& arguments)
      : Waits<Config::kDebugWaits>(begin + Config::kBarrierOffset, arguments), base(begin) {}

  ATTNJIT_DEVICE u32 barrier(int index) const {
    return base + Config::kBarrierOffset + static_cast<u32>(8 * index);
  }
};

}  // namespace attnjit

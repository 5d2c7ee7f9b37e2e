// SPDX-License-Identifier: Apache-2.0
// Latencies and rates of accesses to shared memory, with and without bank conflicts.
#include "device.cuh"

namespace attnjit::clock_bench {
namespace {

/// Loads of which each takes its address from the one before: memory holds zeros.
template <int kWords, int kLoads>
__global__ void load_chain(u32* out, int stride) {
  const u32 base = shared_base();
  for (int i = 4 * threadIdx.x; i < 32768; i += 4 * blockDim.x) store_shared_word(base + i, 0);
  u32 address = base + stride * (threadIdx.x % 32);
  take_samples_of<Until::kAll, kLoads>(out, [&](int) {
    u32 a = 0, b = 0, c = 0, d = 0;
    if constexpr (kWords == 4) {
      load_shared_v4(address, a, b, c, d);
    } else {
      a = load_shared_word(address);
    }
    address += a + b + c + d;
  });
  keep(out, address);
}

enum class Access { kLoad4, kLoad16, kStore4, kStore16, kLoadMatrix, kStoreMatrix };

/// Independent accesses of all warps.
template <Access kAccess, int kCount>
__global__ void accesses(u32* out, int stride) {
  const u32 base = shared_base();
  for (int i = 4 * threadIdx.x; i < 32768; i += 4 * blockDim.x) store_shared_word(base + i, 0);
  const u32 mine = base + stride * (threadIdx.x % 32);
  u32 sum = 0;
  take_samples_of<Until::kAll, kCount>(out, [&](int i) {
    const u32 address = mine + 128 * (i % 16);
    if constexpr (kAccess == Access::kLoad4) sum += load_shared_word(address);
    if constexpr (kAccess == Access::kLoad16) {
      u32 a, b, c, d;
      load_shared_v4(address, a, b, c, d);
      sum += a ^ b ^ c ^ d;
    }
    if constexpr (kAccess == Access::kStore4) store_shared_word(address, i);
    if constexpr (kAccess == Access::kStore16) store_shared_v4(address, i, i, i, i);
    if constexpr (kAccess == Access::kLoadMatrix) {
      u32 m[4];
      ldmatrix_x4_transposed(address, m);
      sum += m[0] ^ m[1] ^ m[2] ^ m[3];
    }
    if constexpr (kAccess == Access::kStoreMatrix) stmatrix_x4(address, i, i, i, i);
  });
  keep(out, sum);
}

/// Cycles of the SM per access of a warp.
template <Access kAccess>
void measure_rate(Report& report, const std::string& name, int stride) {
  const Shape shape{1, 512, 40960};
  report.add("shared." + name + ".stride" + std::to_string(stride), "cycles",
             slope(cycles_of(shape, accesses<kAccess, 24>, stride),
                   cycles_of(shape, accesses<kAccess, 8>, stride), 16.0 * 16));
}

}  // namespace

void measure_shared_memory(Report& report) {
  const Shape one{1, 32, 40960};
  report.add("shared.latency4", "cycles",
             slope(cycles_of(one, load_chain<1, 24>, 4), cycles_of(one, load_chain<1, 8>, 4), 16));
  report.add(
      "shared.latency16", "cycles",
      slope(cycles_of(one, load_chain<4, 24>, 16), cycles_of(one, load_chain<4, 8>, 16), 16));
  for (const int stride : {4, 8, 16, 32, 128})
    measure_rate<Access::kLoad4>(report, "load4", stride);
  measure_rate<Access::kLoad16>(report, "load16", 16);
  measure_rate<Access::kLoad16>(report, "load16", 144);
  measure_rate<Access::kStore4>(report, "store4", 4);
  measure_rate<Access::kStore16>(report, "store16", 16);
  measure_rate<Access::kLoadMatrix>(report, "ldmatrix", 16);
  measure_rate<Access::kStoreMatrix>(report, "stmatrix", 16);
}

}  // namespace attnjit::clock_bench

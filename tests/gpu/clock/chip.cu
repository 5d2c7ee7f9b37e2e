// SPDX-License-Identifier: Apache-2.0
// The SMs' clock and the chip's power while all SMs work: by how busy the tensor cores and the
// other pipes are, and by the operands' values.
#include <dlfcn.h>

#include <chrono>
#include <optional>

#include "products.cuh"
#include "work.cuh"

namespace attnjit::clock_bench {
namespace {

using Seconds = std::chrono::duration<double>;
const auto now = std::chrono::steady_clock::now;

/// The driver's management library, where there is one.
class Nvml {
 public:
  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library_ == nullptr) return;
    using Init = int (*)();
    using Handle = int (*)(unsigned, void**);
    const auto init = reinterpret_cast<Init>(dlsym(library_, "nvmlInit_v2"));
    const auto handle = reinterpret_cast<Handle>(dlsym(library_, "nvmlDeviceGetHandleByIndex_v2"));
    if (init == nullptr || handle == nullptr || init() != 0 || handle(0, &device_) != 0)
      device_ = nullptr;
  }
  /// Millijoules since the driver was loaded.
  std::optional<double> energy() const {
    return value<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption");
  }
  /// Why the clock is not higher: bits of nvmlClocksEventReasons.
  std::optional<double> reasons() const {
    return value<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
  }
  /// Milliwatts.
  std::optional<double> limit() const { return value<unsigned>("nvmlDeviceGetEnforcedPowerLimit"); }
  std::optional<double> celsius() const {
    using Get = int (*)(void*, int, unsigned*);
    unsigned result = 0;
    const auto get = symbol<Get>("nvmlDeviceGetTemperature");
    if (get == nullptr || get(device_, 0, &result) != 0) return std::nullopt;
    return result;
  }

 private:
  template <class F>
  F symbol(const char* name) const {
    return device_ == nullptr ? nullptr : reinterpret_cast<F>(dlsym(library_, name));
  }
  template <class T>
  std::optional<double> value(const char* name) const {
    T result{};
    const auto get = symbol<int (*)(void*, T*)>(name);
    if (get == nullptr || get(device_, &result) != 0) return std::nullopt;
    return static_cast<double>(result);
  }
  void* library_ = nullptr;
  void* device_ = nullptr;
};

enum class Operands : int { kZeros, kPositive, kSigned };

struct Done {
  u64 cycles, nanoseconds;
  u32 products, pieces;
};

constexpr int kBurst = 8, kLaunchCycles = 6'000'000;

/// Two warpgroups issue bursts of products and sleep after each, the third works; until
/// kLaunchCycles are over.
template <bool kSs, class Work>
__global__ __launch_bounds__(384) void load(Done* done, int operands, bool products, int sleep,
                                            bool works, int work_sleep) {
  constexpr int N = 128;
  const u32 base = shared_base();
  __shared__ u32 issued[2], pieces;
  for (int i = 4 * threadIdx.x; i < kProductBytes + 16384; i += 4 * blockDim.x) {
    const u32 h = hash(i + (blockIdx.x << 20));
    store_shared_word(base + i, operands == 0   ? 0
                                : operands == 1 ? (h & 0x00ff00ffu) | 0x3f003f00u
                                                : (h & 0x80ff80ffu) | 0x3f003f00u);
  }
  fence_proxy_async_shared();
  if (threadIdx.x == 0) issued[0] = issued[1] = pieces = 0;
  __syncthreads();
  const u64 begin = cycle64(), begin_ns = global_timer();
  if (threadIdx.x < 256) {
    Products<N, kSs> tile(base);
    u32 count = 0;
    while (products && cycle64() - begin < kLaunchCycles) {
#pragma unroll 1
      for (int burst = 0; burst < 8; ++burst) {
        tile.template issue_group<kBurst>(0);
        wgmma_wait<0>();
        if (sleep > 0) nanosleep(sleep);
      }
      count += 8 * kBurst;
    }
    if (threadIdx.x % 128 == 0) issued[threadIdx.x / 128] = count;
    tile.keep_all(reinterpret_cast<u32*>(done));
  } else {
    Work work;
    const u32 mine = base + kProductBytes + threadIdx.x % 128 * 16;
    u32 count = 0;
    while (works && cycle64() - begin < kLaunchCycles) {
      work.run(mine);
      ++count;
      if (work_sleep > 0) nanosleep(work_sleep);
    }
    if (threadIdx.x == 256) pieces = count;
    keep(reinterpret_cast<u32*>(done), work.result());
  }
  __syncthreads();
  while (cycle64() - begin < kLaunchCycles) nanosleep(200);
  if (threadIdx.x == 0)
    done[blockIdx.x] = {cycle64() - begin, global_timer() - begin_ns, issued[0] + issued[1],
                        pieces};
}

struct Load {
  const char* name;
  Operands operands;
  bool products;
  int sleep;
  bool works;
  int work_sleep;
};

/// Works until the chip's power control has settled, and then for some time more.
template <bool kSs, class Work>
void measure_load(Report& report, const Nvml& nvml, const std::string& kind, const Load& l) {
  constexpr int kSms = 132, kShared = kProductShared + 16384;
  constexpr double kSettles = 0.2, kMeasured = 0.1;
  static Done* const done = allocate<Done>(1 << 14);
  allow_shared(load<kSs, Work>, kShared);
  std::vector<double> mhz, products, pieces;
  const auto begin = now();
  std::optional<double> energy;
  auto energy_begin = begin;
  while (Seconds(now() - begin).count() < kSettles + kMeasured) {
    const bool settled = Seconds(now() - begin).count() > kSettles;
    if (settled && !energy && mhz.empty()) {
      energy = nvml.energy();
      energy_begin = now();
    }
    load<kSs, Work><<<kSms, 384, kShared>>>(done, static_cast<int>(l.operands), l.products, l.sleep,
                                            l.works, l.work_sleep);
    check(cudaDeviceSynchronize(), "load");
    if (!settled) continue;
    std::vector<Done> all(kSms);
    check(cudaMemcpy(all.data(), done, sizeof(Done) * kSms, cudaMemcpyDeviceToHost), "cudaMemcpy");
    double cycles = 0, ns = 0, issued = 0, worked = 0;
    for (const Done& d : all) {
      cycles += static_cast<double>(d.cycles);
      ns += static_cast<double>(d.nanoseconds);
      issued += d.products;
      worked += d.pieces;
    }
    mhz.push_back(1000 * cycles / ns);
    products.push_back(1000 * issued / cycles);
    pieces.push_back(1000 * worked / cycles);
  }
  const std::optional<double> energy_end = nvml.energy();
  const std::string name = "chip." + kind + "." + l.name;
  report.add(name + ".mhz", "MHz", mhz);
  if (l.products) report.add(name + ".products", "per 1000 cycles and SM", products);
  if (l.works) report.add(name + ".pieces", "per 1000 cycles and SM", pieces);
  if (energy && energy_end)
    report.add(name + ".power", "W",
               (*energy_end - *energy) / 1000 / Seconds(now() - energy_begin).count());
  if (const auto reasons = nvml.reasons()) report.add(name + ".reasons", "bits", *reasons);
  if (const auto celsius = nvml.celsius()) report.add(name + ".celsius", "degrees", *celsius);
}

}  // namespace

void measure_chip_clock(Report& report) {
  const Nvml nvml;
  if (const auto limit = nvml.limit()) report.add("chip.limit", "W", *limit / 1000);
  constexpr Operands kZ = Operands::kZeros, kP = Operands::kPositive, kS = Operands::kSigned;
  const auto rs = [&](const Load& l) { measure_load<false, SoftmaxWork>(report, nvml, "rs", l); };
  rs({"signed.sleep0", kS, true, 0, false, 0});
  rs({"zeros.sleep0", kZ, true, 0, false, 0});
  rs({"positive.sleep0", kP, true, 0, false, 0});
  for (const int sleep : {150, 300, 600, 1000, 2000}) {
    const std::string name = "signed.sleep" + std::to_string(sleep);
    rs({name.c_str(), kS, true, sleep, false, 0});
  }
  rs({"signed.sleep0.softmax", kS, true, 0, true, 0});
  rs({"signed.sleep300.softmax", kS, true, 300, true, 0});
  rs({"signed.sleep600.softmax", kS, true, 600, true, 0});
  rs({"signed.sleep0.softmax500", kS, true, 0, true, 500});
  rs({"softmax", kS, false, 0, true, 0});
  measure_load<true, SoftmaxWork>(report, nvml, "ss", {"signed.sleep0", kS, true, 0, false, 0});
  measure_load<true, SoftmaxWork>(report, nvml, "ss",
                                  {"signed.sleep0.softmax", kS, true, 0, true, 0});
  measure_load<true, SoftmaxWork>(report, nvml, "ss", {"signed.sleep600", kS, true, 600, false, 0});
  measure_load<true, Ex2Work>(report, nvml, "ss", {"signed.sleep0.ex2", kS, true, 0, true, 0});
  measure_load<true, FmaWork>(report, nvml, "ss", {"signed.sleep0.fma", kS, true, 0, true, 0});
  measure_load<true, Ex2Work>(report, nvml, "alone", {"ex2", kS, false, 0, true, 0});
  measure_load<true, FmaWork>(report, nvml, "alone", {"fma", kS, false, 0, true, 0});
  measure_load<true, MaxWork>(report, nvml, "alone", {"max", kS, false, 0, true, 0});
  measure_load<true, MaxWork>(report, nvml, "alone", {"nothing", kS, false, 0, false, 0});
}

}  // namespace attnjit::clock_bench

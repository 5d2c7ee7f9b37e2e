// SPDX-License-Identifier: Apache-2.0
// How much products of one warpgroup and work of others slow each other down.
#include "products.cuh"
#include "work.cuh"

namespace attnjit::clock_bench {
namespace {

/// NOTE: work of two warpgroups can leave the products nothing, and then would never end by itself.
constexpr u32 kMostPieces = 2000;
constexpr int kSpinCycles = 20000, kBurst = 8;

/// The first warpgroup issues `bursts` groups of products, or with 0 waits for some time; the
/// others work until it has ended. Fields: its cycles; a worker's cycles; and how many pieces it
/// did.
template <int N, bool kSs, class Work>
__global__ __launch_bounds__(384) void beside(u32* out, int bursts) {
  __shared__ volatile u32 stop;
  const u32 base = make_operands(16384);
  if (threadIdx.x < 128) {
    Products<N, kSs> products(base);
#pragma unroll 1
    for (int sample = 0; sample < kSamples; ++sample) {
      if (threadIdx.x == 0) stop = 0;
      __syncthreads();
      const u32 begin = cycle();
      products.template issue_bursts<kBurst, 1>(bursts);
      const u32 end = cycle();
      if (bursts == 0) {
        while (cycle() - begin < kSpinCycles) nanosleep(100);
      }
      if (threadIdx.x == 0) {
        stop = 1;
        out[sample] = end - begin;
      }
      __syncthreads();
    }
    products.keep_all(out);
  } else {
    Work work;
    const u32 mine = base + kProductBytes + threadIdx.x % 128 * 16;
#pragma unroll 1
    for (int sample = 0; sample < kSamples; ++sample) {
      __syncthreads();
      const u32 begin = cycle();
      u32 pieces = 0;
#pragma unroll 1
      do {
        work.run(mine);
        ++pieces;
      } while (stop == 0 && pieces < kMostPieces);
      const u32 end = cycle();
      if (threadIdx.x == 128) {
        out[kSamples + sample] = end - begin;
        out[2 * kSamples + sample] = pieces;
      }
      __syncthreads();
    }
    keep(out, work.result());
  }
}

template <int N, bool kSs, class Work>
void measure_one(Report& report, const std::string& work, int groups) {
  constexpr int kBursts = 32;
  const Shape shape{1, 128 * (1 + groups), kProductShared + 16384};
  const std::string name = "beside." + work + ".warpgroups" + std::to_string(groups);
  const std::string products = (kSs ? ".ss.n" : ".rs.n") + std::to_string(N);
  const auto pieces = [&](int bursts, const std::string& suffix) {
    const auto fields = fields_of(3, shape, beside<N, kSs, Work>, bursts);
    std::vector<double> each, product;
    for (std::size_t i = 0; i < fields[0].size(); ++i) {
      each.push_back(fields[1][i] / fields[2][i]);
      product.push_back(fields[0][i] / (kBursts * kBurst));
    }
    report.add(name + suffix + ".piece", "cycles", each);
    if (bursts != 0) report.add(name + suffix + ".product", "cycles", product);
  };
  if (N == 128 && kSs) pieces(0, ".alone");
  pieces(kBursts, products);
}

template <class Work>
void measure_work(Report& report, const std::string& name) {
  for (const int groups : {1, 2}) {
    measure_one<128, true, Work>(report, name, groups);
    measure_one<128, false, Work>(report, name, groups);
    measure_one<64, false, Work>(report, name, groups);
  }
}

}  // namespace

void measure_beside_products(Report& report) {
  measure_work<FmaWork>(report, "fma");
  measure_work<MaxWork>(report, "max");
  measure_work<Ex2Work>(report, "ex2");
  measure_work<PackWork>(report, "pack");
  measure_work<SoftmaxWork>(report, "softmax");
  measure_work<LoadWork>(report, "load16");
  measure_work<StoreWork>(report, "stmatrix");
}

}  // namespace attnjit::clock_bench

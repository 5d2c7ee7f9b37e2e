// SPDX-License-Identifier: Apache-2.0
// Times of products by shape and operand place: alone, several behind one another, and of several
// warpgroups at once.
#include "products.cuh"

namespace attnjit::clock_bench {
namespace {

/// kCount products and the wait for them, of one warpgroup. Field 0: all of it; field 1: until the
/// last was issued.
template <int N, bool kSs, int kCount, WgmmaOperand kOperand>
__global__ __launch_bounds__(128) void chain(u32* out) {
  Products<N, kSs, kOperand> products(make_operands());
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    products.template issue_group<kCount>(0);
    const u32 issued = cycle();
    wgmma_wait<0>();
    const u32 end = cycle();
    if (threadIdx.x == 0) {
      out[sample] = end - begin;
      out[kSamples + sample] = issued - begin;
    }
  }
  products.keep_all(out);
}

template <int N, bool kSs, WgmmaOperand kOperand = WgmmaOperand::kBf16>
std::string name_of() {
  const std::string type = kOperand == WgmmaOperand::kE4m3 ? "e4m3." : "";
  return type + (kSs ? "ss.n" : "rs.n") + std::to_string(N);
}

template <int N, bool kSs, int kCount, WgmmaOperand kOperand>
std::vector<std::vector<double>> chain_of() {
  return fields_of(2, {1, 128, kProductShared}, chain<N, kSs, kCount, kOperand>);
}

template <int N, bool kSs, WgmmaOperand kOperand = WgmmaOperand::kBf16>
void measure_chain(Report& report) {
  const std::string name = "products." + name_of<N, kSs, kOperand>();
  const auto add = [&]<int kCount>() {
    const auto fields = chain_of<N, kSs, kCount, kOperand>();
    report.add(name + ".count" + std::to_string(kCount), "cycles", fields[0]);
    if (kCount == 4) report.add(name + ".issue4", "cycles", fields[1]);
  };
  add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<4>();
  add.template operator()<8>();
  report.add(name + ".each", "cycles",
             slope(chain_of<N, kSs, 24, kOperand>()[0], chain_of<N, kSs, 8, kOperand>()[0], 16));
}

/// Every warpgroup issues `bursts` groups of kBurst products, with kPending groups under way while
/// it goes on.
template <int N, bool kSs, int kBurst, int kPending>
__global__ __launch_bounds__(384) void rate(u32* out, int bursts) {
  Products<N, kSs> products(make_operands());
  take_samples<Until::kAll>(out, [&] { products.template issue_bursts<kBurst, kPending>(bursts); });
  products.keep_all(out);
}

/// Cycles of the tensor cores per product, and per burst of a warpgroup that waits for each.
template <int N, bool kSs>
void measure_rate(Report& report) {
  constexpr int kBurst = 8;
  for (const int groups : {1, 2, 3}) {
    const Shape shape{1, 128 * groups, kProductShared};
    const std::string name =
        "products." + name_of<N, kSs>() + ".warpgroups" + std::to_string(groups);
    report.add(name, "cycles",
               slope(cycles_of(shape, rate<N, kSs, kBurst, 1>, 24),
                     cycles_of(shape, rate<N, kSs, kBurst, 1>, 8), 16.0 * kBurst * groups));
    report.add(name + ".waiting", "cycles",
               slope(cycles_of(shape, rate<N, kSs, kBurst, 0>, 24),
                     cycles_of(shape, rate<N, kSs, kBurst, 0>, 8), 16.0 * kBurst * groups));
  }
}

/// Two warpgroups: the `leader` issues a burst of kBurst, the other begins kBurst of its own as
/// soon as it sees them issued. Fields: when each had ended, from the leader's begin.
template <int N, bool kSs, int kBurst>
__global__ __launch_bounds__(256) void two_bursts(u32* out, int leader) {
  __shared__ u32 begin;
  Products<N, kSs> products(make_operands());
  const bool leads = threadIdx.x / 128 == leader;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    if (leads && threadIdx.x % 128 == 0) begin = cycle();
    if (!leads) named_barrier_sync(1, 256);
    products.template issue_group<kBurst>();
    if (leads) named_barrier_arrive(1, 256);
    wgmma_wait<0>();
    const u32 end = cycle();
    if (threadIdx.x % 128 == 0) out[(leads ? 0 : kSamples) + sample] = end - begin;
    __syncthreads();
  }
  products.keep_all(out);
}

template <int N, bool kSs, int kBurst>
void measure_two_bursts(Report& report) {
  for (const int leader : {0, 1}) {
    const auto fields = fields_of(2, {1, 256, kProductShared}, two_bursts<N, kSs, kBurst>, leader);
    const std::string name = "products." + name_of<N, kSs>() + ".two_bursts" +
                             std::to_string(kBurst) + (leader == 0 ? "" : ".younger_leads");
    report.add(name + ".first", "cycles", fields[0]);
    report.add(name + ".second", "cycles", fields[1]);
  }
}

}  // namespace

void measure_products(Report& report) {
  measure_chain<64, true>(report);
  measure_chain<96, true>(report);
  measure_chain<128, true>(report);
  measure_chain<160, true>(report);
  measure_chain<176, true>(report);
  measure_chain<192, true>(report);
  measure_chain<224, true>(report);
  measure_chain<32, false>(report);
  measure_chain<64, false>(report);
  measure_chain<96, false>(report);
  measure_chain<128, false>(report);
  measure_chain<192, false>(report);
  measure_chain<256, false>(report);
  measure_rate<64, true>(report);
  measure_rate<128, true>(report);
  measure_rate<176, true>(report);
  measure_rate<64, false>(report);
  measure_rate<128, false>(report);
  measure_rate<192, false>(report);
  measure_chain<96, true, WgmmaOperand::kE4m3>(report);
  measure_chain<128, true, WgmmaOperand::kE4m3>(report);
  measure_chain<192, true, WgmmaOperand::kE4m3>(report);
  measure_chain<128, false, WgmmaOperand::kE4m3>(report);
  measure_two_bursts<128, true, 8>(report);
  measure_two_bursts<128, false, 8>(report);
  measure_two_bursts<128, true, 4>(report);
}

}  // namespace attnjit::clock_bench

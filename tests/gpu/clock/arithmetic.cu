// SPDX-License-Identifier: Apache-2.0
// Latencies and rates of the pipes of a sub-partition, and of a tile's softmax.
#include "common/wgmma.cuh"
#include "device.cuh"
#include "work.cuh"

namespace attnjit::clock_bench {
namespace {

/// An instruction, or two that the compiler cannot make one, from and to a register.
#define ATTNJIT_CLOCK_OP(NAME, TEXT)                               \
  struct NAME {                                                    \
    ATTNJIT_DEVICE static void apply(float& x, float y, float z) { \
      asm volatile(TEXT : "+f"(x) : "f"(y), "f"(z));               \
    }                                                              \
  }
ATTNJIT_CLOCK_OP(Fma, "fma.rn.f32 %0, %0, %1, %2;");
ATTNJIT_CLOCK_OP(Add, "add.rn.f32 %0, %0, %1;");
ATTNJIT_CLOCK_OP(Mul, "mul.rn.f32 %0, %0, %1;");
ATTNJIT_CLOCK_OP(MaxMin, "max.f32 %0, %0, %1; min.f32 %0, %0, %2;");
ATTNJIT_CLOCK_OP(Ex2, "ex2.approx.ftz.f32 %0, %0;");
ATTNJIT_CLOCK_OP(Lg2, "lg2.approx.ftz.f32 %0, %0;");
ATTNJIT_CLOCK_OP(Rcp, "rcp.approx.ftz.f32 %0, %0;");
ATTNJIT_CLOCK_OP(Tanh, "tanh.approx.f32 %0, %0;");
ATTNJIT_CLOCK_OP(Pack, "{ .reg .b32 p; cvt.rn.bf16x2.f32 p, %0, %1; mov.b32 %0, p; }");
ATTNJIT_CLOCK_OP(AddXor,
                 "{ .reg .b32 p, q; mov.b32 p, %0; mov.b32 q, %1; add.s32 p, p, q;"
                 " mov.b32 q, %2; xor.b32 p, p, q; mov.b32 %0, p; }");
ATTNJIT_CLOCK_OP(MadLo,
                 "{ .reg .b32 p, q, r; mov.b32 p, %0; mov.b32 q, %1; mov.b32 r, %2;"
                 " mad.lo.s32 p, p, q, r; mov.b32 %0, p; }");
ATTNJIT_CLOCK_OP(FromInt, "{ .reg .b32 p; mov.b32 p, %0; cvt.rn.f32.s32 %0, p; }");
ATTNJIT_CLOCK_OP(Shuffle, "shfl.sync.bfly.b32 %0, %0, 1, 0x1f, 0xffffffff;");
ATTNJIT_CLOCK_OP(Select, "{ .reg .pred p; setp.gt.f32 p, %0, %1; selp.f32 %0, %2, %0, p; }");
// Two pipes in turn.
ATTNJIT_CLOCK_OP(FmaEx2, "fma.rn.f32 %0, %0, %1, %2; ex2.approx.ftz.f32 %0, %0;");

template <class Op, int kChains, int kSteps>
__global__ void pipe(u32* out, float y, float z) {
  float x[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) x[c] = y + static_cast<float>(c + threadIdx.x);
  take_samples_of<Until::kAll, kSteps>(out, [&](int) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) Op::apply(x[c], y, z);
  });
#pragma unroll
  for (int c = 0; c < kChains; ++c) keep(out, x[c]);
}

/// The latency of `parts` instructions that depend on one another, and the cycles that each of
/// independent ones takes with 1 and 4 warps per sub-partition.
template <class Op>
void measure_pipe(Report& report, const std::string& name, double parts = 1) {
  constexpr int kChains = 8;
  const auto latency = slope(cycles_of({1, 32}, pipe<Op, 1, 64>, 1.5f, 0.75f),
                             cycles_of({1, 32}, pipe<Op, 1, 32>, 1.5f, 0.75f), 32 * parts);
  report.add("arithmetic." + name + ".latency", "cycles", latency);
  for (const int warps : {1, 4}) {
    const auto rate = slope(cycles_of({1, 128 * warps}, pipe<Op, kChains, 16>, 1.5f, 0.75f),
                            cycles_of({1, 128 * warps}, pipe<Op, kChains, 8>, 1.5f, 0.75f),
                            8 * kChains * parts * warps);
    report.add("arithmetic." + name + ".warps" + std::to_string(warps), "cycles", rate);
  }
}

/// One step of a warpgroup's online softmax over 64 rows of `kColumns` scores, with the packing of
/// P: what a consumer does of each tile beside its products.
template <int kColumns, int kPolynomials>
__global__ __launch_bounds__(384) void softmax_step(u32* out, int spread) {
  using Softmax = sm90::OnlineSoftmax<SoftmaxConfig<kPolynomials>>;
  Softmax softmax{.log2_scale = {{0.09f}}};
  softmax.maximum[0] = softmax.maximum[1] = 8.0f;
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    float s[kColumns / 2], correction[2] = {1.0f, 1.0f};
    u32 p[kColumns / 4];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i)
      s[i] = static_cast<float>(hash(i + 64 * threadIdx.x) % spread);
    pin_registers(s);
    __syncthreads();
    const u32 begin = cycle();
    softmax.step(s, correction);
    pack_pairs<true>(p, s);
    pin_registers(p);
    __syncthreads();
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) keep(out, p[i]);
    keep(out, correction[0] + correction[1]);
  }
  keep(out, softmax.sum[0] + softmax.sum[1]);
}

template <int kColumns, int kPolynomials>
void measure_softmax(Report& report) {
  for (const int groups : {1, 2, 3}) {
    report.add("arithmetic.softmax.n" + std::to_string(kColumns) + ".polynomials" +
                   std::to_string(kPolynomials) + ".warpgroups" + std::to_string(groups),
               "cycles", cycles_of({1, 128 * groups}, softmax_step<kColumns, kPolynomials>, 8));
  }
}

__global__ void nothing(u32* out) {
  take_samples<Until::kAll>(out, [] {});
}

}  // namespace

void measure_arithmetic(Report& report) {
  report.add("arithmetic.empty", "cycles", cycles_of({1, 128}, nothing));
  measure_pipe<Fma>(report, "fma");
  measure_pipe<Add>(report, "add");
  measure_pipe<Mul>(report, "mul");
  measure_pipe<MaxMin>(report, "max", 2);
  measure_pipe<Ex2>(report, "ex2");
  measure_pipe<Lg2>(report, "lg2");
  measure_pipe<Rcp>(report, "rcp");
  measure_pipe<Tanh>(report, "tanh");
  measure_pipe<Pack>(report, "pack_bf16");
  measure_pipe<AddXor>(report, "integer", 2);
  measure_pipe<MadLo>(report, "mad_lo");
  measure_pipe<FromInt>(report, "from_int");
  measure_pipe<Shuffle>(report, "shuffle");
  measure_pipe<Select>(report, "compare_select", 2);
  measure_pipe<FmaEx2>(report, "fma_ex2", 2);
  measure_softmax<64, 0>(report);
  measure_softmax<128, 0>(report);
  measure_softmax<128, 8>(report);
  measure_softmax<176, 0>(report);
}

}  // namespace attnjit::clock_bench

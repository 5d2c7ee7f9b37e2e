// SPDX-License-Identifier: Apache-2.0
// What the microbenchmarks share: cycle counts of a kernel's samples, launches, and errors.
//
// A kernel measures kSamples times and writes a count of cycles for each. Most numbers are the
// difference of two kernels of which one does more of the same, so that what both do cancels.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/ptx.cuh"
#include "report.h"

namespace attnjit::clock_bench {

/// The first ones fill the instruction cache, and are left out.
constexpr int kSamples = 24, kWarmUp = 4;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// %clock64 (10): cycles of the SM. NOTE: volatile, with memory: nothing moves across it.
ATTNJIT_DEVICE u64 cycle64() {
  u64 count;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(count)::"memory");
  return count;
}

/// Its low half. NOTE: under a predicate that differs between lanes for all that ptxas knows, so
/// that it is not read through the uniform pipe, some cycles late.
ATTNJIT_DEVICE u32 cycle() {
  u64 count;
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.lt.u32 p, %1, 2048;\n"
      "mov.u64 %0, 0;\n"
      "@p mov.u64 %0, %%clock64;\n}"
      : "=l"(count)
      : "r"(threadIdx.x)
      : "memory");
  return static_cast<u32>(count);
}

/// %smid (10).
ATTNJIT_DEVICE u32 sm_id() {
  u32 sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

/// Where a kernel would write what it computed; it never does, and ptxas does not know.
constexpr int kNeverWritten = 1 << 15;
ATTNJIT_DEVICE void keep(u32* out, u32 value) {
  if (value == 0x7fc0deadu) out[kNeverWritten] = value;
}
ATTNJIT_DEVICE void keep(u32* out, float value) { keep(out, __float_as_uint(value)); }

/// Pseudo-random bits of a place (the finalizer of MurmurHash3).
ATTNJIT_DEVICE u32 hash(u32 x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

/// Fills shared memory with pairs of bf16 of either sign, from 0.5 to 2.
ATTNJIT_DEVICE void fill_shared(u32 base, int bytes) {
  for (int i = 4 * threadIdx.x; i < bytes; i += 4 * blockDim.x)
    store_shared_word(base + i, (hash(i) & 0x80ff80ffu) | 0x3f003f00u);
}

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

/// Shared memory from the first whole swizzle pattern on.
ATTNJIT_DEVICE u32 shared_base() { return (shared_address(dynamic_shared) + 1023u) & ~1023u; }

/// Where a sample's count is read: when thread 0 is through, or when all threads are.
enum class Until { kThread0, kAll };

/// Takes kSamples times what `piece` takes once all threads have met.
template <Until kUntil, class Piece>
ATTNJIT_DEVICE void take_samples(u32* out, const Piece& piece) {
#pragma unroll 1
  for (int sample = 0; sample < kSamples; ++sample) {
    __syncthreads();
    const u32 begin = cycle();
    piece();
    if constexpr (kUntil == Until::kAll) __syncthreads();
    const u32 end = cycle();
    if (threadIdx.x == 0) out[sample] = end - begin;
  }
}

/// The same of kCount of an instruction: `issue` is handed which one it is.
template <Until kUntil, int kCount, class Issue>
ATTNJIT_DEVICE void take_samples_of(u32* out, const Issue& issue) {
  take_samples<kUntil>(out, [&] {
#pragma unroll
    for (int i = 0; i < kCount; ++i) issue(i);
  });
}

/// Each of `samples` divided by `parts`.
inline std::vector<double> each(std::vector<double> samples, double parts) {
  for (double& sample : samples) sample /= parts;
  return samples;
}

/// Device memory, freed with the process.
template <class T>
T* allocate(std::size_t count) {
  T* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(memory, 0, count * sizeof(T)), "cudaMemset");
  return memory;
}

/// Allows the kernel its dynamic shared memory.
template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
}

struct Shape {
  int ctas = 1, threads = 32, shared = 0;
};

/// Runs a kernel that writes `fields` times kSamples counts; those of one field.
template <class... Parameters, class... Values>
std::vector<std::vector<double>> fields_of(int fields, Shape shape,
                                           void (*kernel)(u32*, Parameters...), Values... values) {
  static u32* const out = allocate<u32>(1 << 16);
  allow_shared(kernel, shape.shared);
  check(cudaMemset(out, 0, sizeof(u32) * fields * kSamples), "cudaMemset");
  kernel<<<shape.ctas, shape.threads, shape.shared>>>(out, static_cast<Parameters>(values)...);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "kernel");
  std::vector<u32> counts(fields * kSamples);
  check(cudaMemcpy(counts.data(), out, sizeof(u32) * counts.size(), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  std::vector<std::vector<double>> result(fields);
  for (int f = 0; f < fields; ++f) {
    const auto begin = counts.begin() + f * kSamples;
    result[f].assign(begin + kWarmUp, begin + kSamples);
  }
  return result;
}

template <class... Parameters, class... Values>
std::vector<double> cycles_of(Shape shape, void (*kernel)(u32*, Parameters...), Values... values) {
  return fields_of(1, shape, kernel, values...)[0];
}

// The groups, a file each.
void measure_arithmetic(Report& report);
void measure_turns(Report& report);
void measure_barriers(Report& report);
void measure_shared_memory(Report& report);
void measure_products(Report& report);
void measure_beside_products(Report& report);
void measure_copies(Report& report);
void measure_memory(Report& report);
void measure_launches(Report& report);
void measure_chip_clock(Report& report);

}  // namespace attnjit::clock_bench

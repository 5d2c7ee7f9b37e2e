// SPDX-License-Identifier: Apache-2.0
// Reads each SM's cycles and the time between launches: what bench/clock/measure.py makes the SMs'
// clock of. A library of one function, built by nvcc -shared.
#include <cuda_runtime.h>

namespace {

constexpr int kShared = 200 * 1024;  // one CTA fills an SM: none is left out

/// out[sm]: %clock64 and %globaltimer, read one behind the other.
__global__ void read(ulonglong2* out) {
  unsigned sm;
  unsigned long long cycles, nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%clock64;\n\tmov.u64 %1, %%globaltimer;"
               : "=l"(cycles), "=l"(nanoseconds)::"memory");
  out[sm] = make_ulonglong2(cycles, nanoseconds);
}

}  // namespace

/// Enqueues a reading of `sms` SMs; 0, or a cudaError_t.
extern "C" int attnjit_clock_probe(void* out, int sms, void* stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(read, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  if (error != cudaSuccess) return error;
  read<<<sms, 32, kShared, static_cast<cudaStream_t>(stream)>>>(static_cast<ulonglong2*>(out));
  return cudaGetLastError();
}

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a CUDA program that says how fast instructions come which the first cache does not hold.

    bench/clock/instruction_cache.py > F.cu && nvcc -O3 -arch=sm_90a F.cu -o F && ./F

Each kernel is straight-line FMAs of some size, 16 bytes each: in a loop of that size; once behind a
hot loop of 8 KB; and by four roles of four warps, each with a hot loop and a cold block of its own.
"""
LOOPS = [4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192]  # KB
COLD = [2, 4, 8, 16]
HOT = 8


def block(kilobytes):
    """An asm statement of so many kilobytes of FMAs, eight of which are independent."""
    lines = "\n".join(f'"fma.rn.f32 %{i % 8}, %{i % 8}, %8, %{i % 8};\\n"'
                      for i in range(kilobytes * 64))
    return f'asm volatile({lines} : REGS : "f"(x));'


def kernel(name, parameters, body):
    print(f"""__global__ void {name}(float x, int iters, {parameters}long long* t, float* o) {{
  float a0 = x, a1 = x, a2 = x, a3 = x, a4 = x, a5 = x, a6 = x, a7 = x;
  long long s = 0;
  {body}
  if (threadIdx.x % 32 == 0) t[blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32] = s;
  o[threadIdx.x] = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7;
}}""")


def cold(kilobytes, sync=""):
    return f"""for (int i = 0; i < iters + 2; ++i) {{
    for (int j = 0; j < inner; ++j) {block(HOT)}
    {sync}
    const long long b = clock64();
    {block(kilobytes)}
    if (i >= 2) s += clock64() - b;
  }}"""


def main():
    print("""#include <cuda_runtime.h>

#include <cstdio>
#include <vector>
#define REGS "+f"(a0), "+f"(a1), "+f"(a2), "+f"(a3), "+f"(a4), "+f"(a5), "+f"(a6), "+f"(a7)""")
    for size in LOOPS:
        kernel(f"loop{size}", "", f"""for (int i = 0; i < iters + 2; ++i) {{
    if (i == 2) s = clock64();
    {block(size)}
  }}
  s = clock64() - s;""")
    for size in COLD:
        kernel(f"cold{size}", "int inner, ", cold(size))
    roles = "\n".join(f"  if (role == {role}) {cold(HOT, '__syncthreads();')}" for role in range(4))
    kernel("roles", "int inner, ",
           f"const int role = __shfl_sync(~0u, threadIdx.x / 128, 0);\n{roles}")
    print("""static long long* t;
static double mean(int n) {
  std::vector<long long> host(n);
  cudaMemcpy(host.data(), t, n * 8, cudaMemcpyDeviceToHost);
  double sum = 0;
  for (long long one : host) sum += one;
  return sum / n;
}
int main() {
  float* o;
  cudaMalloc(&t, 1 << 20);
  cudaMalloc(&o, 1 << 16);
  cudaDeviceProp p;
  cudaGetDeviceProperties(&p, 0);
  const int sms = p.multiProcessorCount, iters = 50;
  printf("%s\\n", p.name);""")
    for size in LOOPS:
        for warps in (1, 4, 8, 16):
            print(f"""  loop{size}<<<sms, {32 * warps}>>>(1.f, iters, t, o);
  printf("loop {size} KB, {warps} warps: %.3f cycles an instruction of a warp\\n",
         mean(sms * {warps}) / iters / {64 * size});""")
    for size in COLD:
        for warps in (1, 4, 16):
            print(f"""  cold{size}<<<sms, {32 * warps}>>>(1.f, iters, 8, t, o);
  printf("cold {size} KB, {warps} warps: %.3f cycles an instruction\\n",
         mean(sms * {warps}) / iters / {64 * size});""")
    for inner in (0, 8):
        print(f"""  roles<<<sms, 512>>>(1.f, iters, {inner}, t, o);
  printf("4 roles of 4 warps, 8 KB each behind {inner} turns of their own 8 KB: %.0f cycles\\n",
         mean(sms * 16) / iters);""")
    print("""  printf("%s\\n", cudaGetErrorString(cudaGetLastError()));
}""")


if __name__ == "__main__":
    main()

// SPDX-License-Identifier: Apache-2.0
// Small kernels that the tests of the compile room share.
#pragma once

#include <string>

#include "attnjit/compile.h"

namespace attnjit::test {

/// A request for one kernel `attnjit_kernel` in the shape that generate gives.
inline CompileRequest request_for(std::string text, Arch arch = Arch::kSm90a) {
  CompileRequest request;
  KernelSource& source = request.source;
  source.name = "attention.cu";
  source.text = std::move(text);
  source.arch = arch;
  source.options = {"--gpu-architecture=" + std::string(to_string(arch)), "-std=c++20",
                    "-default-device", "--no-source-include", "--ptxas-options=-v"};
  source.entries = {"attnjit_kernel"};
  return request;
}

inline const char* const kSmallKernel =
    "extern \"C\" __global__ void __launch_bounds__(128) attnjit_kernel(float* p, int n) {\n"
    "  __shared__ float s[64];\n"
    "  s[threadIdx.x & 63] = p[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  if (threadIdx.x < n) p[threadIdx.x] = s[63 - (threadIdx.x & 63)];\n"
    "}\n";

/// A kernel whose user code, at line 1 of user:mask.code, is `body`.
inline std::string with_user_code(const std::string& body) {
  return "struct Coord { int q_idx, kv_idx; };\n"
         "struct Mask {\n"
         "  static bool visible(const Coord& c) {\n"
         "    const int q_idx = c.q_idx, kv_idx = c.kv_idx;\n"
         "#line 1 \"user:mask.code\"\n" +
         body +
         "\n#line 7 \"attention.cu\"\n"
         "  }\n"
         "};\n"
         "extern \"C\" __global__ void attnjit_kernel(int* p, int q, int k) {\n"
         "  *p = Mask::visible(Coord{q, k});\n"
         "}\n";
}

inline Compiler::Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

}  // namespace attnjit::test

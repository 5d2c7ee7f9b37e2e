// SPDX-License-Identifier: Apache-2.0
// Runs two small kernels in the emulator: one that is right, and one with a race that it finds.
//
// It needs neither a GPU nor NVRTC, and exits with 0 where both go as they should.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "attnjit/emulator.h"
#include "attnjit/launch.h"

namespace {

constexpr std::uint32_t kThreads = 64;

// iota: every thread stores its index in an element of its own; clash: all store in the first.
constexpr const char* kPtx = R"(
.version 8.3
.target sm_90a
.address_size 64

.visible .entry iota(.param .u64 out) {
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}

.visible .entry clash(.param .u64 out) {
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

struct Run {
  attnjit::EmulatorReport report;
  std::vector<std::uint32_t> out;
};

attnjit::Result<Run> run(const attnjit::PtxModule& module, const char* kernel) {
  attnjit::LaunchRecipe recipe;
  recipe.entry = kernel;
  recipe.block = {kThreads, 1, 1};
  recipe.args = {{attnjit::KernelArgument::Pointer{"out", 0}}};

  attnjit::EmulatorBuffer out;
  out.name = "out";
  out.dtype = attnjit::Dtype::kI32;
  out.shape = {kThreads};
  out.data.resize(kThreads * sizeof(std::uint32_t));
  out.uninitialised = true;
  std::vector<attnjit::EmulatorBuffer> buffers{std::move(out)};

  attnjit::Result<attnjit::EmulatorReport> report = emulate(module, recipe, buffers);
  if (!report) return std::move(report).error();
  Run result{std::move(*report), std::vector<std::uint32_t>(kThreads)};
  std::memcpy(result.out.data(), buffers[0].data.data(), buffers[0].data.size());
  return result;
}

int fail(const attnjit::Error& error) {
  std::fprintf(stderr, "%s\n", error.to_string().c_str());
  return 1;
}

}  // namespace

int main() {
  const attnjit::Result<attnjit::PtxModule> module = attnjit::PtxModule::load(kPtx);
  if (!module) return fail(module.error());

  const attnjit::Result<Run> iota = run(*module, "iota");
  if (!iota) return fail(iota.error());
  bool right = iota->report.passed;
  for (std::uint32_t i = 0; i < kThreads; ++i) right = right && iota->out[i] == i;
  std::printf("iota: %llu thread instructions, %s\n",
              static_cast<unsigned long long>(iota->report.thread_steps),
              right ? "right" : "WRONG");

  const attnjit::Result<Run> clash = run(*module, "clash");
  if (!clash) return fail(clash.error());
  bool found = false;
  for (const attnjit::Finding& finding : clash->report.findings) {
    std::printf("clash: PTX line %d: %s\n", finding.ptx_line, finding.text.c_str());
    found = found || finding.kind == attnjit::FindingKind::kRace;
  }
  return right && found ? 0 : 1;
}

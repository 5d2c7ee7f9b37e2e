// SPDX-License-Identifier: Apache-2.0
// Speed of the emulator: thread instructions per second on softmax-like code, one host thread.
#include <benchmark/benchmark.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "attnjit/emulator.h"
#include "source_dir.h"

namespace attnjit {
namespace {

std::string read(const std::string& name) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/" + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Argument 0: checks. The kernel is 32 warps of online softmax over rows of 4096.
void softmax(benchmark::State& state) {
  auto module = PtxModule::load(read("kernels/speed.sm_90a.ptx"));
  if (!module) {
    state.SkipWithError(module.error().to_string().c_str());
    return;
  }
  std::vector<EmulatorBuffer> buffers(2);
  buffers[0].name = "o";
  buffers[0].shape = {1024};
  buffers[0].data.resize(4096);
  buffers[1].name = "x";
  buffers[1].shape = {128 * 128};
  buffers[1].data.resize(128 * 128 * 4);
  for (std::size_t i = 0; i < 128 * 128; ++i) {
    const float v = static_cast<float>(i % 37) * 0.25f;
    std::memcpy(buffers[1].data.data() + 4 * i, &v, 4);
  }
  LaunchRecipe recipe;
  recipe.entry = "rows";
  recipe.block = {256, 1, 1};
  recipe.args = {{KernelArgument::Pointer{"o", 0}},
                 {KernelArgument::Pointer{"x", 0}},
                 {std::int32_t{64}},
                 {0.125f}};
  EmulatorOptions options;
  options.checks = state.range(0) != 0;
  options.threads = 1;
  double thread_steps = 0;
  for (auto _ : state) {
    auto report = emulate(*module, recipe, buffers, options);
    if (!report || !report->passed) {
      state.SkipWithError("the kernel failed");
      return;
    }
    thread_steps += static_cast<double>(report->thread_steps);
  }
  state.counters["thread_instructions"] =
      benchmark::Counter(thread_steps, benchmark::Counter::kIsRate);
}
BENCHMARK(softmax)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace attnjit
BENCHMARK_MAIN();

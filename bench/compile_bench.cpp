// SPDX-License-Identifier: Apache-2.0
// How long compiles take: one alone, two at once, in this process and in the helper.
//
//   build/release/bench/compile_bench [SPEC.json] [ATTNJIT_COMMAND]
//
// Prints JSON: medians over 11 rounds. A round is one compile alone and then two at once, so that
// what else the machine does meets both alike. Needs NVRTC, no GPU.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/plan.h"
#include "attnjit/source.h"
#include "attnjit/spec.h"

namespace {

using attnjit::Compiler;
using attnjit::CompileRequest;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 11;
constexpr const char* kSpec =
    R"({"arch": "sm_90a", "num_q_heads": 32, "group": 4, "qk_depth": 128, "mask": "causal"})";

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// One compile; ends the program on an error.
attnjit::KernelImage compile(Compiler& compiler, const CompileRequest& request) {
  auto image = compiler.compile(request, Clock::now() + std::chrono::minutes(2));
  if (!image) {
    fmt::print(stderr, "{}\n", image.error().to_string());
    std::exit(attnjit::exit_code(image.error().code));
  }
  return *std::move(image);
}

double elapsed_ms(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

CompileRequest make_request(const std::string& json) {
  const auto fail = [](const attnjit::Error& error) {
    fmt::print(stderr, "{}\n", error.to_string());
    std::exit(attnjit::exit_code(error.code));
  };
  const auto document = attnjit::spec_from_json(json);
  if (!document) fail(document.error());
  const auto plan = attnjit::plan(document->spec, document->options);
  if (!plan) fail(plan.error());
  const auto source = attnjit::generate(*plan);
  if (!source) fail(source.error());
  CompileRequest request;
  request.source = *source;
  return request;
}

struct Times {
  std::vector<double> one, two, ratio, frontend, optimizer, ptxas;
};

Times measure(Compiler& compiler, const CompileRequest& request) {
  Times times;
  compile(compiler, request);  // the library is opened, its pages are read
  for (int round = 0; round < kRounds; ++round) {
    auto start = Clock::now();
    const attnjit::KernelImage image = compile(compiler, request);
    times.one.push_back(elapsed_ms(start));
    times.frontend.push_back(image.times.frontend_ms);
    times.optimizer.push_back(image.times.optimizer_ms);
    times.ptxas.push_back(image.times.ptxas_ms);
    start = Clock::now();
    std::thread other([&] { compile(compiler, request); });
    compile(compiler, request);
    other.join();
    times.two.push_back(elapsed_ms(start));
    times.ratio.push_back(times.two.back() / times.one.back());
  }
  return times;
}

std::string to_json(const Times& times) {
  return fmt::format(
      "{{\"one_ms\": {:.1f}, \"two_at_once_ms\": {:.1f}, \"ratio\": {:.3f}, \"frontend_ms\": "
      "{:.0f}, "
      "\"optimizer_ms\": {:.0f}, \"ptxas_ms\": {:.0f}}}",
      median(times.one), median(times.two), median(times.ratio), median(times.frontend),
      median(times.optimizer), median(times.ptxas));
}

}  // namespace

int main(int argc, char** argv) {
  std::string spec = kSpec;
  if (argc > 1) {
    std::ifstream file(argv[1]);
    spec.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  const CompileRequest request = make_request(spec);
  const auto start = Clock::now();
  const auto in_process = attnjit::make_in_process_compiler();
  compile(*in_process, request);
  const double cold_ms = elapsed_ms(start);
  attnjit::HelperOptions options;
  if (argc > 2) options.helper_path = argv[2];
  const auto helper = attnjit::make_helper_compiler(options);
  const Times here = measure(*in_process, request);
  const Times there = measure(*helper, request);
  fmt::print(
      "{{\"cores\": {}, \"rounds\": {}, \"cold_ms\": {:.1f},\n \"in_process\": {},\n \"helper\": "
      "{}}}\n",
      std::thread::hardware_concurrency(), kRounds, cold_ms, to_json(here), to_json(there));
  return 0;
}

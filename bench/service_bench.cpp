// SPDX-License-Identifier: Apache-2.0
// What Service's hot path costs without a GPU: prepare, find and a compile that is in memory.
//
// get and launch need a driver: tests/gpu measures them.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "attnjit/service.h"

namespace {

using attnjit::AttentionSpec;
using attnjit::Compiler;
using attnjit::CompileRequest;
using attnjit::KernelImage;
using attnjit::PreparedSpec;
using attnjit::Result;
using attnjit::Service;
using attnjit::ServiceOptions;

class NoCompiler final : public Compiler {
 public:
  Result<std::string> build_id() override { return std::string("none"); }
  Result<KernelImage> compile(const CompileRequest&, Deadline) override { return KernelImage{}; }
  void cancel() override {}
};

Service& service() {
  static const std::unique_ptr<Service> instance = [] {
    ServiceOptions options;
    options.use_disk_cache = false;
    options.compiler = std::make_shared<NoCompiler>();
    auto created = Service::create(options);
    if (!created) {
      std::fprintf(stderr, "%s\n", created.error().to_string().c_str());
      std::abort();
    }
    return *std::move(created);
  }();
  return *instance;
}

AttentionSpec spec() {
  AttentionSpec spec;
  spec.arch = attnjit::Arch::kSm90a;
  spec.num_q_heads = 32;
  spec.group = 4;
  spec.qk_depth = 128;
  return spec;
}

const PreparedSpec& prepared() {
  static const PreparedSpec instance = [] {
    auto made = service().prepare(spec());
    if (!made) {
      std::fprintf(stderr, "%s\n", made.error().to_string().c_str());
      std::abort();
    }
    return *std::move(made);
  }();
  return instance;
}

void find(benchmark::State& state) {
  const PreparedSpec& known = prepared();
  for (auto _ : state) benchmark::DoNotOptimize(service().find(known));
}
BENCHMARK(find)->Threads(1)->Threads(8)->UseRealTime();

void compile_in_memory(benchmark::State& state) {
  const PreparedSpec& known = prepared();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  (void)service().compile(known, deadline);
  for (auto _ : state) benchmark::DoNotOptimize(service().compile(known, deadline).ok());
}
BENCHMARK(compile_in_memory)->Threads(1)->Threads(8)->UseRealTime();

void prepare_known_spec(benchmark::State& state) {
  const AttentionSpec known = spec();
  for (auto _ : state) benchmark::DoNotOptimize(service().prepare(known).ok());
}
BENCHMARK(prepare_known_spec)->UseRealTime();

void prepare_new_spec(benchmark::State& state) {
  AttentionSpec fresh = spec();
  fresh.mask.kind = attnjit::MaskSpec::Kind::kSlidingWindow;
  for (auto _ : state) {
    ++fresh.mask.window;
    benchmark::DoNotOptimize(service().prepare(fresh).ok());
  }
}
BENCHMARK(prepare_new_spec)->UseRealTime()->Iterations(2000);

/// A custom mask that is new to the Service, as get_or_fallback's caller prepares it.
void prepare_new_mask(benchmark::State& state) {
  AttentionSpec fresh = spec();
  fresh.mask.kind = attnjit::MaskSpec::Kind::kCustom;
  fresh.mask.custom.name = "documents";
  int number = 0;
  for (auto _ : state) {
    fresh.mask.custom.code =
        "kv_idx <= q_idx && q_idx / 64 == kv_idx / 64 + " + std::to_string(++number);
    benchmark::DoNotOptimize(service().prepare(fresh).ok());
  }
}
BENCHMARK(prepare_new_mask)->UseRealTime()->Iterations(500);

}  // namespace

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0
// Compiles many kernels, several at a time, and prints what the compiler reports.
#include "compile_report.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "attnjit/compile.h"
#include "attnjit/plan.h"

namespace attnjit::kernel_test {

bool CompileReport::add(const NamedSpec& one) {
  const Result<KernelPlan> planned = plan(one.spec, one.options);
  if (!planned || !planned->supported) return false;
  Result<KernelSource> source = generate(*planned);
  if (!source) {
    ++failed_;
    std::printf("FAILED: %s: %s\n", one.name.c_str(), source.error().to_string().c_str());
  } else if (seen_.insert(source->text).second) {
    entries_.push_back({one.name, std::move(*source)});
  }
  return true;
}

int CompileReport::run(const CompileReportOptions& options) {
  const std::shared_ptr<Compiler> compiler = make_in_process_compiler();
  if (Result<std::string> id = compiler->build_id(); !id) {
    std::fprintf(stderr, "%s\n", id.error().to_string().c_str());
    return 77;
  }
  std::vector<Entry> taken;
  for (std::size_t i = 0; i < entries_.size(); i += options.sample) {
    Entry& entry = entries_[i];
    if (entry.name.find(options.only) != std::string::npos) taken.push_back(std::move(entry));
  }
  std::printf("%zu kernels, %zu taken\n", entries_.size(), taken.size());
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::size_t bad = failed_, spilling = 0;
  double slowest_ms = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < taken.size(); i = next++) {
      CompileRequest request;
      request.source = taken[i].source;
      const Result<KernelImage> image =
          compiler->compile(request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
      const std::lock_guard lock(mutex);
      if (!image) {
        ++bad;
        std::printf("FAILED: %s: %s\n", taken[i].name.c_str(), image.error().to_string().c_str());
        continue;
      }
      const bool spills = image->usage.spill_bytes != 0 || image->usage.stack_bytes != 0;
      spilling += spills ? 1 : 0;
      bad += image->usage.spill_bytes > options.spills ? 1 : 0;
      slowest_ms = std::max(slowest_ms, image->times.total_ms);
      if (spills || options.all) {
        std::printf("%s: spills %d, stack %d, registers %d, %.0f ms: %s\n",
                    spills ? "SPILLS" : "good", image->usage.spill_bytes, image->usage.stack_bytes,
                    image->usage.registers, image->times.total_ms, taken[i].name.c_str());
        std::fflush(stdout);
      }
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    pool.emplace_back(work);
  }
  work();
  for (std::thread& thread : pool) thread.join();
  std::printf("%zu of %zu kernels without spills and stack; the slowest compile took %.0f ms\n",
              taken.size() - spilling, taken.size(), slowest_ms);
  return bad == 0 && !taken.empty() ? 0 : 1;
}

int compile_report_main(int argc, char** argv, int (*report)(const CompileReportOptions&)) {
  CompileReportOptions options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    const std::uint64_t number = std::strtoull(value, nullptr, 10);
    if (flag == "--only") {
      options.only = value;
    } else if (flag == "--sample" && number > 0) {
      options.sample = number;
    } else if (flag == "--spills") {
      options.spills = static_cast<int>(number);
    } else if (flag == "--random") {
      options.random = number;
    } else if (flag == "--seed") {
      options.seed = number;
    } else if (flag == "--all") {
      options.all = number != 0;
    } else {
      std::fprintf(stderr, "unknown flag or value: %s %s\n", flag.c_str(), value);
      return 2;
    }
  }
  return report(options);
}

}  // namespace attnjit::kernel_test

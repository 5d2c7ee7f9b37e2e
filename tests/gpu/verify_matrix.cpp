// SPDX-License-Identifier: Apache-2.0
// Runs every supported combination of an architecture's kernel, or a sample of them, and compares
// each with the float64 reference, outputs poisoned before: on a GPU at five shapes with every
// kind of input; in the emulator at three small shapes, each with one kind.
//
//     attnjit_verify_matrix [--backend gpu|emulator] [--arch A] [--sample N] [--threads T]
//                           [--json FILE]
//
// --sample N takes every Nth combination. Exit code 77: there is no such GPU, or no NVRTC (ctest:
// skipped).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "attnjit/service.h"
#include "verify/backend.h"
#include "verify/compare.h"
#include "verify/emulator_backend.h"
#include "verify_cases.h"

namespace attnjit::verify {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  Arch arch = Arch::kSm90a;
  bool emulator = false;
  int sample = 1;
  int threads = 0;
  std::string json;
};

struct Shape {
  std::int64_t batch, q_len, kv_len;
};
// Odd lengths, one query, fewer keys than queries, several tiles, a batch of three.
constexpr Shape kShapes[] = {{1, 1, 257}, {3, 127, 191}, {1, 200, 77}, {2, 65, 449}, {1, 301, 333}};
constexpr Shape kSmallShapes[] = {{1, 1, 131}, {2, 33, 97}, {1, 70, 40}};
// sm_100 has a body for more than 128 rows.
constexpr Shape kLongerShape = {1, 141, 150};
struct Totals {
  std::mutex mutex;
  std::atomic<bool> lacking{false};  // no NVRTC
  int combinations = 0, unsupported = 0, runs = 0;
  std::vector<std::string> failures;
  struct Worst {
    double rel_err = 0, max_row_err = 0, lse_max_abs_err = 0;
  };
  std::map<std::string, Worst> worst;  // by dtype and input
};

class Worker {
 public:
  Worker(Service& service, std::unique_ptr<Backend> backend, Totals& totals)
      : service_(service), backend_(std::move(backend)), totals_(totals) {}

  void run(const Case& one, std::uint64_t seed) {
    Result<PreparedSpec> prepared = service_.prepare(one.spec);
    if (!prepared) {
      const std::lock_guard lock(totals_.mutex);
      if (prepared.error().code == ErrorCode::kUnsupported) {
        ++totals_.unsupported;
        std::printf("unsupported: %s: %s\n", one.name.c_str(),
                    prepared.error().to_string().c_str());
      } else {
        totals_.failures.push_back(one.name + ": " + prepared.error().to_string());
      }
      return;
    }
    Result<CompiledKernel> compiled =
        service_.compile(*prepared, std::chrono::steady_clock::now() + std::chrono::minutes(5),
                         backend_->needs_ptx() ? PtxNeed::kRequired : PtxNeed::kSkip);
    if (!compiled && compiled.error().code == ErrorCode::kEnvironment) {
      totals_.lacking = true;
      return;
    }
    if (!compiled) return fail(one.name + ": " + compiled.error().to_string());
    {
      const std::lock_guard lock(totals_.mutex);
      ++totals_.combinations;
    }
    if (backend_->name() == "emulator") {
      for (std::size_t i = 0; i < std::size(kSmallShapes); ++i) {
        run_one(one, prepared->plan(), compiled->image, kSmallShapes[i],
                kInputKinds[(seed + i) % kInputKinds.size()], seed);
      }
      if (one.spec.arch != Arch::kSm90a) {
        run_one(one, prepared->plan(), compiled->image, kLongerShape,
                kInputKinds[(seed + 3) % kInputKinds.size()], seed);
      }
      return;
    }
    for (const Shape& shape : kShapes) {
      for (const InputKind input : kInputKinds) {
        run_one(one, prepared->plan(), compiled->image, shape, input, seed);
      }
    }
  }

 private:
  void fail(const std::string& what) {
    const std::lock_guard lock(totals_.mutex);
    totals_.failures.push_back(what);
    if (totals_.failures.size() <= 50) std::printf("FAILED: %s\n", what.c_str());
  }

  void run_one(const Case& one, const KernelPlan& plan,
               const std::shared_ptr<const KernelImage>& image, const Shape& shape, InputKind input,
               std::uint64_t seed) {
    const std::string name = fmt::format("{}; batch {} q_len {} kv_len {} {}", one.name,
                                         shape.batch, shape.q_len, shape.kv_len, to_string(input));
    ProblemRequest request;
    request.batch = shape.batch;
    request.q_lens = {shape.q_len};
    request.kv_lens = {shape.kv_len};
    if (one.spec.ragged) request.q_lens = mixed_lengths(shape.q_len, shape.batch, 0);
    if (one.spec.ragged || one.spec.ragged_kv || one.spec.page_size > 0) {
      request.kv_lens = mixed_lengths(shape.kv_len, shape.batch, seed);
    }
    if (one.spec.kv_lens_exclude_new) {
      // The rows' own keys are among them.
      for (std::size_t b = 0; b < request.kv_lens.size(); ++b) {
        request.kv_lens[b] += request.q_lens[one.spec.ragged ? b : 0];
      }
    }
    request.input = input;
    request.seed = seed;
    request.threads = 1;
    Result<Problem> problem = make_problem(one.spec, request);
    if (!problem) return fail(name + ": " + problem.error().to_string());
    Result<BackendRun> run = backend_->run(plan, image, *problem);
    if (!run) return fail(name + ": " + run.error().to_string());
    Result<Reference> reference = compute_reference(*problem, 1);
    if (!reference) return fail(name + ": " + reference.error().to_string());
    const Comparison comparison = compare(
        *problem, *reference, run->o, run->lse ? &*run->lse : nullptr, tolerance_of(problem->spec));
    if (!comparison.passed) return fail(name + ": " + comparison.reason);
    if (!run->findings.empty()) return fail(name + ": " + run->findings.front());
    const std::lock_guard lock(totals_.mutex);
    ++totals_.runs;
    Totals::Worst& worst =
        totals_.worst[fmt::format("{} {}", to_string(one.spec.qkv_dtype), to_string(input))];
    worst.rel_err = std::max(worst.rel_err, comparison.rel_err);
    worst.max_row_err = std::max(worst.max_row_err, comparison.max_row_err);
    worst.lse_max_abs_err = std::max(worst.lse_max_abs_err, comparison.lse_max_abs_err.value_or(0));
  }

  Service& service_;
  std::unique_ptr<Backend> backend_;
  Totals& totals_;
};

Json to_json(const Totals& totals, const std::string& device, double seconds) {
  Json json;
  json["device"] = device;
  json["combinations"] = totals.combinations;
  json["unsupported"] = totals.unsupported;
  json["runs_passed"] = totals.runs;
  json["runs_failed"] = totals.failures.size();
  json["seconds"] = seconds;
  for (const auto& [name, worst] : totals.worst) {
    json["worst"][name] = {{"rel_err", worst.rel_err},
                           {"max_row_err", worst.max_row_err},
                           {"lse_max_abs_err", worst.lse_max_abs_err}};
  }
  json["failures"] = totals.failures;
  return json;
}

Result<std::unique_ptr<Backend>> open_backend(const Options& options) {
  return options.emulator ? make_emulator_backend() : make_gpu_backend(options.arch);
}

int run_matrix(const Options& options) {
  Result<std::unique_ptr<Backend>> first = open_backend(options);
  if (!first) {
    std::fprintf(stderr, "%s\n", first.error().to_string().c_str());
    return first.error().code == ErrorCode::kEnvironment ? 77 : 1;
  }
  const std::string device = (*first)->device();
  ServiceOptions service_options;
  service_options.use_disk_cache = false;
  Result<std::unique_ptr<Service>> service = Service::create(service_options);
  if (!service) {
    std::fprintf(stderr, "%s\n", service.error().to_string().c_str());
    return 1;
  }
  const std::vector<Case> all = cases(options.arch);
  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  std::atomic<std::size_t> next{0};
  const auto step = static_cast<std::size_t>(options.sample);
  const auto work = [&] {
    Result<std::unique_ptr<Backend>> backend = open_backend(options);
    if (!backend) {
      const std::lock_guard lock(totals.mutex);
      totals.failures.push_back(backend.error().to_string());
      return;
    }
    Worker worker(**service, std::move(*backend), totals);
    for (std::size_t i = next.fetch_add(step); i < all.size(); i = next.fetch_add(step)) {
      worker.run(all[i], i);
    }
  };
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) pool.emplace_back(work);
  for (std::thread& thread : pool) thread.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const Json json = to_json(totals, device, seconds);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
  if (!options.json.empty()) std::ofstream(options.json) << text << '\n';
  if (totals.lacking) return 77;
  return totals.failures.empty() && totals.combinations > 0 ? 0 : 1;
}

}  // namespace
}  // namespace attnjit::verify

int main(int argc, char** argv) {
  attnjit::verify::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--sample") {
      options.sample = std::max(1, std::atoi(value));
    } else if (flag == "--threads") {
      options.threads = std::atoi(value);
    } else if (flag == "--json") {
      options.json = value;
    } else if (flag == "--backend" &&
               (std::strcmp(value, "gpu") == 0 || std::strcmp(value, "emulator") == 0)) {
      options.emulator = std::strcmp(value, "emulator") == 0;
    } else if (flag == "--arch" && attnjit::arch_from_string(value)) {
      options.arch = *attnjit::arch_from_string(value);
    } else {
      std::fprintf(stderr, "unknown flag or value: %s %s\n", flag.c_str(), value);
      return 2;
    }
  }
  return attnjit::verify::run_matrix(options);
}

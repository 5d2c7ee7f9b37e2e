// SPDX-License-Identifier: Apache-2.0
// The compiler's report on every sm_100a and sm_103a kernel of the manifests in cache/, of the
// proof's attentions by name, of partitions, and of random ones: no bytes of spills or stack.
//
//     attnjit_sm100_compile_report [--only TEXT] [--sample N] [--random COUNT] [--seed S] [--all 1]
//
// Prints the kernels that spill (--all 1: every kernel) and counts them. Specs with one kernel are
// compiled once. Exit code 1 where one spills or does not compile, 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/manifest.h"
#include "attnjit/plan.h"
#include "attnjit/source.h"
#include "proof_cases.h"
#include "source_dir.h"

namespace attnjit::sm100 {
namespace {

struct Options {
  std::string only;
  std::size_t sample = 1;
  std::uint64_t random = 0, seed = 20261121;
  bool all = false;
};

struct Entry {
  std::string name;
  KernelSource source;
};

class Collection {
 public:
  /// Takes a spec that the template serves, unless its kernel is there already.
  void add(const std::string& name, const AttentionSpec& spec, const PlanOptions& options) {
    const Result<KernelPlan> planned = plan(spec, options);
    if (!planned || !planned->supported) return;
    Result<KernelSource> source = generate(*planned);
    if (!source || !seen_.insert(source->text).second) return;
    entries.push_back({name, std::move(*source)});
  }

  void add_manifests() {
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(ATTNJIT_SOURCE_DIR "/cache")) {
      if (file.path().extension() == ".json") files.push_back(file.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& path : files) {
      std::ifstream stream(path);
      const std::string text((std::istreambuf_iterator<char>(stream)), {});
      const Result<Manifest> manifest = manifest_from_json(text);
      if (!manifest) continue;
      for (std::size_t i = 0; i < manifest->specs.size(); ++i) {
        if (!manifest->specs[i]) continue;
        for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
          SpecDocument document = *manifest->specs[i];
          document.spec.arch = arch;
          add(fmt::format("{}, specs[{}], {}", path.stem().string(), i, to_string(arch)),
              document.spec, document.options);
        }
      }
    }
  }

  /// Keys split by number and by keys, over every way in which K and V come.
  void add_partitions() {
    struct Layout {
      const char* name;
      int page_size;
      bool ragged, ragged_kv;
    };
    constexpr Layout kLayouts[] = {{"one length", 0, false, false},
                                   {"pages of 16", 16, false, false},
                                   {"pages of 24, ragged", 24, true, false},
                                   {"pages of 1, ragged", 1, true, false},
                                   {"ragged keys", 0, true, true}};
    for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
      for (const auto& [qk_depth, ov_depth] :
           {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}, {512, 512}}) {
        for (const Layout& layout : kLayouts) {
          for (const int keys : {0, 256}) {
            AttentionSpec spec;
            spec.arch = arch;
            spec.num_q_heads = 12;
            spec.group = 6;
            spec.qk_depth = qk_depth;
            spec.ov_depth = ov_depth;
            spec.page_size = layout.page_size;
            spec.ragged = layout.ragged;
            spec.ragged_kv = layout.ragged_kv;
            spec.return_lse = spec.sink = true;
            spec.mask.kind = MaskSpec::Kind::kCausal;
            spec.partition_keys = keys;
            if (keys == 0) spec.num_partitions = 0;
            if (layout.page_size > 0) spec.max_q_len = 4;
            const std::string name =
                fmt::format("partitions, {}, {}, {}/{}, keys {}", to_string(arch), layout.name,
                            qk_depth, ov_depth, keys);
            add(name, spec, {});
            spec.scales = Scales::kHead;
            spec.kv_dtype = Dtype::kE4m3;
            add(name + ", e4m3 K and V", spec, {});
            spec.kv_dtype.reset();
            spec.qkv_dtype = Dtype::kE4m3;
            add(name + ", e4m3", spec, {});
            spec.scales = Scales::kToken;
            spec.output_dtype = Dtype::kE4m3;
            add(name + ", e4m3 with scales of rows", spec, {});
          }
        }
      }
    }
  }

  std::vector<Entry> entries;

 private:
  std::set<std::string> seen_;
};

int run(const Options& options) {
  const std::shared_ptr<Compiler> compiler = make_in_process_compiler();
  if (Result<std::string> id = compiler->build_id(); !id) {
    std::fprintf(stderr, "%s\n", id.error().to_string().c_str());
    return 77;
  }
  Collection collection;
  collection.add_manifests();
  const std::size_t from_manifests = collection.entries.size();
  collection.add_partitions();
  for (const ProofCase& one : named_cases()) collection.add(one.name, one.spec, one.options);
  for (std::uint64_t i = 0; i < options.random; ++i) {
    const ProofCase one = random_case(options.seed, i);
    collection.add(one.name, one.spec, one.options);
  }
  std::vector<Entry> taken;
  for (std::size_t i = 0; i < collection.entries.size(); i += options.sample) {
    Entry& entry = collection.entries[i];
    if (entry.name.find(options.only) != std::string::npos) taken.push_back(std::move(entry));
  }
  std::printf("%zu kernels, %zu of them from manifests; %zu taken\n", collection.entries.size(),
              from_manifests, taken.size());
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::size_t bad = 0;
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
      bad += spills ? 1 : 0;
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
              taken.size() - bad, taken.size(), slowest_ms);
  return bad == 0 && !taken.empty() ? 0 : 1;
}

}  // namespace
}  // namespace attnjit::sm100

int main(int argc, char** argv) {
  attnjit::sm100::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    const std::uint64_t number = std::strtoull(value, nullptr, 10);
    if (flag == "--only") {
      options.only = value;
    } else if (flag == "--sample" && number > 0) {
      options.sample = number;
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
  return attnjit::sm100::run(options);
}

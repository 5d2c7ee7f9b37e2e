// SPDX-License-Identifier: Apache-2.0
// From disk to a verified image: the cache's hit path, warm page cache, against a bare read and the
// bare digests.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "attnjit/cache.h"
#include "base/sha256.h"

namespace attnjit {
namespace {

constexpr const char* kBuild = "NVRTC 13.0.88";
constexpr std::size_t kImageBytes = 100 * 1000;

/// A cache in a folder of its own that holds one image.
struct Fixture {
  explicit Fixture(std::size_t ptx_bytes, std::size_t cubin_bytes = kImageBytes) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "attnjit_cache_bench_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    folder = pattern;
    // As long as a real key's: a rendered file of some kilobytes.
    for (int i = 0; key.material.size() < 12000; ++i) key.material += std::to_string(i * 7919);
    key.hex = to_hex(sha256(key.material));
    for (std::size_t i = 0; i < cubin_bytes; ++i) {
      image.cubin.push_back(static_cast<std::uint8_t>(i * 2654435761u >> 13));
    }
    image.ptx.assign(ptx_bytes, 'p');
    image.entries = {"attnjit_fwd"};
    image.log.assign(200, 'l');
    CacheOptions options;
    options.layers = {folder};
    cache = open_cache(options);
    if (!cache->store(key, kBuild, image).ok()) std::abort();
  }
  ~Fixture() { std::filesystem::remove_all(folder); }

  std::string folder;
  RequestKey key;
  KernelImage image;
  std::unique_ptr<CubinCache> cache;
};

void find(benchmark::State& state, PtxNeed ptx, std::size_t ptx_bytes) {
  Fixture fixture(ptx_bytes);
  for (auto _ : state) {
    auto image = fixture.cache->find(fixture.key, kBuild, BuildPolicy::kExact, ptx);
    if (!image) std::abort();
    benchmark::DoNotOptimize(image->cubin.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kImageBytes));
}
BENCHMARK_CAPTURE(find, cubin_100kB, PtxNeed::kIfStored, 0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find, cubin_100kB_ptx_400kB_skipped, PtxNeed::kSkip, 400000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find, cubin_100kB_ptx_400kB_read, PtxNeed::kIfStored, 400000)
    ->Unit(benchmark::kMicrosecond);

/// An entry as a Service stores it, depth 128: the PTX is three quarters of it.
void find_as_stored(benchmark::State& state, PtxNeed ptx, std::size_t ptx_bytes) {
  Fixture fixture(ptx_bytes, 48000);
  for (auto _ : state) {
    auto image = fixture.cache->find(fixture.key, kBuild, BuildPolicy::kExact, ptx);
    if (!image) std::abort();
    benchmark::DoNotOptimize(image->cubin.data());
  }
}
BENCHMARK_CAPTURE(find_as_stored, without_ptx, PtxNeed::kSkip, 0)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_as_stored, ptx_skipped, PtxNeed::kSkip, 136000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(find_as_stored, ptx_read, PtxNeed::kIfStored, 136000)
    ->Unit(benchmark::kMicrosecond);

void find_any_build(benchmark::State& state) {
  Fixture fixture(0);
  for (auto _ : state) {
    auto image = fixture.cache->find(fixture.key, "", BuildPolicy::kExact);
    if (!image) std::abort();
    benchmark::DoNotOptimize(image->cubin.data());
  }
}
BENCHMARK(find_any_build)->Unit(benchmark::kMicrosecond);

void miss(benchmark::State& state) {
  Fixture fixture(0);
  RequestKey other = fixture.key;
  other.hex = to_hex(sha256("another"));
  for (auto _ : state) {
    benchmark::DoNotOptimize(fixture.cache->find(other, kBuild, BuildPolicy::kExact));
  }
}
BENCHMARK(miss)->Unit(benchmark::kMicrosecond);

/// Opens the folder again as well: a process's first hit.
void open_and_find(benchmark::State& state) {
  Fixture fixture(0);
  CacheOptions options;
  options.layers = {fixture.folder};
  for (auto _ : state) {
    const auto cache = open_cache(options);
    auto image = cache->find(fixture.key, kBuild, BuildPolicy::kExact);
    if (!image) std::abort();
    benchmark::DoNotOptimize(image->cubin.data());
  }
}
BENCHMARK(open_and_find)->Unit(benchmark::kMicrosecond);

void bare_read(benchmark::State& state) {
  Fixture fixture(0);
  const std::string path = fixture.cache->list().front().path;
  for (auto _ : state) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    std::vector<char> buffer(kImageBytes + 13000);
    if (::read(file, buffer.data(), buffer.size()) <= 0) std::abort();
    ::close(file);
    benchmark::DoNotOptimize(buffer.data());
  }
}
BENCHMARK(bare_read)->Unit(benchmark::kMicrosecond);

void bare_sha256_100kB(benchmark::State& state) {
  const std::vector<char> bytes(kImageBytes, 'b');
  for (auto _ : state) benchmark::DoNotOptimize(sha256(bytes.data(), bytes.size()));
}
BENCHMARK(bare_sha256_100kB)->Unit(benchmark::kMicrosecond);

/// What a compile pays to be kept: write, sync, rename, sync.
void store(benchmark::State& state) {
  Fixture fixture(0);
  for (auto _ : state) {
    if (!fixture.cache->store(fixture.key, kBuild, fixture.image).ok()) std::abort();
  }
}
BENCHMARK(store)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace attnjit

BENCHMARK_MAIN();

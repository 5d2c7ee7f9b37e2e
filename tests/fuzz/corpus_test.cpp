// SPDX-License-Identifier: Apache-2.0
// Runs the fuzz targets over their seed corpora and over mangled copies of them, in every build.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz_targets.h"
#include "source_dir.h"

namespace attnjit::fuzz {
namespace {

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  const std::string folder = std::string(ATTNJIT_SOURCE_DIR) + "/tests/fuzz/corpus/" + name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void run(const std::string& name, void (*target)(std::string_view)) {
  const std::vector<std::string> inputs = corpus(name);
  ASSERT_GE(inputs.size(), 5U);
  std::mt19937 random(3);
  for (const std::string& input : inputs) {
    target(input);
    for (int i = 0; i < 100; ++i) {
      std::string mangled = input;
      const std::string& other = inputs[random() % inputs.size()];
      const std::size_t at = random() % (mangled.size() + 1);
      if (i % 2 == 0) {
        mangled = mangled.substr(0, at) + other.substr(random() % (other.size() + 1));
      } else if (at < mangled.size()) {
        mangled[at] = static_cast<char>(random());
      }
      target(mangled);
    }
  }
}

TEST(FuzzCorpus, Expression) { run("expression", fuzz_expression); }
TEST(FuzzCorpus, Trusted) { run("trusted", fuzz_trusted); }
TEST(FuzzCorpus, SpecJson) { run("spec_json", fuzz_spec_json); }
TEST(FuzzCorpus, Manifest) { run("manifest", fuzz_manifest); }
TEST(FuzzCorpus, LaunchJson) { run("launch_json", fuzz_launch_json); }
TEST(FuzzCorpus, Tuning) { run("tuning", fuzz_tuning); }
TEST(FuzzCorpus, Template) { run("template", fuzz_template); }
TEST(FuzzCorpus, Npy) { run("npy", fuzz_npy); }
TEST(FuzzCorpus, Cubin) { run("cubin", fuzz_cubin); }
TEST(FuzzCorpus, Worker) { run("worker", fuzz_worker); }
TEST(FuzzCorpus, CacheEntry) { run("cache_entry", fuzz_cache_entry); }
TEST(FuzzCorpus, Ptx) { run("ptx", fuzz_ptx); }

}  // namespace
}  // namespace attnjit::fuzz

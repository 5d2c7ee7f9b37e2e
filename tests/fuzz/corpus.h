// SPDX-License-Identifier: Apache-2.0
// A fuzz target's seed corpus, and what becomes of it by mangling.
//
// Thread rules: functions that read files of the source tree.
#pragma once

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

inline std::vector<std::string> corpus(const std::string& name) {
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

inline void run_corpus(const std::string& name, void (*target)(std::string_view)) {
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

}  // namespace attnjit::fuzz

// SPDX-License-Identifier: Apache-2.0
// Helpers for emulator tests: modules from files and text, buffers of typed values, launches.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "attnjit/emulator.h"
#include "source_dir.h"

namespace attnjit::emulator {

inline std::string test_file(const std::string& name) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/" + name, std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline PtxModule load_module(const std::string& text) {
  auto module = PtxModule::load(text);
  if (!module) {
    ADD_FAILURE() << module.error().to_string();
    return PtxModule(nullptr);
  }
  return std::move(module).value();
}

template <class T>
EmulatorBuffer buffer_of(const std::string& name, Dtype dtype, const std::vector<T>& values) {
  EmulatorBuffer b;
  b.name = name;
  b.dtype = dtype;
  b.shape = {values.size()};
  b.data.resize(values.size() * sizeof(T));
  std::memcpy(b.data.data(), values.data(), b.data.size());
  return b;
}

template <class T>
std::vector<T> values_of(const EmulatorBuffer& b) {
  std::vector<T> values(b.data.size() / sizeof(T));
  std::memcpy(values.data(), b.data.data(), b.data.size());
  return values;
}

inline EmulatorBuffer f32_buffer(const std::string& name, const std::vector<float>& v) {
  return buffer_of(name, Dtype::kF32, v);
}
inline EmulatorBuffer i32_buffer(const std::string& name, const std::vector<std::int32_t>& v) {
  return buffer_of(name, Dtype::kI32, v);
}

inline KernelArgument pointer(const std::string& name, std::int64_t offset = 0) {
  return {KernelArgument::Pointer{name, offset}};
}
inline KernelArgument scalar(std::int32_t v) { return {v}; }
inline KernelArgument scalar(float v) { return {v}; }
inline KernelArgument map_argument(const std::string& name) {
  return {KernelArgument::TensorMap{name}};
}

inline LaunchRecipe recipe_of(const std::string& entry, std::array<std::uint32_t, 3> grid,
                              std::array<std::uint32_t, 3> block,
                              std::vector<KernelArgument> args) {
  LaunchRecipe r;
  r.entry = entry;
  r.grid = grid;
  r.block = block;
  r.args = std::move(args);
  return r;
}

inline EmulatorReport run(const PtxModule& module, const LaunchRecipe& recipe,
                          std::vector<EmulatorBuffer>& buffers,
                          const EmulatorOptions& options = {}) {
  auto report = emulate(module, recipe, buffers, options);
  if (!report) {
    ADD_FAILURE() << report.error().to_string();
    return {};
  }
  return std::move(report).value();
}

inline std::string words(const EmulatorReport& report) {
  std::string text;
  for (const Finding& f : report.findings) {
    text += std::string(to_string(f.kind)) + " line " + std::to_string(f.ptx_line) + " source " +
            std::to_string(f.source_line) + " warp " + std::to_string(f.warp) + " lane " +
            std::to_string(f.lane) + ": " + f.text + "\n";
  }
  return text;
}

inline bool has_finding(const EmulatorReport& report, FindingKind kind) {
  for (const Finding& f : report.findings) {
    if (f.kind == kind) return true;
  }
  return false;
}

}  // namespace attnjit::emulator

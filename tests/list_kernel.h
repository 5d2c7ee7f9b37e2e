// SPDX-License-Identifier: Apache-2.0
// Kernels of a test's own that walk the device's tile lists, for the emulator.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernel_fixture.h"

namespace attnjit::kernel_test {

/// The PTX of `entries`, which `source` defines with the embedded templates as headers, for sm_90a.
inline std::string ptx_of(const std::string& source, std::vector<std::string> entries) {
  CompileRequest request;
  request.source = generate(*plan(base_spec(Arch::kSm90a, 1, 1, 64))).value();
  request.source.headers = HeaderSet(TemplateSet::embedded().files());
  request.source.entries = std::move(entries);
  request.source.text = source;
  request.want_ptx = request.ptx_only = true;
  const Result<KernelImage> image = make_in_process_compiler()->compile(
      request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
  EXPECT_TRUE(image.ok()) << image.error().to_string();
  return image.ok() ? image->ptx : std::string();
}

inline EmulatorBuffer buffer_of(const std::string& name, const std::vector<std::int32_t>& values) {
  EmulatorBuffer buffer{name, Dtype::kI32, {values.size()}, {}, false};
  buffer.data.resize(4 * values.size());
  std::memcpy(buffer.data.data(), values.data(), buffer.data.size());
  return buffer;
}

}  // namespace attnjit::kernel_test

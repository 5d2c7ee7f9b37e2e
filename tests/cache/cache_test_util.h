// SPDX-License-Identifier: Apache-2.0
// Keys, images and options that the cache's tests share.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../driver/test_cubin.h"
#include "attnjit/cache.h"
#include "base/sha256.h"

namespace attnjit::cache {

inline constexpr const char* kBuild = "NVRTC 13.0.88";

inline RequestKey make_key(int number) {
  RequestKey key;
  key.material = "material of key " + std::to_string(number) + std::string(200, 'm');
  key.hex = to_hex(sha256(key.material));
  return key;
}

/// A cubin that ends in pseudo-random bytes, which depend on `number`, so that a mix-up of two
/// images shows. `cubin_bytes` is the least size.
inline KernelImage make_image(int number, std::size_t cubin_bytes = 1500,
                              std::size_t ptx_bytes = 300) {
  KernelImage image;
  std::uint32_t state = 2463534242u + static_cast<std::uint32_t>(number) * 977u;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return static_cast<std::uint8_t>(state >> 11);
  };
  image.entries = {"attnjit_kernel_" + std::to_string(number)};
  image.cubin = fake::make_cubin(image.entries, 100);
  while (image.cubin.size() < cubin_bytes) image.cubin.push_back(next());
  for (std::size_t i = 0; i < ptx_bytes; ++i) {
    image.ptx.push_back(static_cast<char>('a' + next() % 26));
  }
  image.usage = {168, 0, 16, 1024, 7};
  image.times = {1.5, 2.5, 3.5, 7.5};
  image.nvrtc_version = "13.0.88";
  image.log = "ptxas info";
  return image;
}

inline bool same_image(const KernelImage& a, const KernelImage& b) {
  return a.cubin == b.cubin && a.ptx == b.ptx && a.entries == b.entries &&
         a.usage.registers == b.usage.registers && a.usage.spill_bytes == b.usage.spill_bytes &&
         a.usage.stack_bytes == b.usage.stack_bytes &&
         a.usage.static_smem_bytes == b.usage.static_smem_bytes &&
         a.usage.barriers == b.usage.barriers && a.times.total_ms == b.times.total_ms &&
         a.times.frontend_ms == b.times.frontend_ms && a.nvrtc_version == b.nvrtc_version &&
         a.log == b.log;
}

/// Collects what is logged.
class LogLines {
 public:
  LogSink sink() {
    return [this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(level, std::string(text));
    };
  }
  std::size_t count(LogLevel level, std::string_view part = {}) {
    const std::lock_guard lock(mutex_);
    std::size_t found = 0;
    for (const auto& [at, text] : lines_) {
      if (at == level && text.find(part) != std::string::npos) ++found;
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

/// Sets a flag (may be null) to whether an image was found rather than compiled, at the end of the
/// statement that hands this to get_or_compile.
class FoundFlag {
 public:
  explicit FoundFlag(bool* flag) : flag_(flag) {}
  FoundFlag(const FoundFlag&) = delete;
  FoundFlag& operator=(const FoundFlag&) = delete;
  ~FoundFlag() {
    if (flag_ != nullptr) *flag_ = origin_ != ImageOrigin::kCompiled;
  }
  ImageOrigin* get() { return &origin_; }

 private:
  bool* flag_;
  ImageOrigin origin_ = ImageOrigin::kCompiled;
};

inline Compiler::Deadline in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

}  // namespace attnjit::cache

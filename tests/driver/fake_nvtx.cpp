// SPDX-License-Identifier: Apache-2.0
// A profiler's injection library: it attaches to NVTX 3 clients and writes down their ranges,
// unless ATTNJIT_FAKE_NVTX_REFUSES is set.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

using Function = void (*)();

std::mutex mutex;
std::string seen;
int asked = 0, clients = 0;
thread_local int depth = 0;

int push(const char* name) {
  const std::lock_guard lock(mutex);
  seen += std::string(name) + "\n";
  return depth++;
}

int pop() {
  const std::lock_guard lock(mutex);
  seen += "end\n";
  return --depth;
}

// As NVTX's nvtxTypes.h has them.
struct ExportTableCallbacks {
  std::size_t struct_size;
  int (*get_module_function_table)(int module, Function*** table, unsigned* size);
};
struct ExportTableVersionInfo {
  std::size_t struct_size;
  std::uint32_t version, reserved;
  void (*set_injection_version)(std::uint32_t);
};
constexpr std::uint32_t kCallbacks = 1, kVersionInfo = 3;
constexpr int kCore = 1, kCore2 = 5;
constexpr unsigned kRangePushA = 9, kRangePop = 11, kCoreSize = 16, kCore2Size = 16;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(std::uint32_t)) {
  {
    const std::lock_guard lock(mutex);
    ++asked;
  }
  if (std::getenv("ATTNJIT_FAKE_NVTX_REFUSES") != nullptr) return 0;
  const auto* version = static_cast<const ExportTableVersionInfo*>(get_export_table(kVersionInfo));
  const auto* callbacks = static_cast<const ExportTableCallbacks*>(get_export_table(kCallbacks));
  if (version == nullptr || version->struct_size < sizeof(ExportTableVersionInfo) ||
      version->version != 3 || callbacks == nullptr ||
      callbacks->struct_size < sizeof(ExportTableCallbacks)) {
    return 0;
  }
  version->set_injection_version(3);
  Function** table = nullptr;
  unsigned size = 0;
  // Profilers look for the domains' functions, too.
  if (callbacks->get_module_function_table(kCore2, &table, &size) != 1 || size < kCore2Size ||
      table[0] != nullptr || table[1] == nullptr || table[size] != nullptr ||
      callbacks->get_module_function_table(kCore, &table, &size) != 1 || size < kCoreSize ||
      callbacks->get_module_function_table(99, nullptr, nullptr) != 0) {
    return 0;
  }
  *table[kRangePushA] = reinterpret_cast<Function>(&push);
  *table[kRangePop] = reinterpret_cast<Function>(&pop);
  const std::lock_guard lock(mutex);
  ++clients;
  return 1;
}

/// What was begun and ended so far, one to a line; forgotten afterwards.
__attribute__((visibility("default"))) const char* attnjit_fake_nvtx_take() {
  static std::string taken;
  const std::lock_guard lock(mutex);
  taken = std::move(seen);
  seen.clear();
  return taken.c_str();
}

/// How often it was asked to attach.
__attribute__((visibility("default"))) int attnjit_fake_nvtx_asked() {
  const std::lock_guard lock(mutex);
  return asked;
}

__attribute__((visibility("default"))) int attnjit_fake_nvtx_clients() {
  const std::lock_guard lock(mutex);
  return clients;
}

}  // extern "C"

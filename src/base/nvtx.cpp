// SPDX-License-Identifier: Apache-2.0
// Implements the client's half of NVTX 3's injection protocol, as far as ranges need it.
#include "base/nvtx.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace attnjit {
namespace {

using Function = Nvtx::Function;

// The slots of one module of NVTX's functions. A profiler is given their addresses.
template <std::size_t kSlots>
struct Module {
  Module() {
    // NOTE: 0 is no function, and what follows the last one is null, too.
    for (std::size_t i = 1; i < kSlots; ++i) table[i] = &slots[i];
  }
  std::array<Function, kSlots> slots{};
  std::array<Function*, kSlots + 1> table{};
};

// How many numbers each module has; most of these functions are never called here, but a profiler
// may refuse a client that lacks them.
struct Modules {
  Module<16> core;     // 1
  Module<9> cuda;      // 2
  Module<15> opencl;   // 3
  Module<7> cuda_rt;   // 4
  Module<16> domains;  // 5
  Module<7> sync;      // 6
};
constexpr std::size_t kRangePushA = 9, kRangePop = 11;  // of core

// NOTE: a profiler fills them while it is opened, and is told of no client: the mutex of open()
// guards them.
Modules* being_filled = nullptr;

template <std::size_t kSlots>
void give(Module<kSlots>& module, Function*** table, unsigned* size) {
  if (size != nullptr) *size = kSlots;
  if (table != nullptr) *table = module.table.data();
}

int module_table(int module, Function*** table, unsigned* size) {
  if (being_filled == nullptr) return 0;
  switch (module) {
    case 1:
      give(being_filled->core, table, size);
      return 1;
    case 2:
      give(being_filled->cuda, table, size);
      return 1;
    case 3:
      give(being_filled->opencl, table, size);
      return 1;
    case 4:
      give(being_filled->cuda_rt, table, size);
      return 1;
    case 5:
      give(being_filled->domains, table, size);
      return 1;
    case 6:
      give(being_filled->sync, table, size);
      return 1;
    default:
      return 0;
  }
}

void set_injection_version(std::uint32_t) {}

struct Callbacks {
  std::size_t struct_size;
  int (*module_table)(int, Function***, unsigned*);
};
struct VersionInfo {
  std::size_t struct_size;
  std::uint32_t version, reserved;
  void (*set_injection_version)(std::uint32_t);
};

const void* export_table(std::uint32_t id) {
  static constexpr Callbacks kCallbacks{sizeof(Callbacks), &module_table};
  static constexpr VersionInfo kVersion{sizeof(VersionInfo), 3, 0, &set_injection_version};
  switch (id) {
    case 1:
      return &kCallbacks;
    case 3:
      return &kVersion;
    default:
      return nullptr;
  }
}

}  // namespace

// NOTE: each reads its slot once: a profiler may change it in between.
void Nvtx::push(const char* name) const {
  using Push = int (*)(const char*);
  const auto slot = __atomic_load_n(push_, __ATOMIC_RELAXED);
  if (slot != nullptr) (void)reinterpret_cast<Push>(slot)(name);
}

void Nvtx::pop() const {
  using Pop = int (*)();
  const auto slot = __atomic_load_n(pop_, __ATOMIC_RELAXED);
  if (slot != nullptr) (void)reinterpret_cast<Pop>(slot)();
}

Result<const Nvtx*> Nvtx::open(const std::string& path) {
  static std::mutex mutex;
  static auto* const opened = new std::map<std::string, Result<const Nvtx*>>;  // see the header
  const std::lock_guard lock(mutex);
  if (const auto known = opened->find(path); known != opened->end()) return known->second;
  const auto remember = [&](Result<const Nvtx*> result) {
    return opened->emplace(path, std::move(result)).first->second;
  };

  constexpr const char* kHint = "a profiler sets NVTX_INJECTION64_PATH to its library";
  void* const library = dlopen(path.c_str(), RTLD_LAZY);
  if (library == nullptr) {
    const char* const why = dlerror();
    return make_error(ErrorCode::kEnvironment, why == nullptr ? "it cannot be opened" : why, path,
                      kHint);
  }
  using Initialize = int (*)(const void* (*)(std::uint32_t));
  const auto initialize = reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2"));
  // NOTE: kept also where nothing attached: it may have the addresses all the same.
  static auto* const kept = new std::vector<std::unique_ptr<Modules>>;
  Modules& modules = *kept->emplace_back(std::make_unique<Modules>());
  being_filled = &modules;
  const bool attached = initialize != nullptr && initialize(&export_table) != 0;
  being_filled = nullptr;
  if (!attached) {
    return remember(make_error(ErrorCode::kEnvironment, "the library attaches to no NVTX 3 client",
                               path, kHint));
  }
  auto* const nvtx = new Nvtx;
  nvtx->push_ = &modules.core.slots[kRangePushA];
  nvtx->pop_ = &modules.core.slots[kRangePop];
  return remember(nvtx);
}

}  // namespace attnjit

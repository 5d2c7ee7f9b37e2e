// SPDX-License-Identifier: Apache-2.0
// Finds the fake driver's state in its shared library, for the tests.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "fake_cuda.h"

namespace attnjit::fake {

FakeCuda& fake_cuda() {
  void* library = dlopen(ATTNJIT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::abort();
  }
  auto state = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "attnjit_fake_cuda"));
  return *state();
}

}  // namespace attnjit::fake

// SPDX-License-Identifier: Apache-2.0
// Shared libraries that are opened at run time, and their functions.
//
// Thread rules: free functions, from any thread.
#pragma once

#include <dlfcn.h>

#include <span>

namespace attnjit::net {

/// The first library of these names that there is, or null. NOTE: it is never unloaded: libraries
/// register handlers that run when the process ends.
inline void* open_first(std::span<const char* const> names) {
  for (const char* const name : names) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return library;
  }
  return nullptr;
}

/// Whether a library has a function. The type of `out` is believed.
template <class Function>
bool load(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
  return out != nullptr;
}

}  // namespace attnjit::net
